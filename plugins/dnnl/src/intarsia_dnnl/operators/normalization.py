# SPDX-License-Identifier: Apache-2.0
"""Softmax and the normalisations."""

from __future__ import annotations

from math import prod
from typing import Any

from intarsia.ir.pattern import Match, op
from intarsia.partition.support import Code, Support

from ..draft import Draft, label_of, sizes
from .row import Row, always


def _lower_softmax(draft: Draft, match: Match) -> int:
    attrs: Any = match.attrs
    numbers = {"axis": attrs.axis}
    numbers["algorithm"] = "log" if match.root.name == "nn.log_softmax" else "accurate"
    value = draft.value(match.root.args[0])
    return draft.add("softmax", (value,), sizes(match.root), numbers, label=label_of(match.root))


def _supports_layer_norm(match: Match) -> Support:
    attrs: Any = match.attrs
    shape = sizes(match.root)
    for arg in match.root.args[1:]:
        if prod(sizes(arg)) != prod(shape[attrs.axis :]):
            return Support.no(
                Code.UNSUPPORTED_SHAPE, f"scale or bias of shape {list(sizes(arg))} is broadcast"
            )
    return Support.yes()


def _lower_layer_norm(draft: Draft, match: Match) -> int:
    attrs: Any = match.attrs
    shape, label = sizes(match.root), label_of(match.root)
    outer, inner = prod(shape[: attrs.axis]), prod(shape[attrs.axis :])
    data, *weights = (draft.value(arg) for arg in match.root.args)
    args = (draft.view(data, (outer, inner)), *(draft.view(w, (inner,)) for w in weights))
    numbers = {"epsilon": attrs.epsilon}
    result = draft.add("layer_norm", args, (outer, inner), numbers, label=label)
    return draft.view(result, shape)


def _supports_batch_norm(match: Match) -> Support:
    rank = len(sizes(match.root))
    if not 2 <= rank <= 5:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {rank} (2 to 5 are)")
    return Support.yes()


def _lower_batch_norm(draft: Draft, match: Match) -> int:
    attrs: Any = match.attrs
    args = tuple(draft.value(arg) for arg in match.root.args)
    numbers = {"epsilon": attrs.epsilon}
    return draft.add("batch_norm", args, sizes(match.root), numbers, label=label_of(match.root))


ROWS = (
    Row("nn.softmax", op("nn.softmax"), always, _lower_softmax),
    Row("nn.log_softmax", op("nn.log_softmax"), always, _lower_softmax),
    Row(
        "nn.layer_norm",
        op("nn.layer_norm"),
        _supports_layer_norm,
        _lower_layer_norm,
        limits="scale and bias of all normalised elements",
    ),
    Row(
        "nn.batch_norm",
        op("nn.batch_norm"),
        _supports_batch_norm,
        _lower_batch_norm,
        constant=(1, 2, 3, 4),
        limits="rank 2 to 5",
    ),
)
