/* SPDX-License-Identifier: Apache-2.0 */
/* The same names as device.h, for a CPU: blocks are a loop, threads are fibers.
 *
 * A fiber runs until it waits: at a barrier for all threads of its block, in a shuffle or a matrix
 * product for those of its warp. A warp runs until all of it waits at a barrier, the first warp first:
 * so a missing barrier shows, every time in the same way.
 */
#ifndef INTARSIA_EMULATE_H
#define INTARSIA_EMULATE_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <math.h>
#include <type_traits>
#include <utility>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __syncthreads() ix_wait(IX_BARRIER)
#define blockIdx ix_block
#define threadIdx (ix_now->at)

enum ix_state { IX_READY, IX_WARP, IX_BARRIER, IX_DONE };
enum { IX_LANES = 32, IX_MOST = 1024, IX_STACK = 128 * 1024 };

struct ix_index {
    unsigned x, y, z;
};

struct ix_fiber {
    ix_index at;
    unsigned number;
    ix_state state;
#if defined(__x86_64__)
    void *top;
#else
    ucontext_t context;
#endif
    unsigned char *stack;
};

union ix_slot {
    unsigned char bytes[8];
    const void *row;
    struct {
        float a[4];
        float b[2];
    } parts;
};

/* A copy arrives as late as it may: when its thread waits for it. */
struct ix_copy {
    void *to;
    const void *from;
    unsigned size, group;
};
enum { IX_COPIES = 512 };
static ix_copy ix_copies[IX_MOST][IX_COPIES];
static unsigned ix_started[IX_MOST], ix_groups[IX_MOST];

alignas(128) static unsigned char ix_pool[227 * 1024];
static ix_index ix_block;
static ix_fiber ix_fibers[IX_MOST];
static ix_fiber *ix_now = ix_fibers;
static ix_slot ix_slots[IX_MOST];
static void (*ix_call)(void **);
static void **ix_args;

#if defined(__x86_64__)
static void *ix_home;
extern "C" __attribute__((visibility("hidden"))) void ix_switch(void **from, void *to);
asm(".text\n"
    ".p2align 4\n"
    ".hidden ix_switch\n"
    ".globl ix_switch\n"
    ".type ix_switch,@function\n"
    "ix_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
    "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n"
    "    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size ix_switch,.-ix_switch\n");

static void ix_leave()
{
    ix_switch(&ix_now->top, ix_home);
}

static void ix_enter()
{
    ix_switch(&ix_home, ix_now->top);
}
#else
static ucontext_t ix_home;

static void ix_leave()
{
    swapcontext(&ix_now->context, &ix_home);
}

static void ix_enter()
{
    swapcontext(&ix_home, &ix_now->context);
}
#endif

static void ix_wait(ix_state state)
{
    ix_now->state = state;
    ix_leave();
}

static void ix_thread()
{
    ix_call(ix_args);
    ix_wait(IX_DONE);
}

static int ix_prepare(ix_fiber *fiber)
{
    if (fiber->stack == nullptr) {
        fiber->stack = static_cast<unsigned char *>(std::aligned_alloc(64, IX_STACK));
        if (fiber->stack == nullptr) {
            return -1;
        }
    }
    fiber->state = IX_READY;
    ix_started[fiber->number] = ix_groups[fiber->number] = 0;
#if defined(__x86_64__)
    /* Six registers, then the address that `ret` takes, at a multiple of 16. */
    void **top = reinterpret_cast<void **>(fiber->stack + IX_STACK - 64);
    *top = reinterpret_cast<void *>(ix_thread);
    std::memset(top - 6, 0, 6 * sizeof(void *));
    fiber->top = top - 6;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = IX_STACK;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, ix_thread, 0);
#endif
    return 0;
}

/* Let the threads of a state go on if it is that of all that are not done; 0 if it is not. */
static int ix_release(unsigned first, unsigned end, ix_state state)
{
    unsigned waiting = 0, left = 0;
    for (unsigned n = first; n < end; ++n) {
        left += ix_fibers[n].state != IX_DONE;
        waiting += ix_fibers[n].state == state;
    }
    for (unsigned n = first; n < end && waiting == left; ++n) {
        ix_fibers[n].state = ix_fibers[n].state == state ? IX_READY : ix_fibers[n].state;
    }
    return left != 0 && waiting == left;
}

/* Run the threads of a warp until they wait for other warps, or are done. */
static void ix_run_warp(unsigned first, unsigned end)
{
    do {
        for (unsigned n = first; n < end; ++n) {
            if (ix_fibers[n].state == IX_READY) {
                ix_now = &ix_fibers[n];
                ix_enter();
            }
        }
    } while (ix_release(first, end, IX_WARP) != 0);
}

/* Run a block; -1 if threads wait for others that never come. */
static int ix_run_block(unsigned threads)
{
    for (unsigned n = 0; n < threads; ++n) {
        if (ix_prepare(&ix_fibers[n]) != 0) {
            return -1;
        }
    }
    do {
        for (unsigned first = 0; first < threads; first += IX_LANES) {
            ix_run_warp(first, first + IX_LANES < threads ? first + IX_LANES : threads);
        }
    } while (ix_release(0, threads, IX_BARRIER) != 0);
    for (unsigned n = 0; n < threads; ++n) {
        if (ix_fibers[n].state != IX_DONE) {
            return -1;
        }
    }
    return 0;
}

/* dims: blocks in x, y, z, then threads in x, y, z. */
static int ix_launch(void (*call)(void **), void **args, const uint32_t *dims, int fibers)
{
    const unsigned threads = dims[3] * dims[4] * dims[5];
    if (threads == 0 || threads > IX_MOST) {
        return -1;
    }
    ix_call = call;
    ix_args = args;
    for (unsigned n = 0; n < threads; ++n) {
        ix_fibers[n].number = n;
        ix_fibers[n].at = {n % dims[3], n / dims[3] % dims[4], n / dims[3] / dims[4]};
    }
    for (ix_block.z = 0; ix_block.z < dims[2]; ++ix_block.z) {
        for (ix_block.y = 0; ix_block.y < dims[1]; ++ix_block.y) {
            for (ix_block.x = 0; ix_block.x < dims[0]; ++ix_block.x) {
                if (fibers != 0) {
                    if (ix_run_block(threads) != 0) {
                        return -1;
                    }
                    continue;
                }
                for (unsigned n = 0; n < threads; ++n) {
                    ix_now = &ix_fibers[n];
                    call(args);
                }
            }
        }
    }
    return 0;
}

/* An argument is an address or a size, in 64 bits. */
template <class P> static inline P ix_argument(void *arg)
{
    if constexpr (std::is_pointer<P>::value) {
        return static_cast<P>(arg);
    } else {
        return static_cast<P>(reinterpret_cast<intptr_t>(arg));
    }
}

template <class... P, size_t... N>
static inline void ix_apply(void (*kernel)(P...), void **args, std::index_sequence<N...>)
{
    kernel(ix_argument<P>(args[N])...);
}

template <class... P> static inline void ix_apply_all(void (*kernel)(P...), void **args)
{
    ix_apply(kernel, args, std::index_sequence_for<P...>{});
}

#define IX_EXPORT(kernel)                                                                          \
    static void ix_call_##kernel(void **args)                                                      \
    {                                                                                              \
        ix_apply_all(kernel, args);                                                                \
    }                                                                                              \
    extern "C" int32_t emulated_##kernel(void **args, const uint32_t *dims, int32_t fibers)        \
    {                                                                                              \
        return ix_launch(ix_call_##kernel, args, dims, fibers);                                    \
    }

template <class T> static inline T ix_shuffle_down(T value, int step)
{
    static_assert(sizeof(T) <= 8, "a register has 8 bytes");
    const unsigned me = ix_now->number;
    std::memcpy(ix_slots[me].bytes, &value, sizeof(T));
    ix_wait(IX_WARP);
    const unsigned from = me % IX_LANES + step < IX_LANES ? me + step : me;
    std::memcpy(&value, ix_slots[from].bytes, sizeof(T));
    ix_wait(IX_WARP);
    return value;
}

template <class T> static inline T ix_product(T a, T b)
{
    return a * b;
}

template <class T, class S> static inline void ix_copy_16(T *to, const S *from)
{
    /* What a GPU would refuse ends here too. */
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 != 0) {
        std::abort();
    }
    std::memcpy(to, from, 16);
}

static inline void ix_start(void *to, const void *from, unsigned size, int inside)
{
    const unsigned me = ix_now->number;
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % size != 0 ||
        ix_started[me] == IX_COPIES) {
        std::abort();
    }
    ix_copies[me][ix_started[me]++] = {to, inside != 0 ? from : nullptr, size, ix_groups[me]};
}

template <class T, class S> static inline void ix_async_16(T *to, const S *from, int inside)
{
    ix_start(to, from, 16, inside);
}

template <class T, class S> static inline void ix_async_4(T *to, const S *from, int inside)
{
    ix_start(to, from, 4, inside);
}

static inline void ix_async_commit()
{
    ++ix_groups[ix_now->number];
}

static inline void ix_async_wait(unsigned groups)
{
    const unsigned me = ix_now->number, count = ix_started[me];
    ix_started[me] = 0;
    for (unsigned n = 0; n < count; ++n) {
        const ix_copy copy = ix_copies[me][n];
        if (copy.group + groups >= ix_groups[me]) {
            ix_copies[me][ix_started[me]++] = copy;
        } else if (copy.from == nullptr) {
            std::memset(copy.to, 0, copy.size);
        } else {
            std::memcpy(copy.to, copy.from, copy.size);
        }
    }
}

/* As device.h says of ix_ldmatrix. */
static inline void ix_exchange(void *to, const void *row, bool turned)
{
    const unsigned me = ix_now->number, first = me / IX_LANES * IX_LANES, lane = me % IX_LANES;
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
        std::abort();
    }
    ix_slots[me].row = row;
    ix_wait(IX_WARP);
    for (unsigned n = 0; n < 4; ++n) {
        const ix_slot *rows = &ix_slots[first + n * 8];
        unsigned char *word = static_cast<unsigned char *>(to) + n * 4;
        if (!turned) {
            std::memcpy(word, static_cast<const char *>(rows[lane / 4].row) + lane % 4 * 4, 4);
            continue;
        }
        for (unsigned half = 0; half < 2; ++half) {
            const void *source = rows[lane % 4 * 2 + half].row;
            std::memcpy(word + half * 2, static_cast<const char *>(source) + lane / 4 * 2, 2);
        }
    }
    ix_wait(IX_WARP);
}

template <class T> static inline void ix_ldmatrix(T *to, const T *row)
{
    ix_exchange(to, row, false);
}

static inline void ix_ldmatrix_trans(uint16_t *to, const uint16_t *row)
{
    ix_exchange(to, row, true);
}

static inline float ix_widen_f16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float value = exponent == 0 ? ldexpf((float)fraction, -24)
                                : ldexpf((float)(fraction + 1024), exponent - 25);
    if (exponent == 31) {
        value = fraction == 0 ? INFINITY : NAN;
    }
    return (bits & 0x8000) != 0 ? -value : value;
}

static inline uint16_t ix_narrow_f16(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t sign = bits >> 16 & 0x8000U, size = bits & 0x7fffffffU;
    if (size > 0x7f800000U) {
        return (uint16_t)(sign | 0x7e00U);
    }
    if (size >= 0x477ff000U) { /* 65520 rounds to infinity */
        return (uint16_t)(sign | 0x7c00U);
    }
    if (size < 0x38800000U) { /* below the smallest normal number: units of 2^-24 */
        return (uint16_t)(sign | (uint32_t)rintf(fabsf(value) * 16777216.0F));
    }
    return (uint16_t)(sign | ((size + 0xfffU + (size >> 13 & 1U)) - 0x38000000U) >> 13);
}

static inline float ix_from_bits(uint32_t bits)
{
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

static inline float ix_from_bf16(uint16_t bits)
{
    return ix_from_bits((uint32_t)bits << 16);
}

static inline float ix_to_tf32(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return value == value ? ix_from_bits((bits + 0x1000U) & ~0x1fffU) : value;
}

/* Which thread of a warp holds an element, and where, as PTX's mma.m16n8k8 says. */
template <bool WIDE> static inline void ix_mma(float *c, const float *a, const float *b)
{
    const unsigned me = ix_now->number, first = me / IX_LANES * IX_LANES, lane = me % IX_LANES;
    for (unsigned n = 0; n < 4; ++n) {
        ix_slots[me].parts.a[n] = a[n];
        ix_slots[me].parts.b[n % 2] = b[n % 2];
    }
    ix_wait(IX_WARP);
    for (unsigned n = 0; n < 4; ++n) {
        const unsigned row = lane / 4 + n / 2 * 8, column = lane % 4 * 2 + n % 2;
        for (unsigned k = 0; k < 8; ++k) {
            const unsigned pair = WIDE ? k % 4 : k / 2;
            const unsigned left = WIDE ? row / 8 + k / 4 * 2 : row / 8 * 2 + k % 2;
            c[n] += ix_slots[first + row % 8 * 4 + pair].parts.a[left] *
                    ix_slots[first + column * 4 + pair].parts.b[WIDE ? k / 4 : k % 2];
        }
    }
    ix_wait(IX_WARP);
}

/* 16 x 8 += 16 x 16 by 16 x 8: twice the half of the depth. */
static inline void ix_mma_halves(float *c, const float *a, const float *b)
{
    ix_mma<false>(c, a, b);
    ix_mma<false>(c, a + 4, b + 2);
}

static inline void ix_mma_f16(float *c, const uint16_t *a, const uint16_t *b)
{
    float x[8], y[4];
    for (unsigned n = 0; n < 8; ++n) {
        x[n] = ix_widen_f16(a[n]);
        y[n % 4] = ix_widen_f16(b[n % 4]);
    }
    ix_mma_halves(c, x, y);
}

static inline void ix_mma_bf16(float *c, const uint16_t *a, const uint16_t *b)
{
    float x[8], y[4];
    for (unsigned n = 0; n < 8; ++n) {
        x[n] = ix_from_bf16(a[n]);
        y[n % 4] = ix_from_bf16(b[n % 4]);
    }
    ix_mma_halves(c, x, y);
}

static inline void ix_mma_tf32(float *c, const float *a, const float *b)
{
    const float x[4] = {ix_to_tf32(a[0]), ix_to_tf32(a[1]), ix_to_tf32(a[2]), ix_to_tf32(a[3])};
    const float y[2] = {ix_to_tf32(b[0]), ix_to_tf32(b[1])};
    ix_mma<true>(c, x, y);
}

static inline float rsqrtf(float x)
{
    return 1.0F / sqrtf(x);
}

static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

static inline float normcdff(float x)
{
    return 0.5F * erfcf(-x * 0.70710678F);
}

static inline double normcdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752);
}
#endif
