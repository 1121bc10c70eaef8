# SPDX-License-Identifier: Apache-2.0
"""What is known of matrix products and convolutions: derivatives, batch axes, simplifications."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from ..graph.expr import Call, Constant, Expr, call, constant, tensor_type
from . import nn
from .derivative import derivative
from .nn import Conv
from .rewriting import simplification
from .slicing import Pad
from .terms import Contributions, DerivativeStep, Term
from .windows import Padding


@derivative(nn.Matmul)
def _matmul_derivative(step: DerivativeStep, attrs: nn.Matmul.Attrs) -> Contributions:
    """``dy @ b.T`` and ``a.T @ dy``, transposed again where the operand was."""
    (a, b), dy = step.args, step.adjoint
    by_a = by_b = None
    if step.needed[0]:
        if attrs.transpose_a:
            by_a = _times(b, dy, transpose_a=attrs.transpose_b, transpose_b=True)
        else:
            by_a = _times(dy, b, transpose_b=not attrs.transpose_b)
        by_a = by_a.summed_to(a.sizes)
    if step.needed[1]:
        if attrs.transpose_b:
            by_b = _times(dy, a, transpose_a=True, transpose_b=attrs.transpose_a)
        else:
            by_b = _times(a, dy, transpose_a=not attrs.transpose_a)
        by_b = by_b.summed_to(b.sizes)
    return [by_a, by_b]


def _times(a: Term, b: Term, *, transpose_a: bool = False, transpose_b: bool = False) -> Term:
    attrs = nn.Matmul.Attrs(transpose_a=transpose_a, transpose_b=transpose_b)
    return a.apply(nn.Matmul, b, attrs=attrs)


@derivative(nn.Conv)
def _conv_derivative(step: DerivativeStep, attrs: nn.Conv.Attrs) -> Contributions:
    """A transposed convolution by the data; a convolution of data with ``dy`` by the weight."""
    (data, weight, *bias), dy = step.args, step.adjoint
    found: list[Term | None] = [None, None, *(None for _ in bias)]
    if step.needed[0]:
        kernel = weight.sizes[2:]
        covered = [
            (n - 1) * s + (k - 1) * d + 1 - low - high
            for n, s, k, d, (low, high) in zip(
                dy.sizes[2:], attrs.strides, kernel, attrs.dilation, attrs.padding, strict=True
            )
        ]
        missing = [size - n for size, n in zip(data.sizes[2:], covered, strict=True)]
        back = nn.ConvTranspose.Attrs(
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=attrs.groups,
            output_padding=tuple(missing),
        )
        found[0] = dy.apply(nn.ConvTranspose, weight, attrs=back)
    if step.needed[1]:
        found[1] = _by_weight(data, dy, weight, attrs)
    if bias and step.needed[2]:
        found[2] = _by_bias(dy)
    return found


@derivative(nn.ConvTranspose)
def _conv_transpose_derivative(
    step: DerivativeStep, attrs: nn.ConvTranspose.Attrs
) -> Contributions:
    """A convolution of ``dy`` by the data; of ``dy`` with the data by the weight."""
    (data, weight, *bias), dy = step.args, step.adjoint
    found: list[Term | None] = [None, None, *(None for _ in bias)]
    # A convolution takes no negative padding, so what it would cut is cut first.
    cuts = [(min(low, 0), min(high, 0)) for low, high in attrs.padding]
    source = dy.padded([(0, 0), (0, 0), *cuts])
    straight = nn.Conv.Attrs(
        strides=attrs.strides,
        padding=tuple((max(low, 0), max(high, 0)) for low, high in attrs.padding),
        dilation=attrs.dilation,
        groups=attrs.groups,
    )
    if step.needed[0]:
        by_data = source.apply(nn.Conv, weight, attrs=straight)
        for axis in range(2, data.type.rank):
            by_data = by_data.part(axis, 0, data.sizes[axis])
        found[0] = by_data
    if step.needed[1]:
        found[1] = _by_weight(source, data, weight, straight)
    if bias and step.needed[2]:
        found[2] = _by_bias(dy)
    return found


def _by_bias(dy: Term) -> Term:
    return dy.sum([axis for axis in range(dy.type.rank) if axis != 1])


def _by_weight(data: Term, dy: Term, weight: Term, attrs: nn.Conv.Attrs) -> Term:
    """Convolve the data with ``dy``, the batch as channels, steps and gaps exchanged.

    ``dw[o, c, k] = sum_{n, i} dy[n, o, i] * data[n, c, i * stride + k * dilation - padding]``
    """
    batch, channels, *spatial = data.sizes
    groups, inner = attrs.groups, channels // attrs.groups
    rest = range(3, 3 + len(spatial))
    grouped = data.reshape((batch, groups, inner, *spatial)).transpose((2, 1, 0, *rest))
    images = grouped.reshape((inner, groups * batch, *spatial))
    filters = dy.transpose((1, 0, *range(2, dy.type.rank)))
    padding: Padding = attrs.padding
    swapped = nn.Conv.Attrs(
        strides=attrs.dilation, padding=padding, dilation=attrs.strides, groups=groups
    )
    found = images.apply(nn.Conv, filters, attrs=swapped)
    for axis, size in enumerate(weight.sizes[2:], 2):
        found = found.part(axis, 0, size)
    return found.transpose((1, 0, *range(2, dy.type.rank)))


@simplification(Conv)
def pad_into_conv(expr: Expr) -> Expr | None:
    """nn.conv(nn.pad(x, zeros around the image), w) --> nn.conv(x, w, padding=more)"""
    match expr:
        case Call(
            "nn.conv",
            (
                Call("nn.pad", (x,), Pad.Attrs(widths=widths, mode="constant", value=0.0)),
                *rest,
            ),
            Conv.Attrs() as old,
        ) if not any(map(any, widths[:2])) and min(map(min, widths)) >= 0:
            padding = tuple(
                (lo + more_lo, hi + more_hi)
                for (lo, hi), (more_lo, more_hi) in zip(old.padding, widths[2:], strict=True)
            )
            attrs = Conv.Attrs(
                strides=old.strides, padding=padding, dilation=old.dilation, groups=old.groups
            )
            return call(Conv, x, *rest, attrs=attrs, span=expr.span)
        case _:
            return None


@simplification(Conv)
def crop_window(expr: Expr) -> Expr | None:
    """nn.conv(x, w) --> nn.conv(x, the taps of w that meet an element of x)

    Where an image is smaller than the window, as at the end of a network for small images, some
    taps meet nothing but padding: of 3x3 windows of an image of one element, all but one; of those
    of a line of any length, 6 of 9.
    """
    match expr:
        case Call("nn.conv", (x, Constant() as weight, *rest), Conv.Attrs() as attrs):
            sizes = list(zip(tensor_type(x).shape[2:], tensor_type(expr).shape[2:], strict=True))
        case _:
            return None
    taps, padding = [slice(None)] * 2, list(attrs.padding)
    for axis, (size, count) in enumerate(sizes):
        width = tensor_type(weight).shape[2 + axis]
        if not (isinstance(size, int) and isinstance(count, int) and isinstance(width, int)):
            taps.append(slice(None))  # an image of open size may be large
            continue
        low, high = attrs.padding[axis]
        step, gap = attrs.strides[axis], attrs.dilation[axis]
        met = [
            tap
            for tap in range(width if size < width * gap else 0)
            if any(0 <= place * step + tap * gap - low < size for place in range(count))
        ]
        first, last = (met[0], met[-1]) if met else (0, width - 1)
        inside = (low - first * gap, high - (width - 1 - last) * gap)
        if min(inside) < 0:
            first, last, inside = 0, width - 1, (low, high)
        taps.append(slice(first, last + 1))
        padding[axis] = inside
    if tuple(padding) == attrs.padding or not np.isfinite(weight.data).all():
        return None
    cropped = constant(np.ascontiguousarray(weight.data[tuple(taps)]), name=weight.name)
    changed = replace(attrs, padding=tuple(padding))
    return call(Conv, x, cropped, *rest, attrs=changed, span=expr.span)
