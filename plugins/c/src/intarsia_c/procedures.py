# SPDX-License-Identifier: Apache-2.0
"""The C functions that loops on bytes call by name, and what of the compiler's headers they need.

Each is written with Arm's M-profile vectors, with its DSP instructions where they help, and plain.
The compiler's own macros choose between the forms, so the same source is right on every processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from intarsia.plugin import CodegenSignature
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Invoke
from intarsia_ir.tir.walk import statements

from .depthwise_kernels import depthwise_kernel_arguments, print_depthwise_kernel
from .depthwise_micro_kernels import depthwise_micro_kernel_arguments, print_depthwise_micro_kernel
from .dot_micro_kernels import DOTS, print_dot_micro_kernel
from .float_micro_kernels import PRODUCTS, print_float_micro_kernel
from .row_kernels import print_row_kernel, row_kernel_arguments
from .row_panels import panel_arguments, panel_helpers, print_panel, print_panel_helper
from .spelling import C99
from .tile_functions import NamedTile, TileFunctions
from .vector_dot_kernels import (
    VECTOR_DOTS,
    VECTOR_INCLUDES,
    print_vector_dot_kernel,
)

_INCLUDES = """\
#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#elif defined(__ARM_FEATURE_SIMD32)
#include <arm_acle.h>
#endif
/* These loops take all registers; where GCC does not optimize, it keeps one for itself. */
#if defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__) && defined(__OPTIMIZE__)
#define IX_SIMD32
#endif
"""


class _Family(Struct, frozen=True):
    """Functions whose names say what they do.

    Attributes:
        arguments: How many arguments a function takes; ``None`` if its name is of another family.
        text: The text of a function.
    """

    arguments: Callable[[str], int | None]
    text: Callable[[str], str]


def _of_tiles(functions: TileFunctions, text: Callable[[NamedTile], str]) -> _Family:
    """Return functions that multiply tiles; ``text`` is that of one of them."""

    def print_one(name: str) -> str:
        shape = functions.shape(name)
        assert shape is not None  # as of every name of the family
        return text(shape)

    return _Family(functions.arguments, print_one)


_FAMILIES = (
    _of_tiles(DOTS, print_dot_micro_kernel),
    _Family(depthwise_micro_kernel_arguments, print_depthwise_micro_kernel),
    _of_tiles(PRODUCTS, print_float_micro_kernel),
    _Family(row_kernel_arguments, print_row_kernel),
    _Family(depthwise_kernel_arguments, print_depthwise_kernel),
    _Family(panel_arguments, print_panel),
    _of_tiles(VECTOR_DOTS, print_vector_dot_kernel),
)


def target_function(name: str) -> CodegenSignature | None:
    """Find a function that loops may call by name; ``None`` if C has none of it."""
    family = _family(name)
    arguments = None if family is None else family.arguments(name)
    return None if arguments is None else CodegenSignature(arguments)


def _family(name: str) -> _Family | None:
    return next((family for family in _FAMILIES if family.arguments(name) is not None), None)


def called(functions: Iterable[PrimFunc]) -> frozenset[str]:
    """Return the names of the functions of this module that kernels call."""
    return frozenset(
        stmt.function
        for function in functions
        for stmt in statements(function.body)
        if isinstance(stmt, Invoke) and target_function(stmt.function) is not None
    )


def print_procedures(names: Iterable[str], *, declared: bool = False) -> tuple[str, ...]:
    """Return the text of some of the functions; the headers that they need first.

    Args:
        names: The functions.
        declared: Whether another source has those that are not written out where they are called.
    """
    wanted = sorted(names)
    shared = shared_procedures(wanted) if declared else ()
    own = [name for name in wanted if name not in shared]
    helpers = sorted({helper for name in own for helper in panel_helpers(name)})
    texts = [print_panel_helper(helper) for helper in helpers]
    texts += [_text(name) for name in own]
    has_vectors = any(VECTOR_DOTS.shape(name) is not None for name in wanted)
    includes = (VECTOR_INCLUDES if has_vectors else _INCLUDES,) if texts else ()
    heads = [declaration(_text(name)[_text(name).index(_SHARED) :]) for name in shared]
    return (*includes, *heads, *texts)


def shared_procedures(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the functions that are not written out where they are called."""
    return tuple(name for name in sorted(names) if _SHARED in _text(name))


def declaration(text: str) -> str:
    """Return the head of a function alone."""
    return text[: text.index("\n{")] + ";\n"


_SHARED = f"{C99.kernel} "


def _text(name: str) -> str:
    family = _family(name)
    return "" if family is None else family.text(name)
