# SPDX-License-Identifier: Apache-2.0
"""The user's rules for single nodes, and the placement of a program from that of its pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from msgspec.structs import replace

from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_ir.regions.support import Code
from intarsia_runtime.artifact.write import part_unit
from intarsia_runtime.errors import UnsupportedError, UsageError

from ..partition.annotate import annotate
from ..partition.labels import label_calls
from ..partition.report import HostRow, LeftRow, Placement, PlanCosts, RegionRow, Verdict
from ..partition.rules import PlaceRule, check_rules, names_node, parse_place_rule

if TYPE_CHECKING:
    from intarsia_onnx.dynamic import DynamicModel


def rules_of(place: Mapping[str, str]) -> tuple[PlaceRule, ...]:
    """Return the rules that a mapping of node names or patterns to target kinds stands for.

    Args:
        place: ``{"softmax*": "npu"}`` sends nodes to a kind, ``{"conv1": "!npu"}`` forbids it.

    Raises:
        UsageError: A key or a value is no text, or an empty one.
    """
    rules: list[PlaceRule] = []
    for nodes, kind in place.items():
        if not isinstance(nodes, str) or not isinstance(kind, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's dictionary may hold anything
            raise UsageError(
                f"place={{{nodes!r}: {kind!r}}} is not a mapping of nodes to a kind",
                hint="for example place={'softmax*': 'npu'}",
            )
        text = f"{nodes}!={kind[1:]}" if kind.startswith("!") else f"{nodes}={kind}"
        rules.append(parse_place_rule(text))
    return tuple(rules)


def rules_of_parts(rules: Sequence[PlaceRule]) -> tuple[PlaceRule, ...]:
    """Return the rules for models that are cut one by one, of which only some have the nodes."""
    return tuple(replace(rule, of_a_part=True) for rule in rules)


def check_host_rules(model: DynamicModel, rules: Sequence[PlaceRule]) -> None:
    """Refuse a rule that sends a node of a program to a target kind, but the host runs that node.

    Raises:
        UnsupportedError: A rule does; it says why the node is not compiled.
    """
    for rule in rules:
        for node in () if rule.forbid else model.on_host:
            name = node.span.name
            if names_node(rule, name):
                why = model.reasons.get(name, "") or "it is carried out on the host"
                raise UnsupportedError(
                    f"'{name}' cannot go to '{rule.kind}', where rule '{rule.text}' sends it: "
                    f"it runs in NumPy on the host: {why}",
                    where=str(node.span),
                    hint=f"narrow the pattern, or leave '{name}' on the host",
                )


def check_place_rules(
    model: DynamicModel, placement: Placement, rules: Sequence[PlaceRule]
) -> None:
    """Refuse a rule that names no node of a program.

    Args:
        model: The program.
        placement: Its report; accelerators say something of every node.
        rules: What the user says.

    Raises:
        UsageError: A rule names none.
    """
    if not rules:
        return
    names = dict.fromkeys(row.node for row in placement.verdicts)
    if not names:
        names.update((node.span.name, None) for node in model.on_host)
        for piece in model.pieces.values():
            prepared = PREPARE.run(piece, remarks=Remarks())
            names.update(dict.fromkeys(label_calls(annotate(prepared.main, ()).calls).values()))
    check_rules(rules, names)


def merge_placements(
    model: DynamicModel, pieces: Mapping[str, Placement], kinds: Sequence[str]
) -> Placement:
    """Return the placement of a program: that of its pieces, and its nodes on the host.

    A region of one of several pieces is called as its unit in the artifact, and a node whose name
    is in two pieces is told apart by the piece.

    Args:
        model: The program.
        pieces: Placement of each piece.
        kinds: Accelerators of the target; each says no to what runs on the host.
    """
    rows = tuple(
        HostRow(node.span.name, node.op_type, model.reasons.get(node.span.name, ""))
        for node in model.on_host
    )
    verdicts = [
        Verdict(row.node, row.op, kind, "no", Code.UNSUPPORTED_OP.value, why)
        for row in rows
        for kind in dict.fromkeys(kinds)
        for why in [row.reason or "it is carried out on the host"]
    ]
    joined = join_placements(pieces, {row.node for row in rows}, is_named=len(pieces) > 1)
    return replace(
        joined,
        nodes=joined.nodes + len(rows),
        verdicts=(*verdicts, *joined.verdicts),
        host=rows,
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
