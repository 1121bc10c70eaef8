# SPDX-License-Identifier: Apache-2.0
"""The regions that an artifact was built with, from what its passport records of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from intarsia_ir.graph.control import bodies_of
from intarsia_ir.graph.expr import Call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.pattern import Match, op
from intarsia_ir.graph.walk import calls
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Support, SupportRow, SupportTable

from .annotate import annotate
from .joined import CyclicPart
from .labels import label_calls
from .merge import merge
from .outline import outline


def everything(module: IRModule) -> SupportTable:
    """Return a table that takes any node of a module that is sent to it, and no other."""

    def take(_match: Match) -> Support:
        return Support.yes()

    names = dict.fromkeys(call.name for call in calls(module.main))
    rows = [SupportRow(name, op(name), take) for name in names]
    return SupportTable(rows, only_forced=True)


def recorded_regions(module: IRModule, placement: Mapping[str, object]) -> dict[str, Region] | None:
    """Return the regions that a passport records, by name; no accelerator is asked.

    Args:
        module: The prepared module that the artifact was built from.
        placement: ``placement`` of the passport.

    Returns:
        The regions, with the nodes of the record; ``None`` if the module is another one: it lacks a
        node, or its regions cannot be those of the record.
    """
    rows = cast("Sequence[Mapping[str, object]]", placement.get("regions", ()))
    left, found = list(rows), dict[str, Region]()
    taken: set[str] = set()
    for name in ("main", *bodies_of(module.functions)):
        one = module.with_main(module.functions[name])
        labels = label_calls(annotate(one.main, ()).calls)
        called = {f"{name}:{x}" if x in taken else x: call for call, x in labels.items()}
        taken |= set(labels.values())
        own = [row for row in left if called.keys() >= set(cast("Sequence[str]", row["nodes"]))]
        left = [row for row in left if row not in own]
        made = _regions_of(one, called, own)
        if made is None:
            return None
        found |= made
    return None if left else found


def _regions_of(
    module: IRModule, called: Mapping[str, Call], rows: Sequence[Mapping[str, object]]
) -> dict[str, Region] | None:
    """Return the regions of ``main`` that rows record; ``None`` if they cannot be."""
    recorded: dict[frozenset[Call], Mapping[str, object]] = {}
    for row in rows:
        names = cast("Sequence[str]", row["nodes"])
        recorded[frozenset(called[name] for name in names)] = row
    pinned = {call: str(row["accelerator"]) for part, row in recorded.items() for call in part}
    tables = [(kind, everything(module)) for kind in dict.fromkeys(pinned.values())]
    try:
        merged = merge(annotate(module.main, tables, pinned=pinned), parts=list(recorded))
    except CyclicPart:
        return None
    found: dict[str, Region] = {}
    for region in outline(module, merged.groups).regions:
        row = recorded.get(frozenset(region.origins.values()), {})
        if row.get("accelerator") != region.kind:
            return None
        name, nodes = str(row["name"]), tuple(cast("Sequence[str]", row["nodes"]))
        found[name] = replace(region, name=name, nodes=nodes)
    return found if len(found) == len(rows) else None
