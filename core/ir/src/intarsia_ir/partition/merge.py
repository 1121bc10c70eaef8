# SPDX-License-Identifier: Apache-2.0
"""Merge: grow regions as large as they can be while the graph of regions has no cycle.

Two steps. *Levels*: walking in topological order, a unit's level is the highest level of its
operands, plus one wherever the accelerator changes; connected units of one accelerator on one level
become a region. An edge never lowers the level and leaves a region only upwards, so this makes no
cycle, in linear time. *Contraction*: two regions of one accelerator joined by an edge become one if
no other path leads from the first to the second; a topological order of the regions bounds each
search, and is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from intarsia_ir.graph.scopes import ExprScope, scopes
from intarsia_ir.graph.walk import children, post_order

from .annotate import Annotated, ClaimedMatch
from .joined import CyclicPart, join_units
from .quotient import Quotient

SEARCH_BUDGET = 4_000_000  # steps of all searches together: bounds the time of hostile graphs


class Group(Struct, frozen=True, eq=False):
    """Nodes that stay together: a future region, or one unit of the fallback's part.

    Attributes:
        kind: The accelerator; empty for the fallback.
        nodes: In topological order of the function.
        claimed: The matches in it; empty for the fallback.
    """

    kind: str
    nodes: tuple[Expr, ...]
    claimed: tuple[ClaimedMatch, ...] = ()


class Apart(Struct, frozen=True):
    """Two neighbouring regions of one accelerator that could not be merged.

    Attributes:
        kind: The accelerator.
        producer: A node of the first region.
        consumer: A node of the second.
        via: A node that the producer leads to and that leads to the consumer.
    """

    kind: str
    producer: Span
    consumer: Span
    via: Span


class Merged(Struct, frozen=True, eq=False):
    """The function cut into groups.

    Attributes:
        annotated: What was merged.
        groups: All groups, in an order in which they can run.
        apart: Merges refused because they would make a cycle.
    """

    annotated: Annotated
    groups: tuple[Group, ...]
    apart: tuple[Apart, ...] = ()


class _Unit(Struct, eq=False):
    """The smallest thing that is placed: a match with its field accesses, or one other node.

    A part that is built as it is, is one unit too.
    """

    index: int
    kind: str
    scope: ExprScope
    claimed: tuple[ClaimedMatch, ...]
    nodes: list[Expr]
    part: int = 0

    @property
    def key(self) -> tuple[str, int, int]:
        """Units with equal keys may be in one region."""
        return (self.kind, id(self.scope), self.part) if self.kind else ("", 0, 0)


class Grouped(Struct, frozen=True, eq=False):
    """Units, which are numbers, cut into groups.

    Attributes:
        first: For each unit, the first unit of the group it was in before contraction.
        quotient: The groups, acyclic and in order.
        apart: Units that could not be merged: producer, consumer, and one on a path between.
    """

    first: Sequence[int]
    quotient: Quotient
    apart: Sequence[tuple[int, int, int]]

    def group_of(self, unit: int) -> int:
        """Return the unit that stands for the group of ``unit``."""
        return self.quotient.find(self.first[unit])


def group_units(
    keys: Sequence[int], edges: Sequence[tuple[int, int]], *, budget: int = SEARCH_BUDGET
) -> Grouped:
    """Cut a graph of units into maximal groups with equal keys and no cycle between groups.

    Args:
        keys: For each unit, in topological order, what it may share a group with; 0 for the
            fallback, whose units stay alone.
        edges: Distinct (producer, consumer), ordered by consumer.
        budget: Steps that all searches for cycles may take together; beyond it, groups stay apart.
    """
    first = _level_groups(keys, edges)
    quotient = Quotient.of(first, edges)
    return Grouped(first, quotient, _contract(keys, quotient, budget))


def merge(
    annotated: Annotated,
    *,
    parts: Sequence[frozenset[Call]] = (),
    budget: int = SEARCH_BUDGET,
) -> Merged:
    """Cut the function into maximal groups of one accelerator each.

    Args:
        annotated: Answers of the accelerators.
        parts: Disjoint sets of calls of one accelerator each that are groups of their own, as far
            as it has them.
        budget: As of :func:`group_units`.

    Raises:
        CyclicPart: A part cannot be a group.
    """
    units, unit_of = _units(annotated)
    edges = _edges(units, unit_of)
    if parts:
        units, edges = _joined(units, edges, unit_of, parts)
    numbers: dict[tuple[str, int, int], int] = {("", 0, 0): 0}
    keys = [numbers.setdefault(unit.key, len(numbers)) for unit in units]
    grouped = group_units(keys, edges, budget=budget)
    members: dict[int, list[_Unit]] = {}
    for unit in units:
        members.setdefault(grouped.group_of(unit.index), []).append(unit)
    position = {unit_node: i for i, unit_node in enumerate(_nodes(annotated))}
    order = grouped.quotient.in_order()
    groups = tuple(_group(members[root], position) for root in order)
    return Merged(annotated, groups, tuple(_apart(units, *refused) for refused in grouped.apart))


def _nodes(annotated: Annotated) -> list[Expr]:
    order = post_order(annotated.function.body)
    return [node for node in order if not isinstance(node, Var | Constant)]


def _units(annotated: Annotated) -> tuple[list[_Unit], dict[Expr, int]]:
    """Return the units in topological order, and the unit of every node."""
    scope_of = scopes(annotated.function.body)
    units: list[_Unit] = []
    unit_of: dict[Expr, int] = {}
    for node in _nodes(annotated):
        if isinstance(node, TupleGetItem) and node.tuple in unit_of:
            owner = unit_of[node.tuple]
            unit_of[node] = owner
            units[owner].nodes.append(node)
            continue
        claimed = annotated.claimed.get(node) if isinstance(node, Call) else None
        if claimed is not None and claimed.match.root is not node:
            continue
        index = len(units)
        nodes: list[Expr] = [node] if claimed is None else list(claimed.match.calls)
        scope = scope_of[node]
        kind = "" if claimed is None or _spans_scopes(nodes, scope_of) else claimed.kind
        found = (claimed,) if kind and claimed is not None else ()
        units.append(_Unit(index, kind, scope, found, nodes))
        unit_of.update(dict.fromkeys(nodes, index))
    return units, unit_of


def _joined(
    units: list[_Unit],
    edges: list[tuple[int, int]],
    unit_of: dict[Expr, int],
    parts: Sequence[frozenset[Call]],
) -> tuple[list[_Unit], list[tuple[int, int]]]:
    """Make one unit of each part, and sort units and edges anew."""
    inside = [{unit_of[call] for call in part if units[unit_of[call]].kind} for part in parts]
    known = [tuple(sorted(numbers)) for numbers in inside if numbers]
    joined = join_units(len(units), edges, known)
    if joined.cyclic:
        numbers = [n for n, found in enumerate(inside) if found]
        raise CyclicPart([numbers[n] for n in joined.cyclic])
    part_of = {numbers: n + 1 for n, numbers in enumerate(known)}
    made: list[_Unit] = []
    new: dict[int, int] = {}
    for members in joined.order:
        old = [units[number] for number in members]
        new.update(dict.fromkeys(members, len(made)))
        nodes = [node for unit in old for node in unit.nodes]
        claimed = tuple(row for unit in old for row in unit.claimed)
        row = (len(made), old[0].kind, old[0].scope, claimed, nodes, part_of.get(members, 0))
        made.append(_Unit(*row))
    found = {(new[b], new[a]) for a, b in edges if new[a] != new[b]}
    return made, [(a, b) for b, a in sorted(found)]


def _spans_scopes(nodes: list[Expr], scope_of: dict[Expr, ExprScope]) -> bool:
    return any(scope_of[node] is not scope_of[nodes[-1]] for node in nodes)


def _edges(units: list[_Unit], unit_of: dict[Expr, int]) -> list[tuple[int, int]]:
    """Return the distinct edges between units, by consumer."""
    edges: list[tuple[int, int]] = []
    for unit in units:
        operands = (child for node in unit.nodes for child in children(node))
        found = {unit_of[child] for child in operands if child in unit_of}
        edges.extend((producer, unit.index) for producer in sorted(found - {unit.index}))
    return edges


def _level_groups(keys: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return for each unit the first unit of its group."""
    level = [0] * len(keys)
    for producer, consumer in edges:
        step = 0 if keys[producer] == keys[consumer] else 1
        level[consumer] = max(level[consumer], level[producer] + step)
    parent = list(range(len(keys)))

    def find(unit: int) -> int:
        while parent[unit] != unit:
            parent[unit] = parent[parent[unit]]
            unit = parent[unit]
        return unit

    for producer, consumer in edges:
        same = keys[producer] and keys[producer] == keys[consumer]
        if same and level[producer] == level[consumer]:
            a, b = find(producer), find(consumer)
            parent[max(a, b)] = min(a, b)
    return [find(unit) for unit in range(len(keys))]


def _contract(keys: Sequence[int], quotient: Quotient, budget: int) -> list[tuple[int, int, int]]:
    """Merge neighbours where that makes no cycle; return where it would."""
    apart: list[tuple[int, int, int]] = []
    for producer, consumer in quotient.edges():
        if not keys[producer] or keys[producer] != keys[consumer]:
            continue
        a, b = quotient.find(producer), quotient.find(consumer)
        if a == b:
            continue
        if quotient.steps > budget:
            break
        blocker = quotient.contract(a, b)
        if blocker is not None:
            apart.append((producer, consumer, blocker))
    return apart


def _apart(units: Sequence[_Unit], producer: int, consumer: int, via: int) -> Apart:
    spans = (units[index].nodes[-1].span for index in (producer, consumer, via))
    return Apart(units[producer].kind, *spans)


def _group(units: list[_Unit], position: dict[Expr, int]) -> Group:
    nodes = sorted((node for unit in units for node in unit.nodes), key=position.__getitem__)
    claimed = tuple(row for unit in units for row in unit.claimed)
    return Group(units[0].kind, tuple(nodes), claimed)


def is_tuple_only(group: Group) -> bool:
    """Whether a fallback group only bundles values, so that it is no work."""
    return all(isinstance(node, Tuple | TupleGetItem) for node in group.nodes)
