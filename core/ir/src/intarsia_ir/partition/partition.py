# SPDX-License-Identifier: Apache-2.0
"""Partition: from support tables to regions that ``main`` calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from intarsia_ir.graph.expr import Call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.regions.region import Region
from intarsia_ir.regions.support import Code, Support, SupportTable
from intarsia_runtime.errors import PluginError, UnsupportedError

from .annotate import Annotated, annotate
from .consent import AskPlugin, Consent
from .cost import Plan, Prices
from .cost_report import with_costs
from .labels import label_calls
from .left import with_left
from .merge import Merged
from .outline import Outlined, outline
from .place import Priced, place_by_cost
from .report import Placement, report
from .rules import PlaceRule, apply_rules


class PartitionResult(Struct, frozen=True, eq=False):
    """A module cut among the accelerators.

    Attributes:
        module: ``main`` calls the regions; what is left in it is the fallback's.
        regions: In the order in which ``main`` can run them.
        placement: What was offloaded, and why not more.
    """

    module: IRModule
    regions: tuple[Region, ...]
    placement: Placement


def partition(
    module: IRModule,
    tables: Sequence[tuple[str, SupportTable]],
    *,
    plan: Plan = Plan.COST,
    prices: Prices | None = None,
    rules: Sequence[PlaceRule] = (),
    ask: AskPlugin | None = None,
    fallback: str = "the fallback",
) -> PartitionResult:
    """Cut ``main`` into convex regions, one accelerator each, and the fallback's rest.

    What the user says of a node comes first, then what accelerators can do, then what it costs.
    Each round asks, chooses by the plan, merges, and hears what plugins say of their regions; what
    was dropped is offered to the other accelerators, until nothing more changes.

    Args:
        module: A prepared module.
        tables: Kind and support table of each accelerator, in the target's order.
        plan: How accelerators are chosen. ``greedy`` overrules whoever objects with ``slower``.
        prices: What everything costs, for choosing by cost; those of unknown kinds if ``None``.
        rules: What the user says of single nodes.
        ask: The plugins' own say: given a kind and its regions, the regions it keeps. A region that
            is not returned goes back to the fallback; one returned by
            :func:`~intarsia_ir.regions.region.keep_calls` is reduced, those returned by
            :func:`~intarsia_ir.regions.region.split_region` are built as they are. Asked once of
            each region.
        fallback: What the report calls the fallback.

    Raises:
        UsageError: A rule names no node, or rules contradict each other.
        UnsupportedError: A node cannot go where a rule sends it.
        PluginError: A plugin's answer breaks the contract.
    """
    kinds = [kind for kind, _ in tables]
    labels = label_calls(annotate(module.main, ()).calls) if rules else {}
    ruled = apply_rules(labels, kinds, rules)
    forced = {call: rule for call, rule in ruled.forced.items() if rule.kind in kinds}
    consent = Consent(kinds, ask, overruled=plan is Plan.GREEDY, forced=frozenset(forced))
    prices = prices or Prices.presumed(kinds)
    request = _Request(module, tables, plan, prices, forced, labels)
    made = _settle(request, consent, dict(ruled.excluded))
    placement = report(
        made.merged.annotated, made.outlined.module.main, made.outlined.regions, made.merged.apart
    )
    if made.priced is not None:
        placement = with_costs(placement, made.outlined.regions, made.priced)
    if any(row.code == Code.SLOWER.value for row in placement.verdicts):
        able = greedy_counts(module, tables, consent, made.excluded, made.pinned)
        placement = with_left(placement, able, fallback)
    return PartitionResult(made.outlined.module, made.outlined.regions, placement)


class _Request(Struct, frozen=True, eq=False):
    """What is placed, for what, and how."""

    module: IRModule
    tables: Sequence[tuple[str, SupportTable]]
    plan: Plan
    prices: Prices
    forced: Mapping[Call, PlaceRule]
    labels: Mapping[Call, str]


class _Settled(Struct, frozen=True, eq=False):
    """A placement that everybody agrees with, and what is excluded and pinned in it."""

    merged: Merged
    outlined: Outlined
    priced: Priced | None
    excluded: Mapping[tuple[Call, str], Support]
    pinned: Mapping[Call, str]


def _settle(
    request: _Request, consent: Consent, excluded: dict[tuple[Call, str], Support]
) -> _Settled:
    """Place until no plugin gives anything back any more; each round excludes or pins more."""
    main, tables = request.module.main, request.tables
    pinned = {call: rule.kind for call, rule in request.forced.items()}
    takes_slower = request.plan is Plan.GREEDY
    while True:
        pinned.update(consent.pinned)
        annotated = annotate(
            main, tables, excluded=excluded, pinned=pinned, takes_slower=takes_slower
        )
        _check_forced(annotated, request.forced, request.labels)
        merged = consent.merge(annotated)
        dropped = _crossing(merged)
        if dropped:
            excluded.update(dropped)
            continue
        priced = None
        if request.plan is Plan.COST and tables:
            priced = place_by_cost(annotated, tables, request.prices, excluded, pinned)
            merged = consent.merge(priced.annotated)
        outlined = outline(request.module, merged.groups)
        excluded.update(consent.hear(merged.annotated, outlined.regions))
        if consent.is_settled:
            return _Settled(merged, outlined, priced, excluded, pinned)


def greedy_counts(
    module: IRModule,
    tables: Sequence[tuple[str, SupportTable]],
    consent: Consent,
    excluded: Mapping[tuple[Call, str], Support],
    pinned: Mapping[Call, str],
) -> Mapping[str, int]:
    """Return how many calls each accelerator would get if cost did not count.

    Args:
        module: A prepared module.
        tables: Kind and support table of each accelerator, in the target's order.
        consent: The plugins' own say; asked about regions that it has not seen.
        excluded: Verdicts of the placement by cost; those of cost do not count.
        pinned: Calls that go to one kind.
    """
    barred = {key: support for key, support in excluded.items() if support.code is not Code.SLOWER}
    greedy = consent.for_greedy()
    while True:
        annotated = annotate(module.main, tables, excluded=barred, pinned=pinned, takes_slower=True)
        merged = greedy.merge(annotated)
        dropped = _crossing(merged)
        if not dropped:
            regions = outline(module, merged.groups).regions
            dropped = greedy.hear(annotated, regions)
            if greedy.is_settled:
                return Counter(region.kind for region in regions for _ in region.origins)
        barred.update(dropped)


def codegen_refused(region: Region, error: Exception) -> PluginError:
    """Return the error for a plugin that took a region in ``annotate`` and cannot compile it."""
    rows = ", ".join(sorted(set(region.rows.values())))
    return PluginError(
        f"'{region.kind}' took region '{region.name}' (rows {rows}) but cannot compile it: {error}",
        where=region.nodes[0] if region.nodes else region.name,
        hint=f"report it to the plugin of '{region.kind}'; "
        f"meanwhile keep the nodes away from it with --place 'NODE!={region.kind}'",
    )


def _check_forced(
    annotated: Annotated, forced: Mapping[Call, PlaceRule], labels: Mapping[Call, str]
) -> None:
    """Refuse to leave a call elsewhere than where the user sends it."""
    refused: list[tuple[Call, PlaceRule]] = []
    for call, rule in forced.items():
        taken = annotated.claimed.get(call)
        if taken is None or taken.kind != rule.kind:
            refused.append((call, rule))
    if not refused:
        return
    call, rule = refused[0]
    support = annotated.verdicts[call][annotated.kinds.index(rule.kind)]
    others = f" ({len(refused) - 1} other nodes neither)" if len(refused) > 1 else ""
    raise UnsupportedError(
        f"'{labels[call]}' cannot go to '{rule.kind}', where rule '{rule.text}' sends it{others}: "
        f"{support.code.value}: {support.detail}",
        where=str(call.span),
        hint=f"intarsia explain MODEL '{labels[call]}' says what every accelerator can do",
    )


def _crossing(merged: Merged) -> dict[tuple[Call, str], Support]:
    """Return a verdict for matches that merging could not place: parts are in other branches."""
    inside = {node for group in merged.groups if group.kind for node in group.nodes}
    claimed = merged.annotated.claimed
    verdict = Support.no(Code.UNSUPPORTED_OP, "its pattern crosses the border of a branch")
    return {(call, taken.kind): verdict for call, taken in claimed.items() if call not in inside}
