# SPDX-License-Identifier: Apache-2.0
"""Conversions of element types, those of eight bits and fewer included."""

from __future__ import annotations

from types import MappingProxyType

import ml_dtypes
import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, bits, narrow, narrow_formats, unary
from intarsia_runtime.dtype import DType

from ..builder import dtype_of
from ..context import Narrow, NodeContext
from ..tensors import element_type, stored_name


def cast(node: NodeContext) -> Expr | Narrow:
    """Convert Cast; ``to`` has been checked to be a number that names an element type.

    One of float16 to float16 stays until it is simplified away: it tells Softmax its precision.
    """
    code = node.integer("to")
    wanted = stored_name(code) or element_type(code, str(node.span))
    if wanted is DType.FLOAT16 and dtype_of(node.input(0)) is wanted:
        return node.call(unary.Cast, node.input(0), attrs=unary.Cast.Attrs(dtype=wanted))
    return _cast_to(node, wanted)


def cast_like(node: NodeContext) -> Expr | Narrow:
    """Convert CastLike."""
    like = node.stored(1)
    return _cast_to(node, dtype_of(node.input(1)) if like is None else like.name)


def bit_cast(node: NodeContext) -> Expr | Narrow:
    """Convert BitCast, of bytes that store narrow types too."""
    x, code, own = node.input(0), node.integer("to"), node.stored(0)
    name, kind = stored_name(code), dtype_of(x)
    wanted = DType.UINT8 if name else element_type(code, str(node.span))
    have = kind.bits if own is None else narrow_formats.width(own.name)
    want = narrow_formats.width(name) if name else wanted.bits
    if have != want:
        raise node.model_error(f"cannot read {have} bits as {want}: the widths differ")
    if wanted is DType.BOOL and kind is not wanted:
        raise node.unsupported(f"BitCast of {kind} to bool, whose bytes are 0 and 1")
    value = node.call(bits.Bitcast, x, attrs=bits.Bitcast.Attrs(dtype=wanted))
    return Narrow(value, narrow_formats.stored_type(name)) if name else value


def _cast_to(node: NodeContext, wanted: DType | str) -> Expr | Narrow:
    """Convert to an element type, or to one that is stored in bytes, given by its name."""
    x, own = node.input(0), node.stored(0)
    if own is not None and own.name == wanted:
        return Narrow(x, own)
    if isinstance(wanted, DType):
        return node.cast(x, wanted) if own is None else _decoded(node, x, own, wanted)
    if own is not None:
        x = _decoded(node, x, own)
    saturate = bool(node.integer("saturate", 1))
    rounding = node.string("round_mode", "up")
    if rounding not in narrow_formats.ROUNDINGS:
        raise node.model_error(f"round_mode='{rounding}' is none of {narrow_formats.ROUNDINGS}")
    return _encoded(node, x, wanted, saturate=saturate, rounding=rounding)


def _decoded(node: NodeContext, x: Expr, stored: np.dtype, dtype: DType = DType.FLOAT32) -> Expr:
    """Return the numbers that bytes stand for."""
    attrs = narrow.Decode.Attrs(format=stored.name, dtype=dtype)
    return node.call(narrow.Decode, x, attrs=attrs)


def _encoded(
    node: NodeContext, x: Expr, name: str, *, saturate: bool = True, rounding: str = "up"
) -> Narrow:
    """Return numbers as bytes of a narrow element type; integers are taken as float32 first,
    unless the narrow ones are integers, too.
    """
    if not dtype_of(x).is_float and (
        name not in narrow_formats.INTEGERS or dtype_of(x) is DType.BOOL
    ):
        x = node.cast(x, DType.FLOAT32)
    attrs = narrow.Encode.Attrs(format=name, saturate=saturate, rounding=rounding)
    return Narrow(node.call(narrow.Encode, x, attrs=attrs), narrow_formats.stored_type(name))


def dequantize_narrow(node: NodeContext, x: Expr, scale: Expr, zero: Expr | None) -> Expr:
    """Return ``(x - zero) * scale`` in float32, of what the bytes stand for.

    Args:
        node: The node; its zero point is operand 2.
        x: Bytes of the type that operand 0 stores.
        scale: In a shape that broadcasts.
        zero: Bytes in the shape of the scale.

    Raises:
        ModelError: The zero point stores another type.
    """
    stored = node.stored(0)
    assert stored is not None
    value = _decoded(node, x, stored)
    if zero is not None:
        value = node.call(binary.Subtract, value, _zero(node, zero, stored))
    return node.call(binary.Multiply, value, node.cast(scale, DType.FLOAT32))


def quantize_narrow(node: NodeContext, name: str, scale: Expr, zero: Expr | None) -> Narrow:
    """Return ``x / scale + zero`` of float32 as a narrow type, rounded once.

    Integers are rounded before the zero point and limited after it.

    Args:
        node: The node; its data are operand 0, its zero point operand 2.
        name: NumPy's name of the type.
        scale: float32, in a shape that broadcasts.
        zero: Bytes in the shape of the scale.

    Raises:
        ModelError: The zero point stores another type.
    """
    wanted = narrow_formats.stored_type(name)
    value = node.call(binary.Divide, node.cast(node.input(0), DType.FLOAT32), scale)
    limits = ml_dtypes.iinfo(wanted) if name in narrow_formats.INTEGERS else None
    if limits is not None:
        value = node.call(unary.Round, value)
    if zero is not None:
        value = node.call(binary.Add, value, _zero(node, zero, wanted))
    if limits is not None:
        attrs = unary.Clip.Attrs(min=float(limits.min), max=float(limits.max))
        value = node.call(unary.Clip, value, attrs=attrs)
    return _encoded(node, value, name, saturate=bool(node.integer("saturate", 1)))


def _zero(node: NodeContext, zero: Expr, stored: np.dtype) -> Expr:
    if node.stored(2) != stored:
        raise node.model_error(f"a zero point that is not {stored.name}, as its tensor is")
    return _decoded(node, zero, stored)


CONVERTERS = MappingProxyType({"BitCast": bit_cast, "Cast": cast, "CastLike": cast_like})
