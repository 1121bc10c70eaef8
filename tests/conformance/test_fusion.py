# SPDX-License-Identifier: Apache-2.0
"""Graphs of several calls: what is fused, shared, viewed or returned twice stays right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, constant, get_item, make_tuple
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.dtype import DType
from intarsia_testkit.cases.case import difference, random_array, run_graph
from intarsia_testkit.cases.elementwise_cases import ATTRS, BINARY, UNARY, accepts

from .targets import TARGETS

PADDED = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
STRIDED = {"strides": (2, 2), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
POINT = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}


@dataclass
class Graph:
    """A function under construction, with arrays for its parameters and outputs to compare."""

    rng: np.random.Generator
    params: list[Var] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[Expr] = field(default_factory=list)

    def var(self, *shape: int, dtype: str = "float32", low: float = -1, high: float = 1) -> Var:
        """Add a parameter."""
        made = Var(f"x{len(self.params)}", TensorType(shape, DType(dtype)))
        self.params.append(made)
        self.inputs[made.name] = random_array(self.rng, shape, dtype, low, high)
        return made

    def weight(self, *shape: int, dtype: str = "float32") -> Expr:
        """A constant."""
        return constant(random_array(self.rng, shape, dtype, -1, 1))

    def apply(self, name: str, *args: Expr, **attrs: Any) -> Call:
        """Call an operator."""
        op = OPERATORS[name]
        return call(op, *args, attrs=op.Attrs(**attrs))

    def check(self, target: str, outputs: Sequence[Expr]) -> None:
        """Compile and compare with the reference executor."""
        function = Function(tuple(self.params), make_tuple(outputs))
        wanted = evaluate(function, self.inputs)
        found = run_graph(self.params, outputs, self.inputs, target)
        pairs = enumerate(zip(found, wanted, strict=True))
        wrong = [f"output {n}: {d}" for n, (a, b) in pairs if (d := difference(a, b, sums=True))]
        assert not wrong, "\n".join(wrong[:20])


@pytest.fixture
def graph() -> Graph:
    """An empty graph."""
    return Graph(np.random.default_rng(21))


def epilogues(g: Graph, anchor: Callable[[], Expr]) -> list[Expr]:
    """Every element-wise operator of float32 on the result of a fresh anchor."""
    outputs: list[Expr] = []
    for name in UNARY:
        for attrs in ATTRS.get(name, ({},)):
            if accepts(name, np.ones(3, np.float32), **attrs):
                inside = g.apply("clip", anchor(), min=0.05, max=0.95)
                shift = 1.0 if name in ("acosh", "log") else 0.0
                moved = g.apply("add", inside, constant(np.array(shift, np.float32)))
                outputs += [g.apply(name, anchor(), **attrs)] if _total(name) else []
                outputs.append(g.apply(name, moved, **attrs))
    for name in BINARY:
        if accepts(name, np.ones(3, np.float32), np.ones(3, np.float32)) and name != "power":
            x = anchor()
            outputs.append(g.apply(name, x, g.var(*x.type.shape, low=0.5, high=2)))
            one = constant(np.array(0.5, np.float32))
            outputs.append(g.apply(name, anchor(), one))
            outputs.append(g.apply(name, one, anchor()) if _total(name) else anchor())
            channels = x.type.shape[-1]
            outputs.append(g.apply(name, anchor(), g.weight(channels)))
    return outputs


def _total(name: str) -> bool:
    """Whether small errors of the operand stay small for all operands."""
    poles = ("reciprocal", "rsqrt", "log", "divide", "tan", "acos", "acosh", "asin", "atanh")
    steps = ("floor", "ceil", "round", "sign", "sqrt", "floor_mod", "trunc_mod")
    return name not in (*poles, *steps)


@pytest.mark.parametrize("target", TARGETS)
def test_every_epilogue_of_a_convolution(graph: Graph, target: str) -> None:
    x = graph.var(1, 5, 6, 7)
    w, bias = graph.weight(9, 5, 3, 3), graph.weight(9)

    def anchor() -> Expr:
        return graph.apply("nn.conv", x, w, bias, **PADDED)

    steep = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    outputs = [e for e in epilogues(graph, anchor) if e.name not in (*steep, *STEPS)]
    graph.check(target, outputs)


STEPS = ("floor", "ceil", "round", "sign", "floor_mod", "trunc_mod", "divide")


@pytest.mark.parametrize("target", TARGETS)
def test_every_epilogue_of_a_product(graph: Graph, target: str) -> None:
    # Small whole numbers: their products are exact, so comparisons and steps may follow.
    left = np.round(random_array(graph.rng, (6, 8), "float32"))
    weight = constant(np.round(random_array(graph.rng, (8, 17), "float32")))
    a = graph.var(6, 8)
    graph.inputs[a.name] = left

    def anchor() -> Expr:
        return graph.apply("matmul", a, weight)

    outputs = [e for e in epilogues(graph, anchor) if e.name not in ("exp", "sinh", "cosh")]
    graph.check(target, outputs)


@pytest.mark.parametrize("target", TARGETS)
def test_residual_blocks(graph: Graph, target: str) -> None:
    g, x = graph, graph.var(2, 16, 9, 9)
    outputs: list[Expr] = []
    for channels, attrs in ((16, PADDED), (17, PADDED), (32, STRIDED)):
        first = g.apply("nn.conv", x, g.weight(channels, 16, 3, 3), g.weight(channels), **attrs)
        first = g.apply("nn.relu", first)
        second = g.apply("nn.conv", first, g.weight(16, channels, 3, 3), **PADDED)
        if attrs is PADDED:
            second = g.apply("add", second, x)
        outputs.append(g.apply("nn.relu", second))
        outputs.append(first)  # an intermediate result that is an output too
    vectors = [g.weight(16) for _ in range(3)]
    variance = constant(random_array(g.rng, (16,), "float32", 0.5, 2))
    normal = g.apply("nn.batch_norm", outputs[0], *vectors, variance)
    pooled = g.apply("nn.max_pool", normal, kernel=(3, 3), **STRIDED)
    mean = g.apply("mean", pooled, axes=(2, 3), keepdims=True)
    point = g.apply("nn.conv", mean, g.weight(4, 16, 1, 1), **POINT)
    gate = g.apply("sigmoid", g.apply("nn.conv", point, g.weight(16, 4, 1, 1), **POINT))
    outputs.append(g.apply("multiply", pooled, gate))  # squeeze and excite
    outputs.append(g.apply("concatenate", pooled, outputs[-1], pooled, axis=1))
    g.check(target, outputs)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_attention(graph: Graph, target: str, dtype: str) -> None:
    g, x = graph, graph.var(2, 7, 24, dtype=dtype)
    mask = g.var(2, 1, 1, 7, dtype="bool")
    heads = []
    for axes in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        made = g.apply("matmul", x, g.weight(24, 24, dtype=dtype))
        made = g.apply("add", made, g.weight(24, dtype=dtype))
        made = g.apply("reshape", made, shape=(2, 7, 3, 8))
        heads.append(g.apply("transpose", made, axes=axes))
    scores = g.apply("matmul", heads[0], heads[1])
    scores = g.apply("multiply", scores, constant(np.array(0.3, dtype)))
    low = constant(np.array(-10000.0, dtype))
    weights = g.apply("nn.softmax", g.apply("where", mask, scores, low), axis=3)
    mixed = g.apply("transpose", g.apply("matmul", weights, heads[2]), axes=(0, 2, 1, 3))
    flat = g.apply("reshape", mixed, shape=(2, 7, 24))
    total = g.apply("add", g.apply("matmul", flat, g.weight(24, 24, dtype=dtype)), x)
    scale = g.weight(24, dtype=dtype)
    normal = g.apply("nn.layer_norm", total, scale, g.weight(24, dtype=dtype), axis=2)
    wide = g.apply("nn.gelu", g.apply("matmul", normal, g.weight(24, 33, dtype=dtype)))
    narrow = g.apply("matmul", wide, g.weight(33, 24, dtype=dtype))
    rest = g.apply("nn.layer_norm", g.apply("add", narrow, normal), scale, axis=2)
    if dtype == "float32":
        g.check(target, [weights, rest])
        return
    # Half precision rounds after every operator: only what few operators made can be compared.
    g.check(target, [g.apply("matmul", x, g.weight(24, 24, dtype=dtype)), heads[0]])


@pytest.mark.parametrize("target", TARGETS)
def test_chains_with_broadcast(graph: Graph, target: str) -> None:
    g = graph
    x, row, column, scalar = g.var(5, 33), g.var(33), g.var(5, 1), g.var()
    outputs: list[Expr] = []
    chain: Expr = x
    for name, other in (("multiply", row), ("add", column), ("subtract", scalar)) * 6:
        chain = g.apply("tanh", g.apply(name, chain, other))
    outputs.append(chain)
    small = g.apply("exp", g.apply("negative", row))  # computed once, though it broadcasts
    outputs.append(g.apply("divide", x, g.apply("add", small, g.apply("sigmoid", column))))
    total = g.apply("sum", g.apply("multiply", x, x), axes=(1,), keepdims=True)
    outputs.append(g.apply("divide", x, g.apply("sqrt", total)))
    outputs.append(g.apply("argmax", g.apply("abs", x), axis=1))
    outputs.append(g.apply("mean", g.apply("transpose", x, axes=(1, 0)), axes=(0,)))
    outputs.append(g.apply("nn.softmax", g.apply("add", x, row), axis=0))
    ranked = g.apply("cast", g.apply("greater", x, row), dtype=DType.INT32)
    outputs.append(g.apply("sum", ranked, axes=(0, 1)))
    outputs.append(g.apply("cast", g.apply("multiply", x, scalar), dtype=DType.FLOAT16))
    bits = g.apply("cast", g.apply("multiply", x, x), dtype=DType.UINT8)
    outputs.append(g.apply("where", g.apply("equal", bits, bits), row, x))
    g.check(target, outputs)


@pytest.mark.parametrize("target", TARGETS)
def test_moved_operands(graph: Graph, target: str) -> None:
    g = graph
    x, y = g.var(4, 6, 10), g.var(4, 6, 10)
    outputs: list[Expr] = []
    turned = g.apply("transpose", x, axes=(0, 2, 1))
    outputs.append(g.apply("matmul", turned, y))
    outputs.append(g.apply("matmul", g.apply("flip", y, axes=(1,)), turned))
    parts = g.apply("split", x, sections=(3, 7), axis=2)
    left, right = get_item(parts, 0), get_item(parts, 1)
    outputs += [g.apply("nn.relu", left), right]
    outputs.append(g.apply("concatenate", g.apply("exp", left), g.apply("sin", right), axis=2))
    padded = g.apply("nn.pad", g.apply("sigmoid", x), widths=((0, 0), (1, 2), (3, 0)))
    outputs.append(g.apply("add", padded, g.weight(13)))
    cut = g.apply("strided_slice", padded, begin=(0, 1, 2), end=(4, 9, 13), strides=(1, 2, 3))
    outputs.append(g.apply("sum", cut, axes=(1,)))
    picked = g.apply("take", g.apply("tanh", x), constant(np.array([5, 0, -1])), axis=1)
    outputs.append(g.apply("multiply", picked, picked))
    wide = g.apply("broadcast_to", g.apply("mean", x, axes=(1,), keepdims=True), shape=(4, 6, 10))
    outputs.append(g.apply("subtract", x, wide))
    outputs.append(g.apply("cumsum", g.apply("negative", x), axis=2))
    g.check(target, outputs)


@pytest.mark.parametrize("target", TARGETS)
def test_outputs_of_every_sort(graph: Graph, target: str) -> None:
    g, x = graph, graph.var(4, 6)
    fixed = g.weight(3, 5)
    relu = g.apply("nn.relu", x)
    view = g.apply("reshape", relu, shape=(3, 8))
    product = g.apply("matmul", x, g.weight(6, 2))
    outputs: list[Expr] = [x, fixed, relu, view, relu, g.apply("reshape", x, shape=(24,)), x]
    outputs += [g.apply("reshape", view, shape=(2, 12)), g.apply("copy", x), product, product]
    outputs += [g.apply("reshape", product, shape=(8,)), g.apply("nn.relu", product)]
    outputs += [g.apply("reshape", fixed, shape=(15,)), g.apply("add", view, view)]
    empty = g.apply("strided_slice", x, begin=(2, 0), end=(2, 6), strides=(1, 1))
    outputs += [empty, g.apply("sum", empty, axes=(0,)), g.apply("reshape", empty, shape=(6, 0))]
    g.check(target, outputs)


@pytest.mark.parametrize("target", TARGETS)
def test_wide_residual_blocks_that_winograd_suits(graph: Graph, target: str) -> None:
    g, x = graph, graph.var(2, 32, 13, 11)
    light = [
        constant(random_array(g.rng, shape, "float32", -0.05, 0.05))
        for shape in ((33, 32, 3, 3), (32, 33, 3, 3))
    ]
    first = g.apply("nn.relu", g.apply("nn.conv", x, light[0], g.weight(33), **PADDED))
    second = g.apply("nn.conv", first, light[1], **PADDED)
    both = g.apply("add", second, x)
    uneven = {**PADDED, "padding": ((0, 2), (1, 0))}
    g.check(target, [both, g.apply("nn.conv", both, light[0], **uneven), first])


@pytest.mark.parametrize("target", TARGETS)
def test_one_value_many_readers(graph: Graph, target: str) -> None:
    g, x = graph, graph.var(1, 8, 5, 5)
    shared = g.apply("nn.conv", x, g.weight(8, 8, 3, 3), **PADDED)
    branches = [
        g.apply("nn.relu", shared),
        g.apply("nn.conv", shared, g.weight(8, 8, 1, 1), **POINT),
        g.apply("nn.avg_pool", shared, kernel=(3, 3), **PADDED),
        g.apply("transpose", shared, axes=(0, 2, 3, 1)),
        g.apply("reshape", shared, shape=(8, 25)),
    ]
    both = g.apply("add", branches[0], g.apply("multiply", branches[1], branches[2]))
    square = g.apply("matmul", branches[4], branches[4], transpose_b=True)
    inner = g.apply("nn.conv", both, g.weight(8, 8, 3, 3), **PADDED)
    g.check(target, [*branches, both, square, g.apply("add", inner, both)])
