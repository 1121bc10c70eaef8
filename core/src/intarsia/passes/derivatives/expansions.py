# SPDX-License-Identifier: Apache-2.0
"""Operators that are differentiated as what they are made of: normalizations and pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType

import numpy as np

from ...ir.expr import constant
from ...ops import binary, nn, normalization, pooling, slicing, unary
from ...ops.arrays import numpy_dtype
from ...ops.pooling import PoolAttrs
from .movement import part
from .terms import Expansion, Term

MOST_TAPS = 64
"""Most positions of a window of ``nn.max_pool``, each of which becomes a slice."""


def _standard(x: Term, axes: Sequence[int], epsilon: float, *, centre: bool = True) -> Term:
    """Return ``x`` with zero mean and unit variance over some dimensions."""
    shifted = x - x.mean(axes) if centre else x
    return shifted * ((shifted * shifted).mean(axes) + epsilon).apply(unary.Rsqrt)


def _by_channel(vector: Term, x: Term) -> Term:
    """Reshape a vector so that it broadcasts along dimension 1 of ``x``."""
    return vector.reshape((vector.sizes[0], *[1] * (x.type.rank - 2)))


def layer_norm(args: Sequence[Term], attrs: normalization.LayerNorm.Attrs) -> Term:
    """Standardize, scale and shift."""
    x, scale, *bias = args
    found = _standard(x, range(attrs.axis, x.type.rank), attrs.epsilon) * scale
    return found + bias[0] if bias else found


def rms_norm(args: Sequence[Term], attrs: normalization.RmsNorm.Attrs) -> Term:
    """Divide by the root mean square, and scale."""
    x, scale = args
    axes = range(attrs.axis, x.type.rank)
    return _standard(x, axes, attrs.epsilon, centre=False) * scale


def batch_norm(args: Sequence[Term], attrs: normalization.BatchNorm.Attrs) -> Term:
    """Each channel's line."""
    x = args[0]
    scale, bias, mean, var = (_by_channel(vector, x) for vector in args[1:])
    return (x - mean) * (var + attrs.epsilon).apply(unary.Rsqrt) * scale + bias


def instance_norm(args: Sequence[Term], attrs: normalization.InstanceNorm.Attrs) -> Term:
    """Standardize each channel, scale and shift."""
    x, scale, bias = args
    found = _standard(x, range(2, x.type.rank), attrs.epsilon)
    return found * _by_channel(scale, x) + _by_channel(bias, x)


def group_norm(args: Sequence[Term], attrs: normalization.GroupNorm.Attrs) -> Term:
    """Standardize each group of channels, scale and shift."""
    x, scale, bias = args
    batch, channels, *spatial = x.sizes
    grouped = x.reshape((batch, attrs.groups, channels // attrs.groups, *spatial))
    found = _standard(grouped, range(2, x.type.rank + 1), attrs.epsilon).reshape(x.sizes)
    return found * _by_channel(scale, x) + _by_channel(bias, x)


def l2_normalize(args: Sequence[Term], attrs: normalization.L2Normalize.Attrs) -> Term:
    """Divide by the length; by 1 where it is 0."""
    (x,) = args
    parts = x.apply(unary.Abs) if attrs.p == 1 else x * x
    total = parts.sum((attrs.axis,), keepdims=True)
    divisor = total.number(1.0).where(total.equals(0.0), total)
    return x / (divisor if attrs.p == 1 else divisor.apply(unary.Sqrt))


def max_pool(args: Sequence[Term], attrs: PoolAttrs) -> Term | None:
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


def avg_pool(args: Sequence[Term], attrs: pooling.AvgPool.Attrs) -> Term:
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
        sums = part(sums, axis, 0, size)
    return (sums * Term(shares, x.span)).reshape((*x.sizes[:2], *output))


def _reach(attrs: PoolAttrs, x: Term, output: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding with which the last window ends where the padded input does."""
    extents = attrs.windows.extents
    found: list[tuple[int, int]] = []
    for axis, (low, high) in enumerate(attrs.padding):
        end = (output[axis] - 1) * attrs.strides[axis] + extents[axis]
        found.append((low, max(high, end - low - x.sizes[2 + axis])))
    return found


EXPANSIONS: Mapping[str, Expansion] = MappingProxyType(
    {
        "nn.avg_pool": avg_pool,
        "nn.batch_norm": batch_norm,
        "nn.group_norm": group_norm,
        "nn.instance_norm": instance_norm,
        "nn.l2_normalize": l2_normalize,
        "nn.layer_norm": layer_norm,
        "nn.max_pool": max_pool,
        "nn.rms_norm": rms_norm,
    }
)
