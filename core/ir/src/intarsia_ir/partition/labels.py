# SPDX-License-Identifier: Apache-2.0
"""Names of calls that users see: the model's node names, made unique."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from intarsia_ir.graph.expr import Call


def label_calls(calls: Sequence[Call]) -> dict[Call, str]:
    """Name each call after its model node; the second call of one node is ``name#2``.

    Args:
        calls: Calls in topological order; one without a node name is named after its operator.
    """
    labels: dict[Call, str] = {}
    taken: set[str] = set()
    count: dict[str, int] = {}
    for call in calls:
        base = call.span.name or call.name
        number = count.get(base, 0) + 1
        label = base if number == 1 else f"{base}#{number}"
        while label in taken:
            number += 1
            label = f"{base}#{number}"
        count[base] = number
        taken.add(label)
        labels[call] = label
    return labels


def region_names(kinds: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return a unique C identifier for each region: its kind and a number.

    Args:
        kinds: Kind of each region, in order.
        taken: Names of functions that exist already.
    """
    used = set(taken)
    count: dict[str, int] = {}
    names: list[str] = []
    for kind in kinds:
        stem = re.sub(r"\W", "_", kind, flags=re.ASCII)
        stem = f"_{stem}" if stem[:1].isdigit() else stem
        number = count.get(stem, 0)
        while f"{stem}_{number}" in used:
            number += 1
        count[stem] = number + 1
        used.add(f"{stem}_{number}")
        names.append(f"{stem}_{number}")
    return names
