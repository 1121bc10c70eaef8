# SPDX-License-Identifier: Apache-2.0
"""The graph of a model with its placement, as plain data to draw or to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from intarsia_ir.graph.expr import Call, Constant, Expr, Function
from intarsia_ir.graph.text.spelling import attrs_text
from intarsia_ir.graph.types import TensorType, TupleType, Type
from intarsia_ir.graph.walk import children, post_order
from intarsia_ir.partition.labels import label_calls
from intarsia_ir.partition.report import Placement, Verdict
from intarsia_ir.regions.support import Code

INPUT = "input"
OUTPUT = "output"


class PlacedNode(Struct, frozen=True):
    """A call, an input or an output of the model.

    Attributes:
        name: Unique among the calls; the name of an input or output.
        origin: Name of the model's node it came from.
        op: Operator, or ``input`` or ``output``.
        type: Of the result, in words.
        kind: Target kind that computes it; empty for inputs and outputs.
        region: Its region; empty if the fallback computes it.
        attributes: In words, without those at their default.
        weights: Names and types of the constants it reads.
        verdicts: What each accelerator says.
    """

    name: str
    origin: str
    op: str
    type: str
    kind: str
    region: str
    attributes: str
    weights: tuple[str, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def others(self) -> tuple[str, ...]:
        """Accelerators that would take it, had another one not come first."""
        code = Code.OUTVOTED.value
        return tuple(row.accelerator for row in self.verdicts if row.code == code and self.region)


class PlacedEdge(Struct, frozen=True):
    """A value that flows from one node to another.

    Attributes:
        source: Index of the node that computes it.
        target: Index of the node that reads it.
        dtype: Element type, or ``tuple``.
        shape: Sizes, in words.
        bytes: Size; 0 if it is not known at compile time.
        border: Whether it enters or leaves a region.
    """

    source: int
    target: int
    dtype: str
    shape: str
    bytes: int
    border: bool


class PlacedGraph(Struct, frozen=True):
    """Nodes, operands before users, and the values between them.

    Attributes:
        nodes: Inputs, calls, outputs.
        edges: In the order of the nodes that read them.
        fallback: Target kind that computes what no accelerator takes.
        placement: The report.
    """

    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    fallback: str
    placement: Placement


def placed_graph(main: Function, placement: Placement, fallback: str) -> PlacedGraph:
    """Join a prepared function, before it is cut, with the report of cutting it.

    Args:
        main: The function that was partitioned.
        placement: The report.
        fallback: Name of the fallback's kind.
    """
    order = tuple(post_order(main.body))
    labels = label_calls([node for node in order if isinstance(node, Call)])
    regions = {name: row for row in placement.regions for name in row.nodes}
    verdicts: dict[str, list[Verdict]] = {}
    for row in placement.verdicts:
        verdicts.setdefault(row.node, []).append(row)
    nodes = [
        PlacedNode(param.name, "", INPUT, _words(param.type), "", "", "", (), ())
        for param in main.params
    ]
    edges: list[PlacedEdge] = []
    sources: dict[Expr, tuple[int, ...]] = {
        param: (index,) for index, param in enumerate(main.params)
    }
    for expr in order:
        if not isinstance(expr, Call):
            if expr not in sources:
                found = (source for child in children(expr) for source in sources[child])
                sources[expr] = tuple(dict.fromkeys(found))
            continue
        name = labels[expr]
        region = regions.get(name)
        at = len(nodes)
        nodes.append(
            PlacedNode(
                name,
                expr.span.name,
                expr.name,
                _words(expr.type),
                region.accelerator if region else fallback,
                region.name if region else "",
                _attributes(expr),
                tuple(_weight(arg) for arg in expr.args if isinstance(arg, Constant)),
                tuple(verdicts.get(name, ())),
            )
        )
        edges += _edges(expr.args, at, nodes, sources)
        sources[expr] = (at,)
    for number, value in enumerate(main.outputs):
        name = main.output_names[number] if main.output_names else f"output {number}"
        at = len(nodes)
        nodes.append(PlacedNode(name, "", OUTPUT, _words(value.type), "", "", "", (), ()))
        edges += _edges([value], at, nodes, sources)
    return PlacedGraph(tuple(nodes), tuple(edges), fallback, placement)


def _edges(
    values: Sequence[Expr],
    target: int,
    nodes: Sequence[PlacedNode],
    sources: Mapping[Expr, Sequence[int]],
) -> list[PlacedEdge]:
    """Values that a node reads, each once."""
    made: list[PlacedEdge] = []
    for value in dict.fromkeys(values):
        for source in sources[value]:
            border = nodes[source].region != nodes[target].region
            shape, dtype, count = _facts(value.type)
            made.append(PlacedEdge(source, target, dtype, shape, count, border))
    return made


def _facts(type_: Type) -> tuple[str, str, int]:
    if isinstance(type_, TensorType):
        shape = "x".join(str(size) for size in type_.shape) or "scalar"
        return shape, type_.dtype.value, type_.bytes if type_.is_static else 0
    return f"{len(type_.fields)} fields", "tuple", 0


def _words(type_: Type) -> str:
    if isinstance(type_, TupleType):
        return ", ".join(_words(part) for part in type_.fields)
    shape, dtype, _ = _facts(type_)
    return f"{dtype} {shape}"


def _weight(value: Constant) -> str:
    return f"{value.name or 'constant'}: {_words(value.type)}"


def _attributes(call: Call) -> str:
    return ", ".join(attrs_text(call.attrs))
