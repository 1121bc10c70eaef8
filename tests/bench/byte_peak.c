// SPDX-License-Identifier: Apache-2.0
// Loops of the instructions that multiply bytes, in registers: each step of peak_NAME(steps) adds
// products to ten or twelve sums of 256 bits, twenty of 512 or four tiles of AMX, none of which waits
// for another. What registers hold does not matter. See test_peak.py.

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOW "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", \
    "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define HIGH "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21"

#define LOOP(sums, step, ...)                                                                \
    __asm__ volatile("1:\n.irp n," sums "\n" step ".endr\ndec %0\njnz 1b\nvzeroupper\n"      \
                     : "+r"(steps) : : "cc", __VA_ARGS__)
#define TEN "0,1,2,3,4,5,6,7,8,9"
#define TWELVE TEN ",10,11"
#define TWENTY TEN ",10,11,12,13,14,15,16,17,18,19"

__attribute__((target("avx2"))) void peak_narrow(long steps) {
    LOOP(TEN,
         "vpmaddubsw %%ymm11, %%ymm10, %%ymm12\n"
         "vpmaddwd %%ymm13, %%ymm12, %%ymm12\n"
         "vpaddd %%ymm12, %%ymm\\n, %%ymm\\n\n", LOW);
}

__attribute__((target("avx2"))) void peak_wide(long steps) {
    LOOP(TEN,
         "vpmaddwd %%ymm11, %%ymm10, %%ymm14\n"
         "vpaddd %%ymm14, %%ymm\\n, %%ymm\\n\n"
         "vpmaddwd %%ymm13, %%ymm12, %%ymm15\n"
         "vpaddd %%ymm15, %%ymm\\n, %%ymm\\n\n", LOW);
}

__attribute__((target("avx2"))) void peak_avx_vnni(long steps) {
    LOOP(TWELVE, "%{vex%} vpdpbusd %%ymm13, %%ymm12, %%ymm\\n\n", LOW);
}

__attribute__((target("avx512f"))) void peak_avx512_vnni(long steps) {
    LOOP(TWENTY, "vpdpbusd %%zmm21, %%zmm20, %%zmm\\n\n", LOW, HIGH);
}

// Two by two tiles of sums of 16 x 16, of two tiles of data and two of weights of 16 x 64 bytes.
__attribute__((target("amx-tile,amx-int8"))) void peak_amx(long steps) {
    struct {
        unsigned char palette, start, unused[14];
        unsigned short bytes[16];
        unsigned char rows[16];
    } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    syscall(SYS_arch_prctl, 0x1023, 18);  // ask the kernel for the registers of tiles
    _tile_loadconfig(&shape);
    for (; steps; --steps) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_release();
}
