# SPDX-License-Identifier: Apache-2.0
"""The bits of numbers, read as another element type of the same width."""

from __future__ import annotations

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import PrimExpr, cast, intrinsic, select
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute
from .arrays import Array, numpy_dtype
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import operands

_UNSIGNED = {16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}
_FULL = 13
"""How many more bits the fraction of a float32 has than that of a float16."""
_REBIAS = (127 - 15) << 10
"""What the exponent of a float32 is above that of the same float16, at its place there."""


@operator("bitcast", OpKind.ELEMWISE)
class Bitcast(Op):
    """The same bits as another element type of as many; NaN of 16 bits may become another NaN."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``dtype``: element type of the result."""

        dtype: DType

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The shape of the operand."""
        (x,) = operands(cls.name, types, 1)
        if x.dtype.bits != attrs.dtype.bits:
            raise TypeRuleError(f"{cls.name}: {x.dtype} and {attrs.dtype} differ in width")
        if attrs.dtype is DType.BOOL and x.dtype is not DType.BOOL:
            raise TypeRuleError(f"{cls.name}: not every {x.dtype} has the bits of a bool")
        return x.with_dtype(attrs.dtype)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """A view of the array."""
        return x.view(numpy_dtype(attrs.dtype))

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Floats by way of an unsigned integer; conversions of integers keep the bits."""

        def element(*indices: PrimExpr) -> PrimExpr:
            value, dtype = x[indices], attrs.dtype
            if value.dtype is dtype:
                return value
            number = _bits_of(value) if value.dtype.is_float else value
            return _of_bits(number, dtype) if dtype.is_float else cast(number, dtype)

        return compute(x.shape, element, name="bitcast")


def _bits_of(x: PrimExpr) -> PrimExpr:
    """Return the bits of a float as an unsigned integer of its width.

    A float16 has the bits of the float32 of its value, shifted, with another bias; what is less
    than the smallest normal number counts units of ``2**-24``.
    """
    unsigned = _UNSIGNED[x.dtype.bits]
    if x.dtype.bits > 16:
        return cast(intrinsic(Intrinsic.BITS, x), unsigned)
    value = cast(x, DType.FLOAT32)
    bits = cast(intrinsic(Intrinsic.BITS, value), DType.UINT32)
    if x.dtype is DType.BFLOAT16:
        return cast(bits >> 16, unsigned)
    size = bits & 0x7FFFFFFF
    normal = (size >> _FULL) - _REBIAS
    tiny = cast(intrinsic(Intrinsic.ABS, value) * 2.0**24, DType.UINT32)
    special = (size >> _FULL) - ((255 - 31) << 10)
    code = select(size < 113 << 23, tiny, select(size >= 255 << 23, special, normal))
    return cast(code | ((bits >> 16) & 0x8000), unsigned)


def _of_bits(x: PrimExpr, dtype: DType) -> PrimExpr:
    """Return the float whose bits an integer has."""
    if dtype.bits > 16:
        return intrinsic(Intrinsic.FROM_BITS, x)
    bits = cast(cast(x, DType.UINT16), DType.UINT32)
    if dtype is DType.BFLOAT16:
        return cast(intrinsic(Intrinsic.FROM_BITS, bits * (1 << 16)), dtype)
    size = bits & 0x7FFF
    normal = size * (1 << _FULL) + (_REBIAS << _FULL)
    special = size * (1 << _FULL) + ((255 - 31) << 23)
    wide = intrinsic(Intrinsic.FROM_BITS, select(size >= 31 << 10, special, normal))
    tiny = cast(size, DType.FLOAT32) * 2.0**-24
    value = select(size < 1 << 10, tiny, wide)
    return cast(select((bits & 0x8000) < 1, value, value * -1.0), dtype)


DERIVATIVES.refuse("bits have no slope", Bitcast)
INTEGER_FORMS.refuse("bits are not scaled", Bitcast)
