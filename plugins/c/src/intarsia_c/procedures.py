# SPDX-License-Identifier: Apache-2.0
"""The C functions that loops on bytes call by name, and what of the compiler's headers they need.

Each is written with Arm's M-profile vectors, with its DSP instructions where they help, and plain.
The compiler's own macros choose between the forms, so the same source is right on every processor.
"""

from __future__ import annotations

from collections.abc import Iterable

from intarsia.plugin import Signature
from intarsia.tir.func import PrimFunc
from intarsia.tir.stmt import Invoke
from intarsia.tir.walk import statements

from .dots import dots_arguments, print_dots
from .taps import print_taps, taps_arguments

_INCLUDES = """\
#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#elif defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#endif
"""


def target_function(name: str) -> Signature | None:
    """Find a function that loops may call by name; ``None`` if C has none of it."""
    arguments = dots_arguments(name) or taps_arguments(name)
    return None if arguments is None else Signature(arguments)


def called(functions: Iterable[PrimFunc]) -> frozenset[str]:
    """Return the names of the functions of this module that kernels call."""
    return frozenset(
        stmt.function
        for function in functions
        for stmt in statements(function.body)
        if isinstance(stmt, Invoke) and target_function(stmt.function) is not None
    )


def print_procedures(names: Iterable[str]) -> tuple[str, ...]:
    """Return the text of some of the functions; the headers that they need first."""
    texts = [
        print_taps(name) if dots_arguments(name) is None else print_dots(name)
        for name in sorted(names)
    ]
    return (_INCLUDES, *texts) if texts else ()
