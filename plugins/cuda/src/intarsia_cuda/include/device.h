/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels use beside CUDA itself, for a GPU. NVRTC has no headers of its own. */
#ifndef INTARSIA_DEVICE_H
#define INTARSIA_DEVICE_H

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

/* Shared memory whose size the launch names. */
extern __shared__ __align__(128) unsigned char ix_pool[];

#define INT8_MIN (-128)
#define INT16_MIN (-32768)
#define INT32_MIN (-2147483647 - 1)
#define INT64_MIN (-9223372036854775807LL - 1)
#define INT64_C(x) x##LL
#define UINT64_C(x) x##ULL
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)

/* The value of the thread `step` further on in the warp, all of whose threads call this. */
template <class T> static __device__ __forceinline__ T ix_shuffle_down(T value, int step)
{
    return __shfl_down_sync(0xffffffffU, value, step);
}

/* A product that is rounded: the compiler joins no sum to it. */
static __device__ __forceinline__ float ix_product(float a, float b)
{
    return __fmul_rn(a, b);
}

static __device__ __forceinline__ double ix_product(double a, double b)
{
    return __dmul_rn(a, b);
}

template <class T, class S> static __device__ __forceinline__ void ix_copy_16(T *to, const S *from)
{
    *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
}

/* Four matrices of 8 rows of 16 bytes, from shared memory to the registers of a warp: thread n names
   row n % 8 of matrix n / 8, and gets two halves, or one word, of row n / 4 of each. */
template <class T> static __device__ __forceinline__ void ix_ldmatrix(T *to, const T *row)
{
    uint32_t *r = reinterpret_cast<uint32_t *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/* The same of each matrix turned: rows become columns. */
static __device__ __forceinline__ void ix_ldmatrix_trans(uint16_t *to, const uint16_t *row)
{
    uint32_t *r = reinterpret_cast<uint32_t *>(to);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

#if __CUDA_ARCH__ >= 800
/* Copy 16 bytes to shared memory in the background; 0 if `inside` is 0. */
template <class T, class S>
static __device__ __forceinline__ void ix_async_16(T *to, const S *from, int inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

template <class T, class S>
static __device__ __forceinline__ void ix_async_4(T *to, const S *from, int inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}

/* What was started since the last call is a group. */
static __device__ __forceinline__ void ix_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait for all but the last groups; their number is a constant wherever this is called. */
static __device__ __forceinline__ void ix_async_wait(int groups)
{
    if (groups <= 0) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    } else if (groups == 1) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else if (groups == 2) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    } else if (groups == 3) {
        asm volatile("cp.async.wait_group 3;" ::: "memory");
    } else if (groups == 4) {
        asm volatile("cp.async.wait_group 4;" ::: "memory");
    } else if (groups == 5) {
        asm volatile("cp.async.wait_group 5;" ::: "memory");
    } else {
        asm volatile("cp.async.wait_group 6;" ::: "memory");
    }
}
#endif

static __device__ __forceinline__ float ix_widen_f16(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

/* To the nearest, ties to even. */
static __device__ __forceinline__ uint16_t ix_narrow_f16(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/* c[16][8] += a[16][16] * b[16][8], spread over the registers of a warp as PTX's mma.m16n8k16 says;
   where there is none, two of half the depth, whose registers are its first and second half. */
static __device__ __forceinline__ void ix_mma_f16(float *c, const uint16_t *a, const uint16_t *b)
{
    const uint32_t *x = reinterpret_cast<const uint32_t *>(a);
    const uint32_t *y = reinterpret_cast<const uint32_t *>(b);
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
#else
    for (int n = 0; n < 2; ++n) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(x[2 * n]), "r"(x[2 * n + 1]), "r"(y[n]));
    }
#endif
}

#if __CUDA_ARCH__ >= 800
static __device__ __forceinline__ void ix_mma_bf16(float *c, const uint16_t *a, const uint16_t *b)
{
    const uint32_t *x = reinterpret_cast<const uint32_t *>(a);
    const uint32_t *y = reinterpret_cast<const uint32_t *>(b);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
}

static __device__ __forceinline__ uint32_t ix_tf32(float value)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

static __device__ __forceinline__ void ix_mma_tf32(float *c, const float *a, const float *b)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(ix_tf32(a[0])), "r"(ix_tf32(a[1])), "r"(ix_tf32(a[2])), "r"(ix_tf32(a[3])),
          "r"(ix_tf32(b[0])), "r"(ix_tf32(b[1])));
}
#endif
#endif
