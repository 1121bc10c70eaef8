# SPDX-License-Identifier: Apache-2.0
"""Cost: drop the regions that are not worth their borders.

The model is one sentence: a region pays when it holds at least one *heavy* call. Heavy is what
computes many operations for an element (convolution, product of matrices, reduction, normalisation,
pooling); light is element-wise work and moving of data, which the fallback fuses into its
neighbours for next to nothing, while a region around it costs a call and keeps it from being fused.
Light calls next to a heavy one are taken along: they connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..ir.expr import Call
from ..ir.op import OpKind
from .merge import Group
from .support import Code, Support

HEAVY = frozenset({OpKind.ANCHOR, OpKind.REDUCTION, OpKind.OPAQUE})


class Plan(Enum):
    """How regions are chosen."""

    GREEDY = "greedy"  # every call an accelerator takes goes to it
    COST = "cost"  # regions that are not worth their borders go back


def is_heavy(call: Call) -> bool:
    """Whether an accelerator can gain anything from this call alone."""
    return call.op.kind in HEAVY


def too_small(groups: Sequence[Group], plan: Plan) -> dict[tuple[Call, str], Support]:
    """Return a verdict for every call of the regions that are not worth their borders."""
    if plan is Plan.GREEDY:
        return {}
    dropped: dict[tuple[Call, str], Support] = {}
    for group in groups:
        calls = [node for node in group.nodes if isinstance(node, Call)]
        if not group.kind or any(is_heavy(call) for call in calls):
            continue
        word = "call" if len(calls) == 1 else "calls"
        detail = f"a region of {len(calls)} light {word} saves less than its border costs"
        dropped.update(((call, group.kind), Support.no(Code.TOO_SMALL, detail)) for call in calls)
    return dropped
