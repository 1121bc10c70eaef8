# SPDX-License-Identifier: Apache-2.0
"""Pictures of a placement: layout, page, Graphviz, properties of the model's nodes."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Expr, Function, Var, call, constant, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.pattern import op
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.activation import Relu
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.unary import Exp, Tanh
from intarsia_ir.partition.cost import Plan
from intarsia_ir.partition.partition import partition
from intarsia_ir.regions.support import Code, Support, SupportRow, SupportTable
from intarsia_runtime.dtype import DType
from intarsia_tools.drawing.dot import dot_text
from intarsia_tools.drawing.html import html_text
from intarsia_tools.drawing.layout import NODE_WIDTH, lay_out
from intarsia_tools.drawing.model_explorer import model_explorer_text
from intarsia_tools.drawing.placed_graph import PlacedGraph, placed_graph
from intarsia_tools.drawing.write import node_properties

TYPE = TensorType((2, 8), DType.FLOAT32)


def yes(_match: object) -> Support:
    return Support.yes()


def no(_match: object) -> Support:
    return Support.no(Code.UNSUPPORTED_DTYPE, "only <int8> & such")


TABLES = [
    (
        "first",
        SupportTable([SupportRow("relu", op("nn.relu"), yes), SupportRow("t", op("tanh"), no)]),
    ),
    (
        "second",
        SupportTable([SupportRow("relu", op("nn.relu"), yes), SupportRow("add", op("add"), yes)]),
    ),
]


def placed(main: Function) -> PlacedGraph:
    report = partition(IRModule.from_function(main), TABLES, plan=Plan.GREEDY).placement
    return placed_graph(main, report, "loops")


@pytest.fixture
def graph() -> PlacedGraph:
    """x -> relu -> tanh -> add(weight) -> y, with names that a page must quote."""
    x = Var("x", TYPE)
    weight = constant(np.ones((2, 8), np.float32), name="w")
    a = call(Relu, x, span=Span("</script><b>"))
    b = call(Tanh, a, span=Span("squash"))
    c = call(Add, b, weight, span=Span("sum"))
    return placed(Function((x,), make_tuple([c, a]), ("y", "z")))


def test_nodes_carry_verdicts_and_who_else_could_take_them(graph: PlacedGraph) -> None:
    by_name = {node.name: node for node in graph.nodes}
    relu, squash, total = by_name["</script><b>"], by_name["squash"], by_name["sum"]
    assert (relu.kind, relu.region, relu.others) == ("first", "first_0", ("second",))
    assert (squash.kind, squash.region, squash.others) == ("loops", "", ())
    assert total.weights == ("w: float32 2x8",)
    assert [row.code for row in squash.verdicts] == ["unsupported-dtype", "unsupported-op"]
    assert [node.op for node in graph.nodes] == [
        "input",
        "nn.relu",
        "tanh",
        "add",
        "output",
        "output",
    ]


def test_edges_say_what_crosses_a_border(graph: PlacedGraph) -> None:
    rows = [
        (graph.nodes[e.source].op, graph.nodes[e.target].op, e.dtype, e.shape, e.bytes, e.border)
        for e in graph.edges
    ]
    assert rows == [
        ("input", "nn.relu", "float32", "2x8", 64, True),
        ("nn.relu", "tanh", "float32", "2x8", 64, True),
        ("tanh", "add", "float32", "2x8", 64, True),
        ("add", "output", "float32", "2x8", 64, True),
        ("nn.relu", "output", "float32", "2x8", 64, True),
    ]


class Page(HTMLParser):
    """Collects tags, attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def test_the_page_needs_no_network_and_quotes_names(graph: PlacedGraph) -> None:
    text = html_text(graph, "a <model> & more", "first, second, loops -x=1")
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "b"} & set(page.tags)
    assert page.tags.count("script") == 2
    names = {name for name, _ in page.attributes}
    assert not {"src", "srcset", "onclick", "onload"} & names
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)|@\w+@", text)
    assert "default-src 'none'" in text
    data = json.loads(page.scripts[0])
    assert [node["name"] for node in data["nodes"]][1] == "</script><b>"
    assert data["nodes"][2]["verdicts"][0][3] == "only <int8> & such"
    assert data["regions"][0][:3] == ["first_0", 1, 1]
    assert "<h1>a &lt;model&gt; &amp; more</h1>" in text
    assert "float32 2x8, 64 B" in text
    assert 'role="application" tabindex="0"' in text


def test_a_page_with_a_thousand_nodes_is_small_and_quick() -> None:
    x = Var("x", TYPE)
    value: Expr = x
    kept: list[Expr] = []
    for number in range(500):
        value = call(Exp, value, span=Span(f"model/block_{number // 10}/layer_{number}/exp"))
        kept.append(value)
        other = kept[max(0, number - 17)]
        value = call(Add, value, other, span=Span(f"model/block_{number // 10}/layer_{number}/add"))
    graph = placed(Function((x,), value, ("y",)))
    began = time.process_time()
    text = html_text(graph, "m", "t")
    assert time.process_time() - began < 3
    assert len(text.encode()) < 5_000_000
    assert text.count('class="n') == len(graph.nodes) >= 1000


def test_the_same_graph_gives_the_same_page(graph: PlacedGraph) -> None:
    assert html_text(graph, "m", "t") == html_text(graph, "m", "t")


def test_nodes_do_not_overlap_and_values_flow_downwards() -> None:
    edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 5), (0, 6), (4, 6), (5, 6), (7, 6)]
    layout = lay_out(8, edges)
    for source, target in edges:
        assert layout.centres[source][1] < layout.centres[target][1]
    rows: dict[float, list[float]] = {}
    for x, y in layout.centres:
        rows.setdefault(y, []).append(x)
        assert 0 <= x - NODE_WIDTH / 2 <= x + NODE_WIDTH / 2 <= layout.width
        assert 0 < y < layout.height
    for places in rows.values():
        assert all(b - a >= NODE_WIDTH for a, b in pairwise(sorted(places)))
    for (source, target), path in zip(edges, layout.paths, strict=True):
        assert (path[0], path[-1]) == (layout.centres[source], layout.centres[target])
        assert all(below[1] > above[1] for above, below in pairwise(path))


def test_an_empty_graph_has_a_layout() -> None:
    layout = lay_out(0, [])
    assert layout.centres == ()
    assert layout.height == 0


def test_dot(graph: PlacedGraph) -> None:
    text = dot_text(graph)
    assert 'subgraph "cluster_first_0" {' in text
    assert 'n1 [label="nn.relu\\n</script><b>", fillcolor="#8ecae6"];' in text
    assert 'n1 -> n2 [penwidth=2, label="float32 2x8, 64 B"];' in text
    assert text.count("{") == text.count("}")


def test_model_explorer(graph: PlacedGraph) -> None:
    made = json.loads(model_explorer_text(graph, "m.onnx"))
    (drawn,) = made["graphs"]
    assert (made["label"], len(drawn["nodes"])) == ("m.onnx", len(graph.nodes))
    ids = [node["id"] for node in drawn["nodes"]]
    assert len(set(ids)) == len(ids)
    edges = [(e["sourceNodeId"], n["id"]) for n in drawn["nodes"] for e in n["incomingEdges"]]
    assert sorted(edges) == sorted((str(e.source), str(e.target)) for e in graph.edges)
    for node, placed_node in zip(drawn["nodes"], graph.nodes, strict=True):
        assert bool(node["namespace"]) == bool(placed_node.region)
        keys = [pair["key"] for pair in node["attrs"]]
        assert sum(key.startswith("verdict of ") for key in keys) == len(placed_node.verdicts)
        inputs = [edge["targetNodeInputId"] for edge in node["incomingEdges"]]
        assert inputs == [str(number) for number in range(len(inputs))]


def test_properties_of_the_models_nodes(graph: PlacedGraph) -> None:
    found = node_properties(graph)
    assert found["squash"] == {
        "intarsia.placed": "loops",
        "intarsia.region": "",
        "intarsia.verdict.first": "unsupported-dtype: only <int8> & such",
        "intarsia.verdict.second": "unsupported-op: no row for 'tanh'",
    }
    assert found["</script><b>"]["intarsia.region"] == "first_0"
