/* Names of types and functions that the kernels use, in OpenCL C 1.2. */
typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;

#define INT8_MIN CHAR_MIN
#define INT16_MIN SHRT_MIN
#define INT32_MIN INT_MIN
#define INT64_MIN LONG_MIN
#define INT64_C(x) x##L
#define UINT64_C(x) x##UL
#define fmodf fmod

/* 16 bytes in one instruction, between memory of the device and of the item. */
typedef uint4 ix_16_bytes __attribute__((may_alias));
#define ix_load_16(to, from) \
    (*(__private ix_16_bytes *)(to) = *(__global const ix_16_bytes *)(from))
#define ix_store_16(to, from) \
    (*(__global ix_16_bytes *)(to) = *(__private const ix_16_bytes *)(from))
