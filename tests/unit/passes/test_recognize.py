# SPDX-License-Identifier: Apache-2.0
"""Formulas become the operators they spell, and only those."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_runtime.dtype import DType

X = Var("x", TensorType((3, 8), DType.FLOAT32))


def node(name: str, *args: Expr, **attrs: Any) -> Call:
    return call(OPERATORS[name], *args, attrs=OPERATORS[name].Attrs(**attrs))


def scalar(value: float) -> Expr:
    return constant(np.asarray(value, np.float32))


def row(value: float) -> Expr:
    return constant(np.linspace(value, value + 1, 8, dtype=np.float32))


def erf_of(scaled: Expr) -> Expr:
    return node("add", node("erf", scaled), scalar(1))


DIVIDED = erf_of(node("divide", X, scalar(math.sqrt(2))))
MULTIPLIED = erf_of(node("multiply", X, scalar(math.sqrt(0.5))))
CLIPPED = node("clip", node("add", X, scalar(3)), min=0.0, max=6.0)


def layer_norm(*, axes: tuple[int, ...] = (1,), squared: str = "power") -> Expr:
    centred = node("subtract", X, node("mean", X, axes=axes, keepdims=True))
    square = (
        node("power", centred, scalar(2))
        if squared == "power"
        else node("multiply", centred, centred)
    )
    variance = node("mean", square, axes=axes, keepdims=True)
    normal = node("divide", centred, node("sqrt", node("add", variance, scalar(1e-5))))
    return node("add", node("multiply", normal, row(0.5)), row(-1))


def tanh_of(cube: Expr, root: float = math.sqrt(2 / math.pi)) -> Expr:
    inner = node("multiply", node("add", X, cube), scalar(root))
    return node("add", node("tanh", inner), scalar(1))


SQUARE = node("multiply", X, X)
CUBES = [
    node("multiply", node("multiply", node("multiply", scalar(0.044715), X), X), X),
    node("multiply", scalar(0.044715), node("multiply", SQUARE, X)),
    node("multiply", node("power", X, scalar(3)), scalar(0.044715)),
]
HALF = node("multiply", X, scalar(0.5))
TANH = [node("multiply", HALF, tanh_of(cube)) for cube in CUBES]
TANH += [node("multiply", X, node("multiply", scalar(0.5), tanh_of(cube))) for cube in CUBES]
TANH += [node("multiply", node("multiply", X, tanh_of(cube)), scalar(0.5)) for cube in CUBES]

FORMULAS = [
    *((tree, ["nn.gelu"]) for tree in TANH),
    (node("multiply", node("multiply", X, DIVIDED), scalar(0.5)), ["nn.gelu"]),
    (node("multiply", node("multiply", X, scalar(0.5)), DIVIDED), ["nn.gelu"]),
    (node("multiply", X, node("multiply", scalar(0.5), MULTIPLIED)), ["nn.gelu"]),
    (node("multiply", MULTIPLIED, node("multiply", scalar(0.5), X)), ["nn.gelu"]),
    (node("multiply", node("sigmoid", X), X), ["nn.silu"]),
    (node("multiply", X, node("tanh", node("nn.softplus", X))), ["nn.mish"]),
    (node("multiply", X, node("nn.hard_sigmoid", X, alpha=1 / 6, beta=0.5)), ["nn.hard_swish"]),
    (node("divide", node("multiply", X, CLIPPED), scalar(6)), ["nn.hard_swish"]),
    (node("multiply", X, node("divide", CLIPPED, scalar(6))), ["nn.hard_swish"]),
    (node("multiply", node("multiply", X, CLIPPED), scalar(1 / 6)), ["nn.hard_swish"]),
    (layer_norm(), ["nn.layer_norm"]),
    (layer_norm(squared="multiply"), ["nn.layer_norm"]),
    (node("nn.relu", node("add", layer_norm(), row(0))), ["nn.layer_norm", "add", "nn.relu"]),
]
OTHERS = [
    node("multiply", HALF, tanh_of(CUBES[0], root=0.8)),
    node("multiply", node("multiply", X, DIVIDED), scalar(0.51)),
    node("multiply", node("multiply", X, MULTIPLIED), row(0.5)),
    node("multiply", X, node("nn.hard_sigmoid", X, alpha=0.2, beta=0.5)),
    node("divide", node("multiply", X, CLIPPED), scalar(5)),
    layer_norm(axes=(0,)),
]


def prepare(tree: Expr) -> list[str]:
    before = IRModule.from_function(Function((X,), tree))
    after = PREPARE.run(before, check=True)
    values = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32) * 3
    (want,) = evaluate(before.main, {"x": values})
    (got,) = evaluate(after.main, {"x": values})
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    return [c.name for c in calls(after.main)]


@pytest.mark.parametrize(("tree", "left"), FORMULAS, ids=range(len(FORMULAS)))
def test_a_formula_becomes_its_operator(tree, left):
    assert prepare(tree) == left


@pytest.mark.parametrize("tree", OTHERS, ids=range(len(OTHERS)))
def test_other_numbers_and_axes_stay_formulas(tree):
    assert len(prepare(tree)) > 1


def test_a_step_that_is_used_elsewhere_stays():
    inner = node("sigmoid", X)
    assert prepare(node("add", node("multiply", X, inner), inner)) == ["sigmoid", "multiply", "add"]


def test_a_remark_says_what_was_recognized():
    remarks = Remarks()
    tree = node("multiply", X, node("sigmoid", X))
    PREPARE.run(IRModule.from_function(Function((X,), tree)), remarks=remarks)
    assert [r.message for r in remarks.found] == ["2 calls are nn.silu"]
