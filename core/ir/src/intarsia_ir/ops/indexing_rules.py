# SPDX-License-Identifier: Apache-2.0
"""What is known of operators that pick elements by index: derivatives, batch axes."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from ..graph.expr import constant
from . import binary, indexing, scatter
from .arrays import numpy_dtype
from .batch_axis import BATCH_AXES, BatchAxis, BatchedCall, batch_axis
from .derivative import DERIVATIVES, derivative
from .integer_forms import INTEGER_FORMS, give_passing
from .terms import Contributions, DerivativeStep, Term


@derivative(indexing.Take)
def _take_derivative(step: DerivativeStep, attrs: indexing.Take.Attrs) -> Contributions:
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


@derivative(indexing.GatherElements)
def _gather_elements_derivative(
    step: DerivativeStep, attrs: indexing.GatherElements.Attrs
) -> Contributions:
    """Each element added where it was taken from."""
    x, indices = step.args
    places = _within(indices, x.sizes[attrs.axis])
    added = scatter.ScatterElements.Attrs(axis=attrs.axis, reduction="add")
    found = x.full(0.0).apply(scatter.ScatterElements, places, step.adjoint, attrs=added)
    return [found, None]


@derivative(indexing.GatherNd)
def _gather_nd_derivative(
    step: DerivativeStep, attrs: indexing.GatherNd.Attrs
) -> Contributions | None:
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


@batch_axis(indexing.Take)
def _taken_axis(batched: BatchedCall) -> BatchAxis | None:
    """Taken along another axis, or at indices that have the batch axis."""
    data, indices = batched.operand_axes
    (axis,) = batched.axes("axis")
    if indices is not None:
        return replace(indices, axis=axis + indices.axis) if data is None else None
    if data is None or data.axis == axis:
        return None
    shift = 0 if data.axis < axis else len(batched.shapes[1]) - 1
    return replace(data, axis=data.axis + shift)


@batch_axis(indexing.GatherElements)
def _gathered_axis(batched: BatchedCall) -> BatchAxis | None:
    """Both operands have the batch on an axis that is not gathered along."""
    axis = batched.common()
    return None if axis is None or axis.axis in batched.axes("axis") else axis


@batch_axis(indexing.OneHot)
def _one_hot_axis(batched: BatchedCall) -> BatchAxis | None:
    """One place further if the new axis is before it."""
    axis = batched.operand_axes[0]
    return axis and replace(axis, axis=axis.axis + (axis.axis >= batched.axes("axis")[0]))


BATCH_AXES.refuse(
    "indices pick from any position",
    indexing.GatherNd,
)
BATCH_AXES.refuse(
    "the lengths of sequences and the batch are two axes that are told apart by attributes alone",
    indexing.ReverseSequence,
)
give_passing(indexing.GatherElements, indexing.GatherNd, indexing.Take)


DERIVATIVES.refuse("it tells categories apart, which changes by jumps", indexing.OneHot)
DERIVATIVES.refuse("its rule is not written: reverse by take", indexing.ReverseSequence)
INTEGER_FORMS.refuse("its two values are not quantized", indexing.OneHot)
INTEGER_FORMS.refuse("it is not known to come quantized", indexing.ReverseSequence)
