# SPDX-License-Identifier: Apache-2.0
"""Functions that control flow carries out are partitioned like ``main``, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from msgspec.structs import replace

from intarsia_runtime.artifact.members import part_unit

from ..graph.control import bodies_of
from ..graph.module import IRModule
from .annotate import annotate
from .labels import label_calls
from .partition import PartitionResult
from .report import LeftRow, Placement, PlanCosts, RegionRow, Verdict
from .rules import PlaceRule, check_rules


def rules_of_parts(rules: Sequence[PlaceRule]) -> tuple[PlaceRule, ...]:
    """Return the rules for models that are cut one by one, of which only some have the nodes."""
    return tuple(replace(rule, of_a_part=True) for rule in rules)


def partition_functions(
    module: IRModule,
    rules: Sequence[PlaceRule],
    partition_main: Callable[[IRModule, Sequence[PlaceRule]], PartitionResult],
) -> PartitionResult:
    """Partition ``main`` and the functions that it carries out.

    Args:
        module: A prepared module.
        rules: What the user says of single nodes, in any of the functions.
        partition_main: Partitions the ``main`` of a module; regions get names that no function of
            the module has.

    Raises:
        UsageError: A rule names no node.
    """
    bodies = bodies_of(module.functions)
    if not bodies:
        return partition_main(module, rules)
    functions = {"main": module.main, **{name: module.functions[name] for name in bodies}}
    if rules:
        labels = [label_calls(annotate(one, ()).calls) for one in functions.values()]
        check_rules(rules, [name for one in labels for name in one.values()])
    parts = rules_of_parts(rules)
    found: dict[str, PartitionResult] = {}
    for name, function in functions.items():
        one = partition_main(module.with_main(function), parts)
        made = {**one.module.functions, name: one.module.main}
        if name != "main":
            made["main"] = module.main
        module = module.with_functions(made)
        found[name] = one
    return PartitionResult(
        module,
        tuple(region for one in found.values() for region in one.regions),
        join_placements({name: one.placement for name, one in found.items()}),
    )


def join_placements(
    pieces: Mapping[str, Placement], taken: Set[str] = frozenset(), *, is_named: bool = False
) -> Placement:
    """Return the placement of several functions that are partitioned one by one.

    Args:
        pieces: Placement of each by its name.
        taken: Names of nodes that are none of theirs.
        is_named: Whether regions are called as units of the piece they are in.
    """
    verdicts: list[Verdict] = []
    regions: list[RegionRow] = []
    for piece, placement in pieces.items():
        names = {row.node for row in placement.verdicts}
        names.update(node for row in placement.regions for node in row.nodes)
        new = {name: f"{piece}:{name}" if name in taken else name for name in names}
        taken = taken | names
        verdicts += [replace(row, node=new[row.node]) for row in placement.verdicts]
        for row in placement.regions:
            called = part_unit(piece, row.name) if is_named else row.name
            inside = tuple(new[node] for node in row.nodes)
            regions.append(replace(row, name=called, nodes=inside))
    return Placement(
        nodes=sum(placement.nodes for placement in pieces.values()),
        offloaded=sum(placement.offloaded for placement in pieces.values()),
        regions=tuple(regions),
        verdicts=tuple(verdicts),
        border_bytes=sum(placement.border_bytes for placement in pieces.values()),
        apart=tuple(row for placement in pieces.values() for row in placement.apart),
        in_float=tuple(name for placement in pieces.values() for name in placement.in_float),
        cost=_summed([placement.cost for placement in pieces.values()]),
        simulated={k: v for placement in pieces.values() for k, v in placement.simulated.items()},
        left=_left([row for placement in pieces.values() for row in placement.left]),
        faster=sum(placement.faster for placement in pieces.values()),
        fallback=next((p.fallback for p in pieces.values() if p.faster), "the fallback"),
    )


def _left(rows: Sequence[LeftRow]) -> tuple[LeftRow, ...]:
    """One row for each accelerator, with the nodes of all pieces."""
    kinds = dict.fromkeys(row.accelerator for row in rows)
    mine = {kind: [row for row in rows if row.accelerator == kind] for kind in kinds}
    return tuple(
        LeftRow(kind, sum(row.nodes for row in found), sum(row.greedy for row in found))
        for kind, found in mine.items()
    )


def _summed(costs: Sequence[PlanCosts | None]) -> PlanCosts | None:
    """What all pieces cost; nothing if the costs of one were not compared."""
    known = [cost for cost in costs if cost is not None]
    if not known or len(known) < len(costs):
        return None
    return PlanCosts(
        sum(cost.chosen for cost in known),
        sum(cost.greedy for cost in known),
        sum(cost.fallback for cost in known),
        sum((Counter(cost.sources) for cost in known), Counter[str]()),
    )
