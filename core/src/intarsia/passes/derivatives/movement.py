# SPDX-License-Identifier: Apache-2.0
"""Derivatives of operators that move elements: what was copied is added up where it came from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from ...ir.expr import constant
from ...ir.op import OpAttrs
from ...ops import binary, cumulative, generate, indexing, scatter, shape, slicing
from ...ops.arrays import numpy_dtype
from .terms import Contributions, Rule, Step, Term


def reshape(step: Step, attrs: OpAttrs) -> Contributions:
    """The old shape."""
    return [step.adjoint.reshape(step.args[0].sizes)]


def transpose(step: Step, attrs: shape.Transpose.Attrs) -> Contributions:
    """The old order."""
    order = [attrs.axes.index(axis) for axis in range(len(attrs.axes))]
    return [step.adjoint.transpose(order)]


def broadcast_to(step: Step, attrs: OpAttrs) -> Contributions:
    """The sum of all copies."""
    return [step.adjoint.summed_to(step.args[0].sizes)]


def flip(step: Step, attrs: shape.Flip.Attrs) -> Contributions:
    """The old direction."""
    return [step.adjoint.apply(shape.Flip, attrs=attrs)]


def concatenate(step: Step, attrs: shape.Concatenate.Attrs) -> Contributions:
    """Each operand's part."""
    at = 0
    found: list[Term | None] = []
    for x, wanted in zip(step.args, step.needed, strict=True):
        end = at + x.sizes[attrs.axis]
        found.append(part(step.adjoint, attrs.axis, at, end) if wanted else None)
        at = end
    return found


def split(step: Step, attrs: shape.Split.Attrs) -> Contributions:
    """The parts joined; zeros for those that nothing depends on."""
    x = step.args[0]
    parts: list[Term] = []
    for size, adjoint in zip(attrs.sections, step.adjoints, strict=True):
        sizes = (*x.sizes[: attrs.axis], size, *x.sizes[attrs.axis + 1 :])
        parts.append(x.full(0.0, sizes) if adjoint is None else adjoint)
    if len(parts) == 1:
        return parts
    joined = shape.Concatenate.Attrs(axis=attrs.axis)
    return [parts[0].apply(shape.Concatenate, *parts[1:], attrs=joined)]


def strided_slice(step: Step, attrs: slicing.StridedSlice.Attrs) -> Contributions:
    """Back to where it was taken from, with zeros between and around."""
    found, sizes = step.adjoint, step.args[0].sizes
    backwards = [axis for axis, stride in enumerate(attrs.strides) if stride < 0]
    if backwards:
        found = found.apply(shape.Flip, attrs=shape.Flip.Attrs(axes=tuple(backwards)))
    widths: list[tuple[int, int]] = []
    for axis, (begin, stride) in enumerate(zip(attrs.begin, attrs.strides, strict=True)):
        count = step.adjoint.sizes[axis]
        first = begin if stride > 0 else begin + stride * (count - 1)
        found = spread(found, axis, abs(stride))
        if count == 0:
            first = 0
        widths.append((first, sizes[axis] - first - found.sizes[axis]))
    return [padded(found, widths)]


def pad(step: Step, attrs: slicing.Pad.Attrs) -> Contributions | None:
    """Without what was added, and zeros for what was cut; only of constant padding."""
    if attrs.mode != "constant":
        return None
    return [padded(step.adjoint, [(-low, -high) for low, high in attrs.widths])]


def triangular(step: Step, attrs: generate.Triangular.Attrs) -> Contributions:
    """The same triangle."""
    return [step.adjoint.apply(generate.Triangular, attrs=attrs)]


def cumsum(step: Step, attrs: cumulative.RunningAttrs) -> Contributions:
    """The running sum from the other end."""
    back = cumulative.RunningAttrs(
        axis=attrs.axis, exclusive=attrs.exclusive, reverse=not attrs.reverse
    )
    return [step.adjoint.apply(cumulative.Cumsum, attrs=back)]


def take(step: Step, attrs: indexing.Take.Attrs) -> Contributions:
    """Each slice added where it was taken from."""
    x, indices = step.args
    rank, at, width = x.type.rank, attrs.axis, indices.type.rank
    grown = step.adjoint.type.rank
    front = [*range(at, at + width), *range(at), *range(at + width, grown)]
    updates = step.adjoint.transpose(front)
    order = [at, *range(at), *range(at + 1, rank)]
    empty = x.full(0.0, [x.sizes[axis] for axis in order])
    places = _within(indices, x.sizes[at]).reshape((*indices.sizes, 1))
    added = scatter.ScatterNd.Attrs(reduction="add")
    found = empty.apply(scatter.ScatterNd, places, updates, attrs=added)
    return [found.transpose([order.index(axis) for axis in range(rank)]), None]


def gather_elements(step: Step, attrs: indexing.GatherElements.Attrs) -> Contributions:
    """Each element added where it was taken from."""
    x, indices = step.args
    places = _within(indices, x.sizes[attrs.axis])
    added = scatter.ScatterElements.Attrs(axis=attrs.axis, reduction="add")
    found = x.full(0.0).apply(scatter.ScatterElements, places, step.adjoint, attrs=added)
    return [found, None]


def gather_nd(step: Step, attrs: indexing.GatherNd.Attrs) -> Contributions | None:
    """Each slice added where it was taken from; only without batch dimensions."""
    if attrs.batch_dims:
        return None
    x, indices = step.args
    places = _within(indices, *x.sizes[: indices.sizes[-1]])
    added = scatter.ScatterNd.Attrs(reduction="add")
    return [x.full(0.0).apply(scatter.ScatterNd, places, step.adjoint, attrs=added), None]


def _within(indices: Term, *sizes: int) -> Term:
    """Return indices counted from the beginning and clamped, as those of a gather are."""
    dtype = numpy_dtype(indices.type.dtype)
    limits = np.array(sizes[0] if len(sizes) == 1 else sizes).astype(dtype)
    size, last = (
        Term(constant(array, span=indices.span), indices.span)
        for array in (limits, limits - limits.dtype.type(1))
    )
    counted = (indices + size).where(indices.below(0), indices)
    return counted.apply(binary.Maximum, 0).apply(binary.Minimum, last)


def part(x: Term, axis: int, begin: int, end: int) -> Term:
    """Take elements ``begin`` to ``end`` (exclusive) of one dimension."""
    if (begin, end) == (0, x.sizes[axis]):
        return x
    begins, ends = [0] * x.type.rank, list(x.sizes)
    begins[axis], ends[axis] = begin, end
    ones = (1,) * x.type.rank
    attrs = slicing.StridedSlice.Attrs(begin=tuple(begins), end=tuple(ends), strides=ones)
    return x.apply(slicing.StridedSlice, attrs=attrs)


def padded(x: Term, widths: Iterable[tuple[int, int]]) -> Term:
    """Put zeros around, or cut where a width is negative."""
    pairs = tuple(widths)
    if all(pair == (0, 0) for pair in pairs):
        return x
    return x.apply(slicing.Pad, attrs=slicing.Pad.Attrs(widths=pairs))


def spread(x: Term, axis: int, stride: int) -> Term:
    """Put ``stride - 1`` zeros after each element of one dimension but the last."""
    if stride == 1 or x.sizes[axis] == 0:
        return x
    before, size, after = x.sizes[:axis], x.sizes[axis], x.sizes[axis + 1 :]
    column = x.reshape((*before, size, 1, *after))
    wide = padded(column, [(0, stride - 1 if d == axis + 1 else 0) for d in range(x.type.rank + 1)])
    return part(wide.reshape((*before, size * stride, *after)), axis, 0, (size - 1) * stride + 1)


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "broadcast_to": broadcast_to,
        "concatenate": concatenate,
        "cumsum": cumsum,
        "flip": flip,
        "gather_elements": gather_elements,
        "gather_nd": gather_nd,
        "nn.pad": pad,
        "reshape": reshape,
        "split": split,
        "strided_slice": strided_slice,
        "take": take,
        "transpose": transpose,
        "triangular": triangular,
    }
)
