# SPDX-License-Identifier: Apache-2.0
"""The C functions that loops on bytes call by name, and what of the compiler's headers they need.

Each is written with Arm's M-profile vectors, with its DSP instructions where they help, and plain.
The compiler's own macros choose between the forms, so the same source is right on every processor.
"""

from __future__ import annotations

from collections.abc import Iterable

from intarsia.plugin import CodegenSignature
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Invoke
from intarsia_ir.tir.walk import statements

from .depthwise_micro_kernels import depthwise_micro_kernel_arguments, print_depthwise_micro_kernel
from .dot_micro_kernels import dot_micro_kernel_arguments, print_dot_micro_kernel

_INCLUDES = """\
#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#elif defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#endif
"""


def target_function(name: str) -> CodegenSignature | None:
    """Find a function that loops may call by name; ``None`` if C has none of it."""
    arguments = dot_micro_kernel_arguments(name) or depthwise_micro_kernel_arguments(name)
    return None if arguments is None else CodegenSignature(arguments)


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
        print_depthwise_micro_kernel(name)
        if dot_micro_kernel_arguments(name) is None
        else print_dot_micro_kernel(name)
        for name in sorted(names)
    ]
    return (_INCLUDES, *texts) if texts else ()
