# SPDX-License-Identifier: Apache-2.0
"""C99's names of types and machine functions."""

from __future__ import annotations

from intarsia_loops.codegen.c_math import MATH, by_type, of_both_types
from intarsia_loops.codegen.spelling import MEMORY_TYPES, VALUE_TYPES, Spelling

_MORE = ("fmod", "lgamma", "nextafter", "remainder", "tgamma")

KERNEL = """\
/* A kernel that is called once would be written out where it is called; the many variables around
   it would take the registers of its loops. */
#if defined(__GNUC__)
#define IX_KERNEL static __attribute__((noinline)) void
#else
#define IX_KERNEL static void
#endif
/* A loop over few lanes that is written out early leaves GCC nothing to make vectors of. Without
   vectors, sums are in registers only where it is written out. */
#if defined(__GNUC__) && !defined(__clang__) && (defined(__SSE2__) || defined(__ARM_NEON))
#define IX_LANES _Pragma("GCC unroll 1")
#elif defined(__GNUC__) && !defined(__clang__) && !defined(__OPTIMIZE_SIZE__) && \\
    defined(__ARM_ARCH_PROFILE) && __ARM_ARCH_PROFILE == 'M' && defined(__ARM_FP) && \\
    !defined(__ARM_FEATURE_MVE)
#define IX_LANES _Pragma("GCC unroll 4")
#else
#define IX_LANES
#endif
"""
"""How kernels and loops over lanes begin."""

SHARED_KERNEL = KERNEL.replace(
    "static __attribute__((noinline))", '__attribute__((noinline, visibility("hidden")))'
).replace("static void", "void")
"""The same where other objects of a library call the kernels."""

C99 = Spelling(
    kind="c",
    values=VALUE_TYPES,
    memory=MEMORY_TYPES,
    intrinsics=by_type(MATH),
    functions=of_both_types((*MATH.values(), *_MORE)),
    kernel="IX_KERNEL",
    lanes="IX_LANES",
    for_m_profile=True,
)
"""What portable C calls things; nothing beyond ``<stdint.h>`` and ``<math.h>``."""
