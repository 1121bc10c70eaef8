# SPDX-License-Identifier: Apache-2.0
"""What is known of operators that pick elements by index: derivatives, batch axes."""

from __future__ import annotations

import numpy as np

from ..graph.expr import constant
from . import binary, indexing, scatter
from .arrays import numpy_dtype
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


give_passing(indexing.GatherElements, indexing.GatherNd, indexing.Take)


DERIVATIVES.refuse("it tells categories apart, which changes by jumps", indexing.OneHot)
DERIVATIVES.refuse("its rule is not written: reverse by take", indexing.ReverseSequence)
INTEGER_FORMS.refuse("its two values are not quantized", indexing.OneHot)
INTEGER_FORMS.refuse("it is not known to come quantized", indexing.ReverseSequence)
