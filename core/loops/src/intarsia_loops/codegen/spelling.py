# SPDX-License-Identifier: Apache-2.0
"""What languages of the C family spell differently: the table that a backend fills in."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Thread
from intarsia_runtime.dtype import DType

SHORT: Mapping[DType, str] = MappingProxyType(
    {dtype: re.sub("(?<=[a-z])[a-z]+(?=[0-9])", "", dtype.value) for dtype in DType}
    | {DType.BFLOAT16: "bf16"}
)
"""Element type to its name in the names of functions: ``i8``, ``u32``, ``f32``, ``bf16``."""

_INTEGERS = {dtype: f"{dtype.value}_t" for dtype in DType if dtype.is_integer}
_FLOATS = {DType.FLOAT32: "float", DType.FLOAT64: "double"}

VALUE_TYPES: Mapping[DType, str] = MappingProxyType(
    _INTEGERS | _FLOATS | {DType.BOOL: "int", DType.FLOAT16: "float", DType.BFLOAT16: "float"}
)
"""Element type to the type of a value in C and in C++."""

MEMORY_TYPES: Mapping[DType, str] = MappingProxyType(
    _INTEGERS
    | _FLOATS
    | {DType.BOOL: "uint8_t", DType.FLOAT16: "uint16_t", DType.BFLOAT16: "uint16_t"}
)
"""Element type to the type of an element in memory, in C and in C++."""


class Spelling(Struct, frozen=True):
    """Names of types and functions, and the words around them.

    Attributes:
        kind: Name of the backend, for calls of its own functions.
        values: Element type to the type of a value in an expression. The 16-bit floats are computed
            as float32 and rounded after every operation.
        memory: Element type to the type of an element in memory.
        intrinsics: Machine function and type of its value to the function that computes it; one
            that is not here has no spelling.
        functions: Names that a kernel may call with ``CallTarget``.
        index: Signed type as wide as an address: of loop variables and positions in buffers.
        size: Type of the size variables that a kernel is given; that of positions if empty.
        inline: In front of a small function.
        kernel: In front of a kernel.
        restrict: Behind the star of a pointer that nothing else points into.
        space: In front of what a kernel's pointer points to: the address space of its buffers.
        local: In front of an array of one thread.
        shared: In front of an array of a block of threads; empty if there are no such blocks.
        pool: Bytes of a block of threads that its arrays lie in; each is declared alone if empty.
        barrier: Statement at which the threads of a block wait for each other.
        threads: Numbers of the blocks and threads that run the iterations of a BOUND loop.
        unroll: Line in front of a loop that the compiler shall write out; none if empty.
        lanes: Word in front of a loop over few lanes that the compiler shall not write out before
            it looks for vectors; none if empty.
        vector_bytes: Bytes of a register that a vector type of GNU C fills; 0 leaves vectors to the
            compiler.
        reserved: Words that no variable is called, besides C's and the functions above.
        for_m_profile: Whether compilers for Arm's M profile read it too: a function may have a form
            of that profile's instructions.
    """

    kind: str
    values: Mapping[DType, str]
    memory: Mapping[DType, str]
    intrinsics: Mapping[tuple[Intrinsic, DType], str]
    functions: frozenset[str] = field(default_factory=frozenset[str])
    index: str = "intptr_t"
    size: str = ""
    inline: str = "static inline"
    kernel: str = "static void"
    restrict: str = "restrict"
    space: str = ""
    local: str = ""
    shared: str = ""
    pool: str = ""
    barrier: str = ""
    threads: Mapping[Thread, str] = field(default_factory=lambda: MappingProxyType({}))
    unroll: str = ""
    lanes: str = ""
    vector_bytes: int = 0
    reserved: frozenset[str] = field(default_factory=frozenset[str])
    for_m_profile: bool = False


def computed(dtype: DType) -> DType:
    """Return the type that values of an element type are computed in."""
    return DType.FLOAT32 if dtype in (DType.FLOAT16, DType.BFLOAT16) else dtype


def float_literal(value: float, dtype: DType) -> str:
    """Return a constant that reads back as exactly ``value``, rounded to ``dtype``."""
    single = computed(dtype) is DType.FLOAT32
    if value != value:
        return "NAN" if single else "(double)NAN"
    if value in (float("inf"), float("-inf")):
        text = "INFINITY" if value > 0 else "(-INFINITY)"
        return text if single else f"(double){text}"
    text = repr(value)
    if single:
        value = _single(value)
        text = next(
            t for t in (f"{value:.{n}g}" for n in range(1, 10)) if _single(float(t)) == value
        )
    text = text if "." in text or "e" in text else f"{text}.0"
    text = f"{text}f" if single else text
    return f"({text})" if text.startswith("-") else text


def _single(value: float) -> float:
    return ctypes.c_float(value).value


def int_literal(value: int, dtype: DType) -> str:
    """Return a constant of an integer or bool type; ``value`` wraps to its width."""
    if dtype is DType.BOOL:
        return str(int(bool(value)))
    value &= (1 << dtype.bits) - 1
    if dtype.is_unsigned:
        return f"{value}U" if dtype.bits <= 32 else f"UINT64_C({value})"
    if value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    if value == -(1 << (dtype.bits - 1)):
        return f"INT{dtype.bits}_MIN"
    text = str(abs(value)) if dtype.bits <= 32 else f"INT64_C({abs(value)})"
    return f"(-{text})" if value < 0 else text
