# SPDX-License-Identifier: Apache-2.0
"""One operation of the loop IR on operands that are text already."""

from __future__ import annotations

import re
from collections.abc import Sequence

from intarsia_ir.tir.expr import COMPARISONS, BinaryOp
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from .c_functions import Functions
from .spelling import computed, float_literal

HALVES = (DType.FLOAT16, DType.BFLOAT16)
"""Types that are computed as float32 and rounded after every operation."""

PLAIN = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL})
EXTREMES = frozenset({BinaryOp.MIN, BinaryOp.MAX})
_BITS = frozenset({BinaryOp.AND, BinaryOp.OR, BinaryOp.XOR})
_INTEGER_DIVISIONS = frozenset(
    {BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD}
)
_OF_BOOL = {
    BinaryOp.ADD: "|",
    BinaryOp.MAX: "|",
    BinaryOp.MUL: "&",
    BinaryOp.MIN: "&",
    BinaryOp.AND: "&",
    BinaryOp.OR: "|",
    BinaryOp.XOR: "^",
}

_CALL = re.compile(r"\w\(")


def combine(functions: Functions, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
    """Return ``a op b`` of two operands of an element type.

    Raises:
        UnsupportedError: The operator has no meaning for the type.
    """
    if op in COMPARISONS:
        return f"({a} {op.value} {b})"
    if dtype is DType.BOOL:
        if op in _OF_BOOL:
            # Compilers suspect that & of comparisons with calls in them was meant to be &&.
            left = f"(int){a}" if _CALL.search(a) or _CALL.search(b) else a
            return f"({left} {_OF_BOOL[op]} {b})"
    elif op in EXTREMES:
        return f"{functions.extreme(op, dtype)}({a}, {b})"
    elif dtype.is_float:
        if op in PLAIN or op is BinaryOp.DIV:
            return rounded(functions, f"({a} {op.value} {b})", dtype)
        if op in _INTEGER_DIVISIONS:
            return rounded(functions, _float_division(functions, op, dtype, a, b), dtype)
    elif op in PLAIN or op in _BITS:
        return _wrapping(functions, op, dtype, a, b)
    elif op in (BinaryOp.SHL, BinaryOp.SHR):
        return f"{functions.shift(op, dtype)}({a}, {b})"
    elif op in _INTEGER_DIVISIONS:
        return f"{functions.divide(op, dtype)}({a}, {b})"
    raise UnsupportedError(f"operator '{op.value}' on {dtype} has no meaning")


def _wrapping(functions: Functions, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
    """Integers are computed unsigned, where C lets them wrap."""
    kind, wide = functions.spelling.values[dtype], functions.unsigned(dtype)
    if kind == wide:
        return f"({a} {op.value} {b})"
    if op in _BITS:
        return f"({kind})({a} {op.value} {b})"
    return f"({kind})(({wide}){a} {op.value} ({wide}){b})"


def _float_division(functions: Functions, op: BinaryOp, dtype: DType, a: str, b: str) -> str:
    if op in (BinaryOp.FLOOR_DIV, BinaryOp.TRUNC_DIV):
        whole = Intrinsic.FLOOR if op is BinaryOp.FLOOR_DIV else Intrinsic.TRUNC
        quotient = rounded(functions, f"({a} / {b})", dtype)
        return f"{function_of(functions, whole, dtype)}({quotient})"
    fmod = "fmod" if dtype is DType.FLOAT64 else "fmodf"
    if op is BinaryOp.TRUNC_MOD:
        return f"{fmod}({a}, {b})"
    return f"{functions.divide_float(op, dtype, fmod)}({a}, {b})"


def rounded(functions: Functions, text: str, dtype: DType) -> str:
    """Round a value to its element type, if it is computed in a wider one."""
    return f"{functions.round_float16(dtype)}({text})" if dtype in HALVES else text


def narrowed(functions: Functions, text: str, dtype: DType) -> str:
    """Undo C's promotion to int of what is narrower."""
    narrow = dtype.is_integer and dtype.bits < 32
    return f"({functions.spelling.values[dtype]}){text}" if narrow else text


def convert(functions: Functions, text: str, source: DType, target: DType) -> str:
    """Convert an operand as :class:`~intarsia_ir.tir.expr.Cast` says."""
    if source is target:
        return text
    if target is DType.BOOL:
        zero = float_literal(0.0, source) if source.is_float else "0"
        return f"({text} != {zero})"
    if source.is_float and target.is_integer:
        return f"{functions.truncate(source, target)}({text})"
    if target is DType.FLOAT16 and source is DType.FLOAT64:
        return rounded(functions, f"{functions.narrow_to_odd()}({text})", target)
    kinds = functions.spelling.values
    if kinds[target] != kinds[source]:
        text = f"({kinds[target]}){text}"
    return rounded(functions, text, target) if target.is_float else text


def function_of(functions: Functions, intrinsic: Intrinsic, dtype: DType) -> str:
    """Return the language's own function.

    Raises:
        UnsupportedError: There is none for the type.
    """
    name = functions.spelling.intrinsics.get((intrinsic, computed(dtype)))
    if name is None:
        raise UnsupportedError(f"intrinsic '{intrinsic.value}' of {dtype}")
    return name


def apply_intrinsic(
    functions: Functions, intrinsic: Intrinsic, dtype: DType, args: Sequence[str]
) -> str:
    """Apply a machine function to operands of an element type.

    Raises:
        UnsupportedError: The language has no such function for the type.
    """
    match intrinsic:
        case Intrinsic.ISNAN if dtype.is_float:
            return f"({args[0]} != {args[0]})"
        case Intrinsic.ISINF if dtype.is_float:
            infinity = float_literal(float("inf"), dtype)
            return f"({function_of(functions, Intrinsic.ABS, dtype)}({args[0]}) == {infinity})"
        case Intrinsic.ISFINITE if dtype.is_float:
            infinity = float_literal(float("inf"), dtype)
            return f"({function_of(functions, Intrinsic.ABS, dtype)}({args[0]}) < {infinity})"
        case Intrinsic.SIGNBIT if dtype.is_float:
            one, zero = float_literal(1.0, dtype), float_literal(0.0, dtype)
            copied = f"{function_of(functions, Intrinsic.COPYSIGN, dtype)}({one}, {args[0]})"
            return f"({copied} < {zero})"
        case Intrinsic.BITS | Intrinsic.FROM_BITS:
            return f"{functions.reinterpret(dtype, intrinsic.result(dtype))}({args[0]})"
        case Intrinsic.ABS if dtype.is_unsigned:
            return args[0]
        case Intrinsic.ABS if dtype.is_signed:
            return f"{functions.absolute(dtype)}({args[0]})"
        case Intrinsic.POW if dtype.is_integer:
            return f"{functions.power(dtype)}({', '.join(args)})"
        case _:
            text = f"{function_of(functions, intrinsic, dtype)}({', '.join(args)})"
            return rounded(functions, text, dtype)
