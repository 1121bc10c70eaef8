# SPDX-License-Identifier: Apache-2.0
"""Programs of open sizes as C, without a warning: any size, one artifact; regions of any size."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import intarsia
from intarsia_c.open_sizes import any_size
from intarsia_ir.graph.expr import Expr, Function, Var, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.load import load
from intarsia_runtime.size import Size
from intarsia_testkit.expressions import apply, fresh, weight

from .calling import STRICT

C = f"c -opt-level=1 -cflags={','.join(STRICT)}"
N, S, H, W = (variable(name) for name in ("N", "the rows", "H", "W"))
WINDOW = {"padding": ((1, 1), (1, 1)), "dilation": (1, 1)}


def x(name: str, *shape: Size) -> Var:
    return Var(name, TensorType(shape, DType.FLOAT32))


def layer() -> Function:
    """A layer of a transformer, and its input as an output: a copy of open size."""
    tokens = x("tokens", N, S, 16)
    q, k, v = (apply("matmul", tokens, weight(16, 16)) for _ in range(3))
    scores = apply("nn.softmax", apply("matmul", q, k, transpose_b=True), axis=2)
    normed = apply("nn.layer_norm", apply("matmul", scores, v), weight(16), weight(16), axis=2)
    grown = apply("nn.gelu", apply("add", apply("matmul", normed, weight(16, 21)), weight(21)))
    pooled = apply("mean", grown, axes=(1,))
    cut = apply("strided_slice", tokens, begin=(0, 1, 0), end=(N, S, 16), strides=(1, 1, 1))
    return Function((tokens,), make_tuple((grown, pooled, cut, tokens)), ("a", "b", "c", "d"))


def net() -> Function:
    """Convolutions over pictures of any size, a pool, and a mean over all that is left."""
    image = x("image", N, 3, H, W)
    data: Expr = image
    for channels, inner, stride in ((8, 3, 1), (12, 8, 2)):
        window = {**WINDOW, "strides": (stride, stride)}
        data = apply("nn.conv", data, weight(channels, inner, 3, 3), weight(channels), **window)
        data = apply("nn.relu", data)
    pooled = apply("nn.max_pool", data, kernel=(3, 3), strides=(2, 2), **WINDOW)
    body = make_tuple((pooled, apply("mean", pooled, axes=(2, 3))))
    return Function((image,), body, ("pooled", "means"))


CASES = {
    "layer": (layer, [(n, s, 16) for n, s in ((1, 1), (2, 3), (1, 37), (3, 8), (3, 8))]),
    "net": (net, [(n, 3, h, w) for n, h, w in ((1, 8, 8), (2, 9, 13), (1, 31, 7), (1, 1, 1))]),
}


def compare(path: Path, function: Function, shapes: list[tuple[int, ...]]) -> None:
    with load(path, threads=1) as executable:
        assert isinstance(executable, OpenExecutor)
        for shape in shapes:
            given = fresh(*shape, seed=sum(shape))
            want = evaluate(function, {function.params[0].name: given})
            for mine, theirs in zip(executable.run([given]).values(), want, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=3e-4, atol=3e-5)


@pytest.mark.parametrize("name", CASES)
def test_one_artifact_runs_any_size(name: str, tmp_path: Path) -> None:
    make, shapes = CASES[name]
    path = tmp_path / "m.intarsia"
    intarsia.build(IRModule.from_function(make()), C).save(path)
    compare(path, make(), shapes)


@pytest.mark.parametrize("name", CASES)
def test_regions_get_the_sizes_of_the_run(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("intarsia_dnnl") is None:
        pytest.skip("intarsia-dnnl is not installed, so nothing can stand in front of C")
    make, shapes = CASES[name]
    path = tmp_path / "m.intarsia"
    made = intarsia.build(IRModule.from_function(make()), f"dnnl, {C}", plan=Plan.GREEDY)
    assert made.placement.regions
    made.save(path)
    compare(path, make(), [*shapes, *shapes])


def test_the_debug_executor_walks_the_same_plan(tmp_path: Path) -> None:
    path = tmp_path / "m.intarsia"
    intarsia.build(IRModule.from_function(layer()), C).save(path)
    with load(path, executor="graph", threads=1) as executable:
        assert isinstance(executable, OpenExecutor)
        rows = executable.profile([fresh(2, 5, 16)])
        assert len(rows) == len(executable.passport.plan.steps)


def test_guards_are_checked(tmp_path: Path) -> None:
    def info(name: str, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["p", "", "by"], ["r"], mode="nearest"),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    by = helper.make_tensor("by", onnx.TensorProto.FLOAT, [4], [1.0, 1.0, 2.0, 2.0])
    sides = ("N", 2, "H", "W")
    graph = helper.make_graph(nodes, "g", [info("x", *sides)], [info("y", *sides)], [by])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "m.onnx")
    path = tmp_path / "m.intarsia"
    intarsia.build(tmp_path / "m.onnx", C).save(path)
    with load(path) as executable:
        assert executable.run([fresh(1, 2, 4, 6)])["y"].shape == (1, 2, 4, 6)
        with pytest.raises(ModelError, match="must be equal"):
            executable.run([fresh(1, 2, 5, 6)])


def test_static_checks_let_open_sizes_pass() -> None:
    assert any_size((3, N, 2 * H)) == (3, -1, -1)
