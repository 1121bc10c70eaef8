# SPDX-License-Identifier: Apache-2.0
"""What is known of slices and padding: derivatives, batch axes, simplifications."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from ..graph.expr import Call, Expr, call
from ..graph.op import OpAttrs
from . import shape, slicing
from .arrays import Array
from .derivative import derivative
from .integer_forms import INTEGER_FORMS, IntegerForm, as_stored, give_passing, moved, real
from .qnn import dequantized
from .rewriting import simplification
from .slicing import Pad, StridedSlice
from .stored import stored
from .terms import Contributions, DerivativeStep


@derivative(slicing.StridedSlice)
def _strided_slice_derivative(
    step: DerivativeStep, attrs: slicing.StridedSlice.Attrs
) -> Contributions:
    """Back to where it was taken from, with zeros between and around."""
    found, sizes = step.adjoint, step.args[0].sizes
    backwards = [axis for axis, stride in enumerate(attrs.strides) if stride < 0]
    if backwards:
        found = found.apply(shape.Flip, attrs=shape.Flip.Attrs(axes=tuple(backwards)))
    widths: list[tuple[int, int]] = []
    for axis, (begin, stride) in enumerate(zip(attrs.begin, attrs.strides, strict=True)):
        count = step.adjoint.sizes[axis]
        first = begin if stride > 0 else begin + stride * (count - 1)
        found = found.spread(axis, abs(stride))
        if count == 0:
            first = 0
        widths.append((first, sizes[axis] - first - found.sizes[axis]))
    return [found.padded(widths)]


@derivative(slicing.Pad)
def _pad_derivative(step: DerivativeStep, attrs: slicing.Pad.Attrs) -> Contributions | None:
    """Without what was added, and zeros for what was cut; only of constant padding."""
    if attrs.mode != "constant":
        return None
    return [step.adjoint.padded([(-low, -high) for low, high in attrs.widths])]


@simplification(StridedSlice)
def drop_whole_slice(expr: Expr) -> Expr | None:
    """strided_slice(x, all of it) --> x"""
    match expr:
        case Call("strided_slice", (x,), StridedSlice.Attrs(strides=strides)) if (
            all(stride == 1 for stride in strides) and x.type == expr.type
        ):
            return x
        case _:
            return None


@simplification(Pad)
def drop_empty_pad(expr: Expr) -> Expr | None:
    """nn.pad(x, nothing) --> x"""
    match expr:
        case Call("nn.pad", (x,), Pad.Attrs(widths=widths)) if not any(map(any, widths)):
            return x
        case _:
            return None


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


def _repeats_elements(attrs: OpAttrs) -> bool:
    return isinstance(attrs, Pad.Attrs) and attrs.mode != "constant"


def _move_pad(expr: Expr) -> Expr | None:
    """nn.pad(dequantize(x)) --> dequantize(nn.pad(x)), if an integer stands for the number"""
    if not isinstance(expr, Call) or not isinstance(expr.attrs, Pad.Attrs):
        return None
    if _repeats_elements(expr.attrs):
        return moved(expr)
    source = stored(expr.args[0])
    if source is None or source.scalars is None or not is_constant_pad(expr):
        return None
    scale, zero = (parameter.data for parameter in source.scalars)
    padded = pad_integers(source.value, expr, scale, zero)
    assert isinstance(padded.attrs, Pad.Attrs)
    number = np.asarray(padded.attrs.value).astype(zero.dtype)
    if dequantized(number, scale, zero) != np.float32(expr.attrs.value):
        return None
    return real(padded, source, expr)


give_passing(StridedSlice)
INTEGER_FORMS.give(IntegerForm(passes=_repeats_elements, move=_move_pad), Pad)
