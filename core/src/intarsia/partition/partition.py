# SPDX-License-Identifier: Apache-2.0
"""Partition: from support tables to regions that ``main`` calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from ..errors import PluginError
from ..ir.expr import Call
from ..ir.module import IRModule
from .annotate import annotate
from .cost import Plan, Prices
from .costs import with_costs
from .labels import label_calls
from .merge import Merged, merge
from .outline import Outlined, outline
from .place import Priced, place_by_cost
from .region import Region
from .report import Placement, report
from .rules import PlaceRule, excluded_by_rules
from .support import Code, Support, SupportTable

AskPlugin: TypeAlias = "Callable[[str, Sequence[Region]], Sequence[Region]]"


class Partitioned(Struct, frozen=True, eq=False):
    """A module cut among the accelerators.

    Attributes:
        module: ``main`` calls the regions; what is left in it is the fallback's.
        regions: In the order in which ``main`` can run them.
        report: Counts, reasons, bytes.
    """

    module: IRModule
    regions: tuple[Region, ...]
    report: Placement


def partition(
    module: IRModule,
    tables: Sequence[tuple[str, SupportTable]],
    *,
    plan: Plan = Plan.COST,
    prices: Prices | None = None,
    rules: Sequence[PlaceRule] = (),
    ask: AskPlugin | None = None,
) -> Partitioned:
    """Cut ``main`` into convex regions, one accelerator each, and the fallback's rest.

    Each round asks, chooses by the plan, merges, and drops what a plugin gives back; what was
    dropped is offered to the other accelerators, until nothing more is dropped.

    Args:
        module: A prepared module.
        tables: Kind and support table of each accelerator, in the target's order.
        plan: How accelerators are chosen.
        prices: What everything costs, for choosing by cost; those of unknown kinds if ``None``.
        rules: What the user says of single nodes.
        ask: The plugins' own say: given a kind and its regions, the regions it keeps. A region that
            is not returned goes back to the fallback; one returned by
            :func:`~intarsia.partition.region.keep_calls` is reduced. Asked once for each kind.

    Raises:
        UsageError: A rule names no node.
        PluginError: A plugin's answer breaks the contract.
    """
    main = module.main
    kinds = [kind for kind, _ in tables]
    excluded: dict[tuple[Call, str], Support] = {}
    if rules:
        labels = label_calls(annotate(main, ()).calls)
        excluded.update(excluded_by_rules(labels, kinds, rules))
    asked = ask is None
    prices = prices or Prices.presumed(kinds)
    while True:
        annotated = annotate(main, tables, excluded=excluded)
        merged = merge(annotated)
        dropped = _crossing(merged)
        if not dropped:
            priced = None
            if plan is Plan.COST and tables:
                priced = place_by_cost(annotated, tables, prices, excluded)
                merged = merge(priced.annotated)
            outlined = outline(module, merged.groups)
            if not asked and ask is not None:
                asked = True
                dropped = _given_back(kinds, outlined, ask)
            if not dropped:
                return _partitioned(merged, outlined, priced)
        excluded.update(dropped)


def codegen_refused(region: Region, error: Exception) -> PluginError:
    """Return the error for a plugin that took a region in ``annotate`` and cannot compile it."""
    rows = ", ".join(sorted(set(region.rows.values())))
    return PluginError(
        f"'{region.kind}' took region '{region.name}' (rows {rows}) but cannot compile it: {error}",
        where=region.nodes[0] if region.nodes else region.name,
        hint=f"report it to the plugin of '{region.kind}'; "
        f"meanwhile keep the nodes away from it with --place 'NODE!={region.kind}'",
    )


def _partitioned(merged: Merged, outlined: Outlined, priced: Priced | None) -> Partitioned:
    main, regions = outlined.module.main, outlined.regions
    placement = report(merged.annotated, main, regions, merged.apart)
    if priced is not None:
        placement = with_costs(placement, regions, priced)
    return Partitioned(outlined.module, outlined.regions, placement)


def _crossing(merged: Merged) -> dict[tuple[Call, str], Support]:
    """Return a verdict for matches that merging could not place: parts are in other branches."""
    inside = {node for group in merged.groups if group.kind for node in group.nodes}
    placed = merged.annotated.placed
    verdict = Support.no(Code.UNSUPPORTED_OP, "its pattern crosses the border of a branch")
    return {(call, taken.kind): verdict for call, taken in placed.items() if call not in inside}


def _given_back(
    kinds: Sequence[str], outlined: Outlined, ask: AskPlugin
) -> dict[tuple[Call, str], Support]:
    """Ask each kind about its regions; return a verdict for every call it does not keep."""
    dropped: dict[tuple[Call, str], Support] = {}
    for kind in kinds:
        offered = [region for region in outlined.regions if region.kind == kind]
        if not offered:
            continue
        answer = ask(kind, tuple(offered))
        kept = _kept_calls(kind, offered, answer)
        reasons = {region.name: region.why for region in answer if region.why}
        for region in offered:
            why = reasons.get(region.name, f"'{kind}' gave it back after seeing its region")
            verdict = Support.no(Code.TOO_SMALL, why)
            lost = [call for call in region.origins.values() if call not in kept]
            dropped.update(((call, kind), verdict) for call in lost)
    return dropped


def _kept_calls(kind: str, offered: Sequence[Region], answer: Sequence[Region]) -> set[Call]:
    """Return the calls of ``main`` that a plugin keeps.

    Raises:
        PluginError: The answer holds something that was not offered, or the same call twice.
    """
    known = {call for region in offered for call in region.origins.values()}
    kept: set[Call] = set()
    for region in answer:
        calls = set(region.origins.values())
        if not calls <= known:
            raise PluginError(
                f"'{kind}' added calls to region '{region.name}' in partition()",
                hint=f"report it to the plugin of '{kind}'",
            )
        if calls & kept:
            raise PluginError(
                f"'{kind}' returned a call of region '{region.name}' twice",
                hint=f"report it to the plugin of '{kind}'",
            )
        kept |= calls
    return kept
