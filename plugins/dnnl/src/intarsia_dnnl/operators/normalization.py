# SPDX-License-Identifier: Apache-2.0
"""Softmax and the normalizations."""

from __future__ import annotations

from math import prod
from typing import Any

from intarsia.plugin.accelerator import Code, Match, Support, extents, label_of, op

from ..draft import DnnlDraft
from .row import DnnlRow, shape_text


def _supports_softmax(match: Match) -> Support:
    attrs: Any = match.attrs
    if extents(match.root)[attrs.axis] == 1:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"axis {attrs.axis} holds one element")
    return Support.yes()


def _lower_softmax(draft: DnnlDraft, match: Match) -> int:
    """Append softmax along rows, and to each row the sum of its results, times 0.

    Of a row that holds NaN, or plus infinity, the library makes NaN and zeros. The sum makes all of
    it NaN, and is at most 1 for any other row.
    """
    attrs: Any = match.attrs
    label, value = label_of(match.root), draft.value(match.root.args[0])
    shape, rank = draft.shape(value), len(draft.shape(value))
    order = (*(axis for axis in range(rank) if axis != attrs.axis), attrs.axis)
    moved = tuple(shape[axis] for axis in order)
    if order != tuple(range(rank)):
        value = draft.add("transpose", (value,), moved, {"axes": order}, label=label)
    rows = (prod(moved[:-1]), moved[-1])
    numbers = {"axis": 1, "algorithm": "accurate"}
    result = draft.add("softmax", (draft.view(value, rows),), rows, numbers, label=label)
    each = draft.add("reduction", (result,), (rows[0], 1), {"algorithm": "sum"}, label=label)
    nothing = draft.eltwise("linear", each, 0.0, 0.0, label=label)
    result = draft.add("binary", (result, nothing), rows, {"algorithm": "add"}, label=label)
    result = draft.view(result, moved)
    if order != tuple(range(rank)):
        back = tuple(order.index(axis) for axis in range(rank))
        result = draft.add("transpose", (result,), shape, {"axes": back}, label=label)
    return result


def _supports_layer_norm(match: Match) -> Support:
    attrs: Any = match.attrs
    shape = extents(match.root)
    for arg in match.root.args[1:]:
        if prod(extents(arg)) != prod(shape[attrs.axis :]):
            return Support.no(
                Code.UNSUPPORTED_SHAPE,
                f"scale or bias of shape {shape_text(extents(arg))} is broadcast",
            )
    return Support.yes()


def _lower_layer_norm(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    shape, label = extents(match.root), label_of(match.root)
    outer, inner = prod(shape[: attrs.axis]), prod(shape[attrs.axis :])
    data, *weights = (draft.value(arg) for arg in match.root.args)
    args = (draft.view(data, (outer, inner)), *(draft.view(w, (inner,)) for w in weights))
    numbers = {"epsilon": attrs.epsilon}
    result = draft.add("layer_norm", args, (outer, inner), numbers, label=label)
    return draft.view(result, shape)


def _supports_batch_norm(match: Match) -> Support:
    rank = len(extents(match.root))
    if not 2 <= rank <= 5:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {rank} (2 to 5 are)")
    return Support.yes()


def _lower_batch_norm(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    args = tuple(draft.value(arg) for arg in match.root.args)
    numbers = {"epsilon": attrs.epsilon}
    return draft.add("batch_norm", args, extents(match.root), numbers, label=label_of(match.root))


ROWS = (
    DnnlRow(
        "nn.softmax",
        op("nn.softmax"),
        _lower_softmax,
        _supports_softmax,
        doc="more than one element along the axis",
    ),
    DnnlRow.refused("nn.log_softmax", "the library gives minus infinity where a row holds NaN"),
    DnnlRow(
        "nn.layer_norm",
        op("nn.layer_norm"),
        _lower_layer_norm,
        _supports_layer_norm,
        doc="scale and bias of all normalized elements",
    ),
    DnnlRow(
        "nn.batch_norm",
        op("nn.batch_norm"),
        _lower_batch_norm,
        _supports_batch_norm,
        constant=(1, 2, 3, 4),
        doc="rank 2 to 5",
    ),
)
