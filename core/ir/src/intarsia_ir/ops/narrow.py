# SPDX-License-Identifier: Apache-2.0
"""Numbers of eight bits and fewer as bytes: compiled code computes with what they stand for.

A tensor of ``float8_e4m3fn``, ``int4`` ... is a tensor of ``uint8`` here, one number a byte, as
ml_dtypes has them; unused upper bits are 0 in results and ignored in operands. Powers of two make
everything exact but the one rounding, so no bits of floats are looked at.
"""

from __future__ import annotations

import numpy as np

from intarsia_runtime.artifact.plan import NARROW
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import BinaryOp, PrimExpr, binary, cast, const, equal, intrinsic, minimum, select
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute
from .arrays import Array, convert
from .derivative import DERIVATIVES
from .elements import wide
from .narrow_formats import (
    EXPONENTS,
    FLOATS,
    INTEGERS,
    ROUNDINGS,
    FloatFormat,
    stored_type,
    to_narrow,
)
from .type_rules import check_dtype, is_float, is_number, operands


def _check_format(name: str, format_name: str) -> None:
    if format_name not in NARROW:
        raise TypeRuleError(f"{name}: no narrow element type '{format_name}'")


@operator("narrow.encode", OpKind.ELEMWISE)
class Encode(Op):
    """Bytes of the nearest numbers of a narrow type, ties to even; of integers the lowest bits."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``format``: NumPy's name of the type. ``saturate``: the largest number for what is too
        large. ``rounding``: of exponents alone, one of :data:`ROUNDINGS`.
        """

        format: str
        saturate: bool = True
        rounding: str = "up"

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The shape of the operand, in bytes."""
        (x,) = operands(cls.name, types, 1)
        _check_format(cls.name, attrs.format)
        if attrs.rounding not in ROUNDINGS:
            raise TypeRuleError(f"{cls.name}: rounding '{attrs.rounding}'")
        integers = attrs.format in INTEGERS
        check_dtype(cls.name, is_number if integers else is_float, "number", x)
        return x.with_dtype(DType.UINT8)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """As ml_dtypes converts."""
        dtype = stored_type(attrs.format)
        found = to_narrow(x, dtype, saturate=attrs.saturate, round_mode=attrs.rounding)
        return np.ascontiguousarray(found).view(np.uint8)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Scale into ``[1, 2)`` by powers of two, then round to the last bit of the mantissa."""

        def element(*indices: PrimExpr) -> PrimExpr:
            value = wide(x[indices])
            if attrs.format in INTEGERS:
                ones = (1 << INTEGERS[attrs.format]) - 1
                whole = cast(value, DType.INT64) if value.dtype.is_float else value
                return cast(whole & const(ones, whole.dtype), DType.UINT8)
            if attrs.format == EXPONENTS:
                return _exponent_code(cast(value, DType.FLOAT32), attrs.rounding)
            return _float_code(value, FLOATS[attrs.format], saturate=attrs.saturate)

        return compute(x.shape, element, name="encode")


def _scaled(size: PrimExpr, steps: tuple[int, ...]) -> tuple[PrimExpr, PrimExpr]:
    """Halve a number ``>= 1`` until it is below 2; return it and how often it was halved."""
    halved: PrimExpr = const(0, DType.INT32)
    for step in steps:
        large = size >= const(2.0**step, size.dtype)
        size = select(large, size * const(2.0**-step, size.dtype), size)
        halved = halved + select(large, const(step, DType.INT32), const(0, DType.INT32))
    return size, halved


def _float_code(x: PrimExpr, format_: FloatFormat, *, saturate: bool) -> PrimExpr:
    """Subnormal numbers stay below 1 when scaled; their code is the rest of the mantissa."""
    least = 1 - format_.bias  # the exponent of the smallest normal number
    size = intrinsic(Intrinsic.ABS, x)
    bounded = minimum(size, const(2.0 ** (31 + least), x.dtype))  # above all that is finite
    scaled, exponent = _scaled(bounded * const(2.0**-least, x.dtype), (16, 8, 4, 2, 1))
    last = 1 << format_.mantissa
    rounded = intrinsic(Intrinsic.ROUND, scaled * const(float(last), x.dtype))
    code = cast(rounded, DType.INT32) + exponent * last
    if saturate or format_.nan is None:
        code = minimum(code, const(format_.largest, DType.INT32))
    else:
        above = const(format_.overflow, DType.INT32)
        code = select(code > const(format_.largest, DType.INT32), above, code)
    sign = select(
        intrinsic(Intrinsic.SIGNBIT, x),
        const(format_.sign, DType.INT32),
        const(0, DType.INT32),
    )
    none = const(0, DType.INT32)
    signed = code | sign
    code = signed if format_.negative_zero else select(equal(code, none), none, signed)
    if format_.nan is None:  # what ml_dtypes gives: zero, of the other sign
        nan = binary(BinaryOp.XOR, sign, const(format_.sign, DType.INT32))
    else:
        nan = const(format_.nan, DType.INT32) | sign
    return cast(select(intrinsic(Intrinsic.ISNAN, x), nan, code), DType.UINT8)


def _exponent_code(x: PrimExpr, rounding: str) -> PrimExpr:
    """The exponent of the size plus 127, and one more if the rounding says so."""
    size = intrinsic(Intrinsic.ABS, x)
    large = size >= const(1.0, x.dtype)
    start = select(large, size, size * const(2.0**126, x.dtype))
    scaled, halved = _scaled(start, (64, 32, 16, 8, 4, 2, 1))
    first = select(large, const(127, DType.INT32), const(1, DType.INT32))
    normal = scaled >= const(1.0, x.dtype)
    exponent = select(normal, first + halved, const(0, DType.INT32))
    limit = 1.0 if rounding == "up" else 1.5
    over = scaled > const(limit, x.dtype) if rounding == "up" else scaled >= const(limit, x.dtype)
    low = 0.0 if rounding == "up" else 0.5
    under = scaled > const(low, x.dtype) if rounding == "up" else scaled >= const(low, x.dtype)
    if rounding != "down":
        one, zero = const(1, DType.INT32), const(0, DType.INT32)
        exponent = exponent + select(normal, select(over, one, zero), select(under, one, zero))
    code = minimum(exponent, const(254, DType.INT32))
    nan = const(255, DType.INT32)
    return cast(select(intrinsic(Intrinsic.ISNAN, x), nan, code), DType.UINT8)


@operator("narrow.decode", OpKind.ELEMWISE)
class Decode(Op):
    """The numbers that bytes of a narrow type stand for; every one is a float32."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``format``: NumPy's name of the type. ``dtype``: element type of the result."""

        format: str
        dtype: DType = DType.FLOAT32

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The shape of the operand, which are bytes."""
        (x,) = operands(cls.name, types, 1)
        _check_format(cls.name, attrs.format)
        if x.dtype is not DType.UINT8:
            raise TypeRuleError(f"{cls.name}: {attrs.format} is stored in uint8, not {x.dtype}")
        return x.with_dtype(attrs.dtype)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """As ml_dtypes converts."""
        low = x & np.uint8(0xF) if attrs.format.startswith("float4") else x
        narrow = np.ascontiguousarray(low).view(stored_type(attrs.format))
        if attrs.format in INTEGERS:
            return convert(narrow.astype(np.int8), attrs.dtype)
        number = narrow.astype(np.float32)
        return number if attrs.dtype is DType.FLOAT32 else convert(number, attrs.dtype)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """The mantissa times a product of powers of two, one for each bit of the exponent."""

        def element(*indices: PrimExpr) -> PrimExpr:
            code = cast(x[indices], DType.INT32)
            if attrs.format in INTEGERS:
                return cast(_integer(code, attrs.format), attrs.dtype)
            if attrs.format == EXPONENTS:
                value = _power(code, 8, -127)
                nan = equal(code, const(255, DType.INT32))
                return cast(select(nan, const(np.nan, DType.FLOAT32), value), attrs.dtype)
            return cast(_float_value(code, FLOATS[attrs.format]), attrs.dtype)

        return compute(x.shape, element, name="decode")


def _integer(code: PrimExpr, name: str) -> PrimExpr:
    half = 1 << (INTEGERS[name] - 1)
    low = code & const(2 * half - 1, DType.INT32)
    if name.startswith("u"):
        return low
    return binary(BinaryOp.XOR, low, const(half, DType.INT32)) - half


def _power(exponent: PrimExpr, bits: int, start: int) -> PrimExpr:
    """Return ``2 ** (exponent + start)``, exactly."""
    result: PrimExpr = const(2.0**start, DType.FLOAT32)
    for bit in range(bits):
        chosen = (exponent & const(1 << bit, DType.INT32)) > const(0, DType.INT32)
        factor = const(2.0 ** min(1 << bit, 64), DType.FLOAT32)
        raised = result * factor
        result = select(chosen, raised if bit < 7 else raised * factor, result)  # 2**128 is none
    return result


def _float_value(code: PrimExpr, format_: FloatFormat) -> PrimExpr:
    size = code & const(format_.sign - 1, DType.INT32)
    exponent = size // (1 << format_.mantissa)
    mantissa = size & const((1 << format_.mantissa) - 1, DType.INT32)
    normal = exponent > const(0, DType.INT32)
    whole = select(normal, mantissa + (1 << format_.mantissa), mantissa)
    above = select(normal, exponent - 1, exponent)
    power = _power(above, 5, 1 - format_.bias - format_.mantissa)
    value: PrimExpr = cast(whole, DType.FLOAT32) * power
    nan = const(np.nan, DType.FLOAT32)
    if format_.negative_zero and format_.nan is not None:
        value = select(size > const(format_.largest, DType.INT32), nan, value)
        if format_.overflow < format_.nan:
            infinite = equal(size, const(format_.overflow, DType.INT32))
            value = select(infinite, const(np.inf, DType.FLOAT32), value)
    negative = (code & const(format_.sign, DType.INT32)) > const(0, DType.INT32)
    value = value * select(negative, const(-1.0, DType.FLOAT32), const(1.0, DType.FLOAT32))
    if not format_.negative_zero:
        value = select(equal(code, const(format_.sign, DType.INT32)), nan, value)
    return value


DERIVATIVES.refuse("numbers of a narrow format change by jumps", Encode, Decode)
