# SPDX-License-Identifier: Apache-2.0
"""Graphs inside a step of a program: what of a branch, or of the body of a loop, is compiled.

A body is planned like a model. Its inputs are what the step gives it and what it takes from around
it. The types of what a loop carries are found by going round: a size that differs behind a turn
from what it was before is a size variable of its own, until nothing changes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import Dim, Size, TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_runtime.dtype import DType

from ..graph import Graph, Node
from ..kernels import OWN_DOMAIN
from .program import PIECE, PieceStep, Program
from .results import opened

MOST_ROUNDS = 4
"""Most times that a loop's body is planned to find the types of what it carries."""

LEAST_CALLS = 3
"""Fewest operators that pieces of a body have on average, or a contraction, so that calling them
costs less than carrying out the nodes: a call takes some 20 microseconds, a node five."""

BRANCHES = ("then_branch", "else_branch")
"""Attributes of ``If`` with its graphs."""

_Types: TypeAlias = "Sequence[TensorType | None]"


class Body(Struct, frozen=True):
    """A planned graph inside a node.

    Attributes:
        graph: The graph, with its compiled pieces as nodes.
        pieces: These pieces, by name.
        reasons: For its other nodes, why the host carries them out.
        results: Types of its results; ``None`` where the rank is not known.
    """

    graph: Graph
    pieces: Mapping[str, IRModule]
    reasons: Mapping[str, str]
    results: _Types


PlanBody: TypeAlias = Callable[[Graph, _Types], "Body | None"]
"""Plans a graph for types of its inputs; ``None`` if it cannot be imported at all."""

Known: TypeAlias = Callable[[Size], bool]
"""Whether a size is known outside of the graph."""


class Planned(Struct, frozen=True):
    """A control flow node of which the graphs are planned.

    Attributes:
        bodies: Planned graphs by the name of the attribute.
        types: Types of its results by name, of those whose rank is known.
    """

    bodies: Mapping[str, Body]
    types: Mapping[str, TensorType]


def plan_control(node: Node, operands: _Types, plan: PlanBody, known: Known) -> Planned | None:
    """Plan the graphs of an ``If``, ``Loop`` or ``Scan`` that only the run can carry out.

    Args:
        node: The node.
        operands: Types of its operands; ``None`` for one left out, or of unknown rank.
        plan: Plans one of its graphs.
        known: Whether a size is known outside of them.

    Returns:
        ``None`` for another operator, or if a graph cannot be imported.
    """
    match node.op_type:
        case "If":
            return _if(node, plan, known)
        case "Loop":
            return _loop(node, operands, plan, known)
        case "Scan":
            return _scan(node, operands, plan, known)
        case _:
            return None


def as_graph(graph: Graph, program: Program) -> Graph:
    """Return a graph whose nodes are the steps of its program."""
    later: dict[str, list[Node]] = {}
    for name, source in program.aliases.items():
        span = Span(name, "Identity")
        later.setdefault(source, []).append(Node("Identity", "", (source,), (name,), {}, span))
    made = {name for step in program.steps for name in step.outputs}
    nodes = [node for source, rows in later.items() if source not in made for node in rows]
    for step in program.steps:
        nodes.append(_piece_node(step) if isinstance(step, PieceStep) else step)
        nodes += [node for name in step.outputs for node in later.get(name, ())]
    return replace(graph, initializers=program.constants, nodes=tuple(nodes))


def is_profitable(pieces: Mapping[str, IRModule]) -> bool:
    """Whether the pieces of a body do enough for what calling them costs."""
    found = [list(calls(piece.main)) for piece in pieces.values()]
    if any(call.op.kind is OpKind.ANCHOR for row in found for call in row):
        return True
    return bool(found) and sum(map(len, found)) >= LEAST_CALLS * len(found)


def _piece_node(step: PieceStep) -> Node:
    span = Span(step.name, PIECE)
    return Node(PIECE, OWN_DOMAIN, step.inputs, step.outputs, {"name": step.name}, span)


def _graph(node: Node, name: str) -> Graph | None:
    found = node.attrs.get(name)
    return found if isinstance(found, Graph) else None


def _if(node: Node, plan: PlanBody, known: Known) -> Planned | None:
    bodies: dict[str, Body] = {}
    for name in BRANCHES:
        graph = _graph(node, name)
        if graph is None:
            return None
        unknown = Body(graph, {}, {}, [None] * len(graph.outputs))
        bodies[name] = plan(graph, ()) or unknown  # one that never runs may not fit these sizes
    types: dict[str, TensorType] = {}
    rows = zip(node.outputs, *(body.results for body in bodies.values()), strict=False)
    for name, one, other in rows:
        merged = _merged(name, one, other)
        if merged is not None:
            types[name] = opened(name, merged, known)
    return Planned(bodies, types)


def _merged(name: str, one: TensorType | None, other: TensorType | None) -> TensorType | None:
    """Return the type of which both are; ``None`` if they differ in rank or element type."""
    if one is None or other is None or one.rank != other.rank or one.dtype is not other.dtype:
        return None
    sizes = zip(one.shape, other.shape, strict=True)
    return one.with_shape(
        a if a == b else variable(f"{name}.{axis}") for axis, (a, b) in enumerate(sizes)
    )


def _loop(node: Node, operands: _Types, plan: PlanBody, known: Known) -> Planned | None:
    body = _graph(node, "body")
    if body is None or len(body.inputs) < 2:
        return None
    fixed = (TensorType((), DType.INT64), TensorType((), DType.BOOL))
    names = [info.name for info in body.inputs[2:]]
    carried = [*operands[2:], *[None] * len(names)][: len(names)]
    found = _settled(body, names, carried, lambda types: plan(body, (*fixed, *types)), 1)
    if found is None:
        return None
    planned, state = found
    rows = planned.results[1 + len(state) :]
    turns = variable(f"{node.outputs[-1] or node.span.name} turns")
    types = [*state, *(None if r is None else r.with_shape((turns, *r.shape)) for r in rows)]
    return _closed(node, planned, types, known)


def _scan(node: Node, operands: _Types, plan: PlanBody, known: Known) -> Planned | None:
    body, count = _graph(node, "body"), node.attrs.get("num_scan_inputs")
    if body is None or not isinstance(count, int) or not 0 < count <= len(operands):
        return None
    if len(operands) != len(body.inputs):  # before opset 9 there is one for lengths
        return None
    border = len(operands) - count
    axes = node.attrs.get("scan_input_axes")
    wanted = axes if isinstance(axes, tuple) else (0,) * count
    slices: list[TensorType | None] = []
    turns: Size | None = None
    for type_, axis in zip(operands[border:], wanted, strict=False):
        if type_ is None or not isinstance(axis, int) or not -type_.rank <= axis < type_.rank:
            return None
        sizes = list(type_.shape)
        turns = sizes.pop(axis)
        slices.append(type_.with_shape(sizes))
    names = [info.name for info in body.inputs[:border]]
    found = _settled(body, names, operands[:border], lambda types: plan(body, (*types, *slices)), 0)
    if found is None or turns is None:
        return None
    planned, state = found
    to = node.attrs.get("scan_output_axes")
    types: list[TensorType | None] = [*state]
    for number, row in enumerate(planned.results[len(state) :]):
        axis = to[number] if isinstance(to, tuple) and number < len(to) else 0
        if row is None or not isinstance(axis, int):
            types.append(None)
            continue
        sizes = list(row.shape)
        sizes.insert(axis % (row.rank + 1), turns)
        types.append(row.with_shape(sizes))
    return _closed(node, planned, types, known)


def _closed(node: Node, body: Body, types: _Types, known: Known) -> Planned:
    """Name the results of a loop, with sizes that are known outside of its body."""
    pairs = zip(node.outputs, types, strict=False)
    found = {n: opened(n, t, known) for n, t in pairs if n and t is not None}
    return Planned({"body": body}, found)


def _settled(
    graph: Graph,
    names: Sequence[str],
    first: _Types,
    plan: Callable[[_Types], Body | None],
    skipped: int,
) -> tuple[Body, list[TensorType | None]] | None:
    """Plan a loop's body for types of what it carries that hold in every turn.

    Args:
        graph: The body.
        names: Its inputs that are carried.
        first: Their types before the first turn.
        plan: Plans the body for these types.
        skipped: How many results stand before those that are carried.
    """
    state = list(first)
    for _ in range(MOST_ROUNDS):
        body = plan(state)
        if body is None:
            return None
        after = body.results[skipped : skipped + len(state)]
        new = [_after(*row) for row in zip(names, state, after, strict=True)]
        if new == state:
            return body, state
        state = new
    return None


def _after(name: str, old: TensorType | None, new: TensorType | None) -> TensorType | None:
    """Return a type for what was of the one and is of the other behind a turn."""
    if old is None or new is None or old.rank != new.rank or old.dtype is not new.dtype:
        return None
    return old.with_shape(
        a if a == b else _own(name, axis) for axis, (a, b) in enumerate(_pairs(old, new))
    )


def _pairs(old: TensorType, new: TensorType) -> list[tuple[Size, Size]]:
    return list(zip(old.shape, new.shape, strict=True))


def _own(name: str, axis: int) -> Dim:
    return variable(f"{name}.{axis}")
