# SPDX-License-Identifier: Apache-2.0
"""Costs in the report: what was chosen, and what else it was chosen from."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from intarsia_ir.graph.expr import Call
from intarsia_ir.regions.region import Region

from .cost import PICOSECONDS, CostSource
from .labels import label_calls
from .place import Priced
from .report import MatchCost, Placement, PlanCosts, RegionCosts, RegionRow


def with_costs(placement: Placement, regions: Sequence[Region], priced: Priced) -> Placement:
    """Return the report of a placement by cost, with its costs.

    Args:
        placement: The report without costs.
        regions: The regions it speaks of, in the same order.
        priced: The placement.
    """
    calls = {label: call for call, label in label_calls(priced.annotated.calls).items()}
    verdicts = tuple(
        replace(row, cost=None if offer is None else _match(*offer))
        for row in placement.verdicts
        for offer in [priced.offers.get((calls[row.node], row.accelerator))]
    )
    home = {call: n for n, region in enumerate(regions) for call in region.origins.values()}
    group = [home.get(node, -1) if isinstance(node, Call) else -1 for node in priced.problem.nodes]
    costs = {group[cost.nodes[0]]: cost for cost in priced.problem.regions_of(priced.chosen, group)}
    rows: list[RegionRow] = []
    for number, row in enumerate(placement.regions):
        found = costs[number]
        terms = (found.work, found.launch + found.border, found.own)
        rows.append(replace(row, cost=RegionCosts(*map(_seconds, terms))))
    totals = PlanCosts(
        _seconds(priced.total),
        _seconds(priced.greedy),
        _seconds(priced.fallback),
        {source.value: count for source, count in priced.sources.items()},
    )
    return replace(placement, regions=tuple(rows), verdicts=verdicts, cost=totals)


def _match(here: int, fallback: int, source: CostSource) -> MatchCost:
    return MatchCost(_seconds(here), _seconds(fallback), source.value)


def _seconds(picoseconds: int) -> float:
    return picoseconds / PICOSECONDS
