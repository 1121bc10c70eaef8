// SPDX-License-Identifier: Apache-2.0
// A library to preload: CPUID answers as an older processor would. See masked.py.
//
// Linux lets a thread make CPUID fault (arch_prctl with ARCH_CPUID_FAULT; Intel's processors since
// Ivy Bridge, AMD's since Zen 4); threads that it starts inherit that. The handler of SIGSEGV runs
// the instruction with the fault switched off, takes bits away, and steps over it. CPUID_MASK names
// a row of `processors`.
//
// Where the processor or its hypervisor has no such fault, cpuid_patch.c writes UD0, which is as long
// and which compilers do not write, over CPUID in the libraries that CPUID_SITES lists. The handler
// of SIGILL does then what that of SIGSEGV does. Other handlers of the signal stay behind this one:
// sigaction is replaced.
//
// The dynamic linker has asked before this library is loaded; what it keeps is masked where it is
// read through __x86_get_cpuid_feature_leaf. XGETBV does not fault: it says more than the masked
// processor would, of registers that no masked feature uses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012, EXTENDED = 0x80000001u, OF_AMD = 0x444d4163u };

typedef struct { uint32_t eax, ebx, ecx, edx; } Registers;

// What a processor keeps of leaf 1 (ECX), 7 (EBX, ECX, EDX), 7.1 (EAX) and 0x80000001 (ECX), and
// its signature: family, model and stepping, by which compilers know it. On a machine of AMD it is
// that of the nearest one of AMD, as the vendor stays: leaves of caches differ by vendor.
typedef struct {
    const char *name;
    uint32_t signature, of_amd, one_c, seven_b, seven_c, seven_d, more_a, extended_c;
    uint32_t states;  // of XCR0: 3 SSE, 7 AVX, 0xe7 AVX-512
} Processor;

#define NOT_AVX (~(1u << 12 | 1u << 22 | 3u << 26 | 1u << 28 | 1u << 29))  // FMA MOVBE XSAVE AVX F16C
#define HASWELL_B 0x00000fabu       // BMI1 AVX2 SMEP BMI2 ERMS INVPCID and what is older
#define SKYLAKE_B 0xd19f0fabu       // AVX512F DQ CD BW VL, ADX, CLWB, CLFLUSHOPT
#define ICELAKE_B (SKYLAKE_B | 1u << 21 | 1u << 29)           // AVX512-IFMA, SHA
#define ICELAKE_C 0x00405f5eu       // VBMI, VBMI2, GFNI, VAES, VPCLMULQDQ, VNNI, BITALG, VPOPCNTDQ
#define ALDERLAKE_C 0x0040071cu     // GFNI, VAES, VPCLMULQDQ
#define OLD_D (~(1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25))

static const Processor processors[] = {
    {"nehalem", 0x106a5, 0x100fa0, NOT_AVX, 0, 0, OLD_D, 0, ~(1u << 5), 3},
    {"haswell", 0x306f2, 0xa20f12, ~0u, HASWELL_B, 0, OLD_D, 0, ~0u, 7},
    {"alderlake", 0x90672, 0xa20f12, ~0u, HASWELL_B | 1u << 19 | 1u << 29, ALDERLAKE_C, OLD_D, 1u << 4, ~0u, 7},
    {"skylake-avx512", 0x50654, 0xa60f12, ~0u, SKYLAKE_B, 0, OLD_D, 0, ~0u, 0xe7},
    {"icelake-server", 0x606a6, 0xa60f12, ~0u, ICELAKE_B, ICELAKE_C, OLD_D, 0, ~0u, 0xe7},
};

static const Processor *processor;
static int trap;                 // the signal of CPUID: SIGSEGV, or SIGILL where it was replaced
static struct sigaction behind;  // what others asked for

static void let_through(int allowed) {
    if (trap == SIGSEGV) syscall(SYS_arch_prctl, SET_CPUID, allowed);
}

static Registers ask(uint32_t leaf, uint32_t subleaf) {
    Registers r;
    __asm__ volatile("cpuid"
                     : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
                     : "a"(leaf), "c"(subleaf));
    return r;
}

static Registers masked(uint32_t leaf, uint32_t subleaf, Registers r) {
    const Processor *p = processor;
    if (leaf == 1) {
        r.eax = ask(0, 0).ecx == OF_AMD ? p->of_amd : p->signature;
        r.ecx &= p->one_c;
    } else if (leaf == 7 && subleaf == 0) {
        r.ebx &= p->seven_b;
        r.ecx &= p->seven_c;
        r.edx &= p->seven_d;
    } else if (leaf == 7) {
        r = (Registers){subleaf == 1 ? r.eax & p->more_a : 0, 0, 0, 0};
    } else if (leaf == 0xd && subleaf == 0) {
        r.eax &= p->states;
    } else if (leaf == 0x1d || leaf == 0x1e || leaf == 0x24) {  // tiles, AVX10
        r = (Registers){0, 0, 0, 0};
    } else if (leaf == EXTENDED) {
        r.ecx &= p->extended_c;
    }
    return r;
}

static void pass_on(int number, siginfo_t *info, void *context) {
    if (behind.sa_flags & SA_SIGINFO) {
        behind.sa_sigaction(number, info, context);
    } else if (behind.sa_handler != SIG_DFL && behind.sa_handler != SIG_IGN) {
        behind.sa_handler(number);
    } else {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        let_through(1);
        ((int (*)(int, const struct sigaction *, struct sigaction *))dlsym(
            RTLD_NEXT, "sigaction"))(number, &plain, 0);
    }
}

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *saved = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)saved[REG_RIP];
    // A fault of memory has an address that is not there; this one is a general protection fault.
    int is_cpuid = trap == SIGILL ? at[0] == 0x0f && at[1] == 0xff
                                  : info->si_code == SI_KERNEL && at[0] == 0x0f && at[1] == 0xa2;
    if (!is_cpuid) {
        pass_on(number, info, context);
        return;
    }
    uint32_t leaf = (uint32_t)saved[REG_RAX], subleaf = (uint32_t)saved[REG_RCX];
    let_through(1);
    Registers r = masked(leaf, subleaf, ask(leaf, subleaf));
    let_through(0);
    saved[REG_RAX] = r.eax;
    saved[REG_RBX] = r.ebx;
    saved[REG_RCX] = r.ecx;
    saved[REG_RDX] = r.edx;
    saved[REG_RIP] += 2;
}

int sigaction(int number, const struct sigaction *wanted, struct sigaction *old) {
    if (number != trap || !processor)
        return ((int (*)(int, const struct sigaction *, struct sigaction *))dlsym(
            RTLD_NEXT, "sigaction"))(number, wanted, old);
    if (old) *old = behind;
    if (wanted) behind = *wanted;
    return 0;
}

// glibc's numbers of leaves (sys/platform/x86.h): 1, 7, 0x80000001, 0xd.1, 0x80000007, 0x80000008,
// 7.1. Each has what CPUID said, then what of it is usable.
typedef struct { Registers said, usable; } GlibcLeaf;

const GlibcLeaf *__x86_get_cpuid_feature_leaf(unsigned number) {
    static const uint32_t leaves[][2] = {{1, 0}, {7, 0}, {EXTENDED, 0}, {0xd, 1},
                                         {0x80000007u, 0}, {0x80000008u, 0}, {7, 1}};
    static GlibcLeaf kept[7];
    const GlibcLeaf *(*next)(unsigned) = (const GlibcLeaf *(*)(unsigned))dlsym(
        RTLD_NEXT, "__x86_get_cpuid_feature_leaf");
    const GlibcLeaf *real = next ? next(number) : 0;
    if (!real || !processor || number >= 7) return real;
    kept[number].said = masked(leaves[number][0], leaves[number][1], real->said);
    kept[number].usable = masked(leaves[number][0], leaves[number][1], real->usable);
    return &kept[number];
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("CPUID_MASK");
    for (size_t i = 0; name && i < sizeof processors / sizeof *processors; ++i)
        if (!strcmp(name, processors[i].name)) processor = &processors[i];
    if (!processor) {
        fprintf(stderr, "CPUID_MASK=%s names no processor\n", name ? name : "");
        _exit(2);
    }
    struct sigaction ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    int (*real)(int, const struct sigaction *, struct sigaction *) =
        (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
    trap = getenv("CPUID_SITES") ? SIGILL : SIGSEGV;
    if (real(trap, &ours, &behind) || (trap == SIGSEGV && syscall(SYS_arch_prctl, SET_CPUID, 0))) {
        fprintf(stderr, "this processor or kernel has no fault on CPUID\n");
        _exit(2);
    }
}
