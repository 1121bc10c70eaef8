# SPDX-License-Identifier: Apache-2.0
"""Operators whose positions come from data. Indices count from the end if negative, and are
brought into range before the library sees them, which leaves others open.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.plugin.accelerator import (
    Call,
    Expr,
    numpy_dtype,
    operator_row,
    sizes,
    tensor_type,
)

from ..draft import NetworkDraft, Tensor, member
from .row import MOVED, NUMBERS, WHOLE, NetworkRow


def _in_range(draft: NetworkDraft, indices: Tensor, limits: np.ndarray) -> Tensor:
    """Return indices in ``range(limit)``; limits broadcast to them."""
    kind = draft.dtype_of(indices)
    own = numpy_dtype(kind)
    rank = len(draft.shape_of(indices))
    limits = limits.reshape((1,) * (rank - limits.ndim) + limits.shape).astype(own)
    size, zero = draft.constant(limits, kind), draft.number(0, indices)
    below = draft.binary(indices, zero, "LESS")
    counted = draft.select(below, draft.binary(indices, size, "SUM"), indices)
    last = draft.constant(limits - own.type(1), kind)
    return draft.binary(draft.binary(counted, zero, "MAX"), last, "MIN")


def _lower_take(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    axis: int = attrs.axis
    x = draft.value(call.args[0])
    limit = np.array(sizes(call.args[0])[axis])
    indices = _in_range(draft, draft.exact(call.args[1]), limit)
    return draft.output_of(draft.network.add_gather(x, indices, axis))


def _gather(draft: NetworkDraft, x: Tensor, indices: Tensor, mode: str, **settings: int) -> Tensor:
    layer = draft.network.add_gather_v2(x, indices, member(draft.trt.GatherMode, mode))
    if layer is None:
        raise draft.refused()
    for name, value in settings.items():
        setattr(layer, name, value)
    return draft.output_of(layer)


def _lower_gather_elements(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    along: int = attrs.axis
    whole, picked = sizes(call.args[0]), sizes(call.args[1])
    x = draft.value(call.args[0])
    cut = tuple(n if axis == along else picked[axis] for axis, n in enumerate(whole))
    if cut != whole:
        x = draft.slice(x, (0,) * len(whole), cut, (1,) * len(whole))
    indices = _in_range(draft, draft.exact(call.args[1]), np.array(whole[along]))
    return _gather(draft, x, indices, "ELEMENT", axis=along)


def _lower_gather_nd(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    depth = sizes(call.args[1])[-1]
    limits = np.array(sizes(call.args[0])[attrs.batch_dims : attrs.batch_dims + depth])
    indices = _in_range(draft, draft.exact(call.args[1]), limits)
    x = draft.value(call.args[0])
    return _gather(draft, x, indices, "ND", num_elementwise_dims=attrs.batch_dims)


def _lower_one_hot(draft: NetworkDraft, call: Call) -> Tensor:
    """Compare the indices, and the indices counted from the end, with every position."""
    attrs: Any = call.attrs
    indices = draft.exact(call.args[0])
    own = numpy_dtype(draft.dtype_of(indices))
    whole = sizes(call)
    expanded = (*whole[: attrs.axis], 1, *whole[attrs.axis + 1 :])
    indices = draft.reshape(indices, expanded)
    column = [attrs.depth if axis == attrs.axis else 1 for axis in range(len(whole))]
    places = np.arange(attrs.depth, dtype=own).reshape(column)
    hit, wrapped = (
        draft.binary(indices, draft.constant(place), "EQUAL")
        for place in (places, places - own.type(attrs.depth))
    )
    values = (attrs.on_value, attrs.off_value)
    on, off = (_single(draft, call, value) for value in values)
    return draft.select(draft.binary(hit, wrapped, "OR"), on, off)


def _single(draft: NetworkDraft, like: Expr, value: float) -> Tensor:
    dtype = tensor_type(like).dtype
    ones = (1,) * len(sizes(like))
    return draft.constant(np.full(ones, value).astype(numpy_dtype(dtype)), dtype)


def _lower_triangular(draft: NetworkDraft, call: Call) -> Tensor:
    """Choose by a constant: which places are kept."""
    attrs: Any = call.attrs
    x = draft.value(call.args[0])
    rows, columns = sizes(call)[-2:]
    distance = np.arange(columns) - np.arange(rows)[:, np.newaxis] - attrs.diagonal
    kept = distance >= 0 if attrs.upper else distance <= 0
    return draft.select(draft.constant(kept), x, draft.number(0, x))


ROWS = (
    operator_row("take", _lower_take, others=WHOLE, dtypes=MOVED),
    operator_row("gather_elements", _lower_gather_elements, others=WHOLE, dtypes=MOVED),
    operator_row("gather_nd", _lower_gather_nd, others=WHOLE, dtypes=MOVED),
    operator_row("one_hot", _lower_one_hot, others=NUMBERS, dtypes=WHOLE),
    operator_row("triangular", _lower_triangular, dtypes=NUMBERS),
    NetworkRow.refused("qnn.lookup", "a table of 256 elements is no layer of the library"),
)
