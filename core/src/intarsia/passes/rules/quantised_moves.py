# SPDX-License-Identifier: Apache-2.0
"""Move dequantization behind, and quantization before, operators that integers pass unchanged.

These are operators that move elements, and those that pick the largest: scales are positive, so the
order of the real numbers is that of the integers. Every rule keeps each bit of the result.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np
from msgspec.structs import replace

from ...ir.expr import Call, Constant, Expr, TupleGetItem, call, constant, get_item, tensor_type
from ...ir.op import OpAttrs
from ...ops.arrays import Array
from ...ops.qnn import Dequantize, dequantized, quantized
from ...ops.resize import Resize
from ...ops.shape import Transpose
from ...ops.slicing import Pad
from ...ops.unary import Clip
from .stored import Stored, equal, flat, stored

MOVES = frozenset(
    {
        "broadcast_to",
        "copy",
        "flip",
        "gather_elements",
        "gather_nd",
        "max",
        "nn.depth_to_space",
        "nn.max_pool",
        "nn.space_to_depth",
        "reshape",
        "strided_slice",
        "take",
        "transpose",
    }
)
"""Operators whose first operand is moved, or of whose elements the largest are kept."""

_LOWER = MappingProxyType({"nn.relu": 0.0})


def move_dequantize(expr: Expr) -> Expr | None:
    """op(dequantize(x)) --> dequantize(op(x))"""
    match expr:
        case TupleGetItem(tuple=Call("split", (source,)) as split):
            found = stored(source)
            if found is None or found.scalars is None:
                return None
            parts = call(split.op, found.value, attrs=split.attrs, span=split.span)
            return _real(get_item(parts, expr.index, span=expr.span), found, expr)
        case Call("concatenate", args):
            return _move_join(expr, [stored(arg) for arg in args])
        case Call("nn.relu", (source,)):
            found = stored(source)
            if found is None or found.scalars is None:
                return None
            return _real(_relu(expr, found), found, expr)
        case Call("nn.pad", (source,)) if is_constant_pad(expr):
            found = stored(source)
            return None if found is None else _move_pad(expr, found)
        case Call(args=(source, *_)) if passes(expr):
            found = stored(source)
            return None if found is None else _moved(expr, found)
        case _:
            return None


def passes(expr: Call) -> bool:
    """Whether an operator gives the same for integers as for the real numbers they stand for."""
    match expr.attrs:
        case Resize.Attrs(mode=mode):
            return mode == "nearest"
        case Pad.Attrs(mode=mode):
            return mode != "constant"
        case _:
            return expr.name in MOVES


def is_constant_pad(expr: Call) -> bool:
    """Whether an operator puts one finite number around a tensor."""
    match expr.attrs:
        case Pad.Attrs(mode=mode, value=value):
            return mode == "constant" and math.isfinite(value)
        case _:
            return False


def pad_integers(value: Expr, pad: Call, scale: Array, zero: Array) -> Call:
    """Put the integer that stands for a number around integers."""
    assert isinstance(pad.attrs, Pad.Attrs)
    attrs = replace(pad.attrs, value=as_stored(pad.attrs.value, scale, zero))
    return call(pad.op, value, attrs=attrs, span=pad.span)


def _move_pad(expr: Call, source: Stored) -> Expr | None:
    """nn.pad(dequantize(x)) --> dequantize(nn.pad(x)), if an integer stands for the number"""
    if source.scalars is None or not isinstance(expr.attrs, Pad.Attrs):
        return None
    scale, zero = (parameter.data for parameter in source.scalars)
    padded = pad_integers(source.value, expr, scale, zero)
    assert isinstance(padded.attrs, Pad.Attrs)
    number = np.asarray(padded.attrs.value).astype(zero.dtype)
    if dequantized(number, scale, zero) != np.float32(expr.attrs.value):
        return None
    return _real(padded, source, expr)


def _real(value: Expr, like: Stored, expr: Expr) -> Expr:
    scale, zero = like.scalars or (like.scale, like.zero)
    return call(Dequantize, value, scale, zero, span=expr.span)


def _moved(expr: Call, source: Stored) -> Expr | None:
    """Apply ``expr`` to the integers."""
    if source.scalars is None:
        match expr.attrs:
            case Transpose.Attrs(axes=axes):
                source = _transposed(source, axes)
            case _:
                return None
    operands = (stored(expr.args[0]) or source).value, *expr.args[1:]
    return _real(call(expr.op, *operands, attrs=expr.attrs, span=expr.span), source, expr)


def _transposed(source: Stored, axes: tuple[int, ...]) -> Stored:
    """Return scale and zero point that fit the transposed tensor."""
    rank = tensor_type(source.value).rank
    found: list[Constant] = []
    for parameter in (source.scale, source.zero):
        if parameter.data.size == 1:
            found.append(flat(parameter, ()))
            continue
        whole = parameter.data.reshape((1,) * (rank - parameter.data.ndim) + parameter.data.shape)
        found.append(constant(np.ascontiguousarray(whole.transpose(axes)), name=parameter.name))
    return replace(source, scale=found[0], zero=found[1])


def _move_join(expr: Call, parts: list[Stored | None]) -> Expr | None:
    """concatenate(dequantize(x), dequantize(y)) --> dequantize(concatenate(x, y)), if scales are"""
    known = [part for part in parts if part is not None and part.scalars is not None]
    if len(known) != len(parts) or not known:
        return None
    first = known[0].scalars
    for part in known[1:]:
        other = part.scalars
        if first is None or other is None or not all(map(equal, first, other)):
            return None
    joined = call(expr.op, *(part.value for part in known), attrs=expr.attrs, span=expr.span)
    return _real(joined, known[0], expr)


def _relu(expr: Call, source: Stored) -> Expr:
    low = float(source.zero.data.reshape(-1)[0])
    return clipped(source.value, low, math.inf, expr)


def clipped(value: Expr, low: float, high: float, like: Call) -> Expr:
    """Limit integers; the same expression where the limits are beyond the element type."""
    limits = np.iinfo(tensor_type(value).dtype.value)
    if low <= limits.min and high >= limits.max:
        return value
    attrs = Clip.Attrs(
        min=low if low > limits.min else -math.inf, max=high if high < limits.max else math.inf
    )
    return call(Clip, value, attrs=attrs, span=like.span)


def limits_of(expr: Call) -> tuple[float, float] | None:
    """Return between which real numbers ``expr`` limits its operand, if that is all it does."""
    match expr.attrs:
        case Clip.Attrs(min=low, max=high):
            return low, high
        case OpAttrs() if expr.name in _LOWER:
            return _LOWER[expr.name], math.inf
        case _:
            return None


def as_stored(number: float, scale: Array, zero: Array) -> float:
    """Return the integer that stands for a real number; infinities stay."""
    if math.isinf(number):
        return number
    return float(quantized(np.asarray(number, np.float32), scale, zero))
