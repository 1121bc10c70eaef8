# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU over open sequences, from ONNX to machine code, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import intarsia
from intarsia_ir.graph.expr import Function, Var, constant, get_item
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.load import load
from intarsia_testkit.expressions import apply

HIDDEN, SIZE = 11, 5
FLOAT = onnx.TensorProto.FLOAT


def saved(
    path: Path,
    op: str,
    direction: str,
    *,
    bias: bool = True,
    hidden: int = HIDDEN,
    **attrs: Any,
) -> Path:
    """A model of one layer over ``x`` ``[T, B, 5]``."""
    rng = np.random.default_rng(3)
    count, gates = 2 if direction == "bidirectional" else 1, {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    rows = gates * hidden
    arrays = {"w": (count, rows, SIZE), "r": (count, rows, hidden), "b": (count, 2 * rows)}
    names = ["x", "w", "r", "b"] if bias else ["x", "w", "r"]
    if attrs.pop("peepholes", False):
        arrays["p"] = (count, 3 * hidden)
        names = [*names, "", "", "", "p"]
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / hidden**0.5, name)
        for name, shape in arrays.items()
    ]
    results = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    if attrs.pop("relu", False):
        attrs["activations"] = ["Relu"] * count
    attrs |= {"direction": direction, "hidden_size": hidden}
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attrs)],
        "layer",
        [info("x", FLOAT, ["T", "B", SIZE])],
        [info(name, FLOAT, None) for name in results],
        [weight for weight in weights if weight.name in names],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return path


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("LSTM", {}),
        ("GRU", {}),
        ("GRU", {"linear_before_reset": 1}),
        ("LSTM", {"bias": False}),
        ("LSTM", {"peepholes": True}),
        ("LSTM", {"peepholes": True, "hidden": 96}),
        ("RNN", {}),
        ("RNN", {"relu": True}),
        ("LSTM", {"clip": 0.4}),
        ("LSTM", {"clip": 0.4, "input_forget": 1, "peepholes": True, "hidden": 96}),
        ("GRU", {"clip": 0.4, "hidden": 96}),
        ("GRU", {"clip": 0.4, "linear_before_reset": 1}),
        ("RNN", {"clip": 0.4}),
    ],
)
def test_one_artifact_runs_any_length(
    tmp_path: Path, op: str, attrs: dict[str, Any], direction: str
) -> None:
    model = saved(tmp_path / "layer.onnx", op, direction, **attrs)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    intarsia.build(model, "llvm", executor="vm").save(tmp_path / "layer.intarsia")
    with load(tmp_path / "layer.intarsia") as executable:
        assert isinstance(executable, OpenExecutor)
        for steps, batch in [(1, 1), (5, 3), (37, 2), (2, 1), (3, 4), (4, 6), (2, 9)]:
            x = np.random.default_rng(steps).standard_normal((steps, batch, SIZE))
            given = {"x": x.astype(np.float32)}
            got, want = executable.run(given), session.run(None, given)
            for mine, theirs in zip(got.values(), want, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("op", "gates"), [("nn.lstm", 4), ("nn.gru", 3)])
@pytest.mark.parametrize("linear", [False, True])
def test_states_of_zeros_and_others_begin_a_sequence(
    tmp_path: Path, op: str, gates: int, linear: bool
) -> None:
    hidden, steps, batch = 37, variable("T"), variable("B")
    x = Var("x", TensorType((steps, batch, gates * hidden), DType.FLOAT32))
    names = ["h", "c"] if op == "nn.lstm" else ["h"]
    states = [Var(name, TensorType((batch, hidden), DType.FLOAT32)) for name in names]
    rng = np.random.default_rng(0)
    weight = constant(rng.standard_normal((hidden, gates * hidden)).astype(np.float32) / 4)
    bias = [constant(rng.standard_normal(3 * hidden).astype(np.float32))] if gates == 3 else []
    attrs = {"linear_before_reset": linear} if gates == 3 else {"reverse": linear}
    call = apply(op, x, *states, weight, *bias, **attrs)
    model = IRModule.from_function(Function((x, *states), get_item(call, 0)))
    intarsia.build(model, "llvm").save(tmp_path / "layer.intarsia")
    with load(tmp_path / "layer.intarsia") as executable:
        for count, rows in [(1, 1), (3, 1), (2, 5)]:
            for first in (np.zeros, np.ones):
                given = {"x": rng.standard_normal((count, rows, gates * hidden), np.float32)}
                given |= {name: first((rows, hidden), np.float32) for name in names}
                given["h"][-1] *= 0.5  # not all rows are alike
                (want,) = evaluate(model.main, given)
                (got,) = executable.run(given).values()
                np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mcpu", ["haswell", "native"])
@pytest.mark.parametrize("batch", [None, 11])
@pytest.mark.parametrize(
    ("op", "attrs"), [("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})]
)
def test_rows_share_a_weight_that_no_cache_holds(
    tmp_path: Path, op: str, attrs: dict[str, Any], batch: int | None, mcpu: str
) -> None:
    hidden = {"LSTM": 260, "GRU": 300, "RNN": 520}[op]  # above 1 MiB
    model = saved(tmp_path / "layer.onnx", op, "reverse", hidden=hidden, **attrs)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    shapes = {} if batch is None else {"x": (3, batch, SIZE)}
    intarsia.build(model, f"llvm -mcpu={mcpu}", shapes=shapes).save(tmp_path / "layer.intarsia")
    with load(tmp_path / "layer.intarsia") as executable:
        for rows in (1, 2, 3, 4, 7, 8, 9, 18) if batch is None else (batch,):
            x = np.random.default_rng(rows).standard_normal((3, rows, SIZE)).astype(np.float32)
            got, want = executable.run({"x": x}), session.run(None, {"x": x})
            for mine, theirs in zip(got.values(), want, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("hidden", [64, 300])  # 300: no second-level cache holds the weight
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_directions_go_side_by_side(tmp_path: Path, op: str, hidden: int, threads: int) -> None:
    model = saved(tmp_path / "layer.onnx", op, "bidirectional", hidden=hidden)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    intarsia.build(model, "llvm").save(tmp_path / "layer.intarsia")
    with load(tmp_path / "layer.intarsia", threads=threads) as executable:
        assert isinstance(executable, OpenExecutor)
        for steps, rows in [(1, 1), (5, 1), (3, 2), (2, 5), (7, 8), (2, 13)]:
            x = np.random.default_rng(rows).standard_normal((steps, rows, SIZE))
            given = {"x": x.astype(np.float32)}
            got, want = executable.run(given), session.run(None, given)
            for mine, theirs in zip(got.values(), want, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
        assert not executable.run({"x": np.zeros((3, 0, SIZE), np.float32)})["y"].size
        labels = [row.label for row in executable.profile(given)]
        assert "cpu.recurrent_pair" in labels


@pytest.mark.parametrize(
    ("op", "attrs"),
    [("RNN", {"activations": ["Sigmoid"]}), ("LSTM", {"activations": ["Relu"] * 3})],
)
def test_what_no_operator_does_is_refused(tmp_path: Path, op: str, attrs: dict[str, Any]) -> None:
    model = saved(tmp_path / "layer.onnx", op, "forward", **attrs)
    with collecting_guards(), pytest.raises(UnsupportedError, match=f"{op} over T steps"):
        from_onnx(model)
