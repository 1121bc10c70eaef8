# SPDX-License-Identifier: Apache-2.0
"""What is known of pools: derivatives, batch axes, simplifications."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from ..graph.expr import Call, Expr, call, constant
from ..graph.types import TensorType
from . import binary, nn, pooling, reduce, slicing
from .arrays import numpy_dtype
from .derivative import DERIVATIVES, expansion
from .integer_forms import INTEGER_FORMS, give_passing
from .pooling import PoolAttrs
from .reduce import ReduceOp
from .rewriting import simplification
from .terms import Term

MOST_TAPS = 64
"""Most positions of a window of ``nn.max_pool``, each of which becomes a slice."""


@expansion(pooling.MaxPool)
def _max_pool_expansion(args: Sequence[Term], attrs: PoolAttrs) -> Term | None:
    """The largest of as many slices as a window has positions, if they are not too many."""
    (x,) = args
    taps = list(product(*(range(size) for size in attrs.kernel)))
    if len(taps) > MOST_TAPS:
        return None
    output = pooling.MaxPool.type_rule(attrs, x.type).static_shape[2:]
    around = x.apply(
        slicing.Pad,
        attrs=slicing.Pad.Attrs(widths=((0, 0), (0, 0), *_reach(attrs, x, output)), value=-np.inf),
    )
    found: Term | None = None
    for tap in taps:
        begin = [k * d for k, d in zip(tap, attrs.dilation, strict=True)]
        ends = [b + (n - 1) * s + 1 for b, n, s in zip(begin, output, attrs.strides, strict=True)]
        taken = slicing.StridedSlice.Attrs(
            begin=(0, 0, *begin),
            end=(*x.sizes[:2], *ends),
            strides=(1, 1, *attrs.strides),
        )
        piece = around.apply(slicing.StridedSlice, attrs=taken)
        found = piece if found is None else found.apply(binary.Maximum, piece)
    return found


@expansion(pooling.AvgPool)
def _avg_pool_expansion(args: Sequence[Term], attrs: pooling.AvgPool.Attrs) -> Term:
    """A convolution with ones of each channel alone, by how many elements each window counts."""
    (x,) = args
    output = pooling.AvgPool.type_rule(attrs, x.type).static_shape[2:]
    dtype = numpy_dtype(x.type.dtype)
    summed = nn.Conv.Attrs(
        strides=attrs.strides,
        padding=tuple(_reach(attrs, x, output)),
        dilation=attrs.dilation,
    )
    weight = np.ones((1, 1, *attrs.kernel), np.float32)
    planes = x.reshape((x.sizes[0] * x.sizes[1], 1, *x.sizes[2:]))
    ones = np.ones((1, 1, *x.sizes[2:]), np.float32)
    means = pooling.AvgPool.reference(attrs, ones)
    total = nn.Conv.reference(summed, ones, weight)[(..., *(slice(n) for n in output))]
    shares = constant((means / np.maximum(total, 1)).astype(dtype), span=x.span)
    filters = Term(constant(weight.astype(dtype), span=x.span), x.span)
    sums = planes.apply(nn.Conv, filters, attrs=summed)
    for axis, size in enumerate(output, 2):
        sums = sums.part(axis, 0, size)
    return (sums * Term(shares, x.span)).reshape((*x.sizes[:2], *output))


def _reach(attrs: PoolAttrs, x: Term, output: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding with which the last window ends where the padded input does."""
    extents = attrs.windows.extents
    found: list[tuple[int, int]] = []
    for axis, (low, high) in enumerate(attrs.padding):
        end = (output[axis] - 1) * attrs.strides[axis] + extents[axis]
        found.append((low, max(high, end - low - x.sizes[2 + axis])))
    return found


@simplification(pooling.AvgPool, pooling.MaxPool)
def pool_to_reduction(expr: Expr) -> Expr | None:
    """nn.avg_pool(x, kernel=whole image) --> mean(x, spatial axes, keepdims=True); max alike"""
    match expr:
        case Call(args=(x,), attrs=PoolAttrs() as attrs):
            type_ = x.type
            if not isinstance(type_, TensorType) or type_.shape[2:] != attrs.kernel:
                return None
            if any(map(any, attrs.padding)) or any(step != 1 for step in attrs.dilation):
                return None
            axes = tuple(range(2, type_.rank))
            reduction = reduce.Mean if expr.op is pooling.AvgPool else reduce.Max
            made = ReduceOp.Attrs(axes=axes, keepdims=True)
            result = call(reduction, x, attrs=made, span=expr.span)
            return result if result.type == expr.type else None
        case _:
            return None


give_passing(pooling.MaxPool)


DERIVATIVES.refuse("its rule is not written: use avg_pool of the squares", pooling.Lrn)
INTEGER_FORMS.refuse("its powers are taken of real numbers", pooling.Lrn)
