# SPDX-License-Identifier: Apache-2.0
"""Matrix products, batched and broadcast."""

from __future__ import annotations

from typing import Any

from intarsia.plugin.accelerator import Match, extents, label_of, op

from ..draft import DnnlDraft
from .row import DnnlRow


def _lower_matmul(draft: DnnlDraft, match: Match) -> int:
    attrs: Any = match.attrs
    rank = len(extents(match.root))
    operands = tuple(
        _operand(draft, draft.value(arg), rank, transpose=transpose)
        for arg, transpose in zip(
            match.root.args, (attrs.transpose_a, attrs.transpose_b), strict=True
        )
    )
    return draft.add("matmul", operands, extents(match.root), label=label_of(match.root))


def _operand(draft: DnnlDraft, value: int, rank: int, *, transpose: bool) -> int:
    shape = draft.shape(value)
    value = draft.view(value, (*(1,) * (rank - len(shape)), *shape))
    if not transpose:
        return value
    shape = draft.shape(value)
    axes = (*range(rank - 2), rank - 1, rank - 2)
    return draft.add("transpose", (value,), tuple(shape[axis] for axis in axes), {"axes": axes})


ROWS = (DnnlRow("matmul", op("matmul"), _lower_matmul),)
