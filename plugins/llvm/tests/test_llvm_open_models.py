# SPDX-License-Identifier: Apache-2.0
"""ONNX models of open sizes as machine code, as ONNX Runtime runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import intarsia
from intarsia_runtime.errors import ModelError

F, I64 = TensorProto.FLOAT, TensorProto.INT64


def node(kind: str, inputs: str, output: str, **attrs) -> NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attrs)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def made(
    path: Path,
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    output: Sequence[int] | None,
    **weights: np.ndarray,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info(name, *row) for name, row in inputs.items()],
        [helper.make_tensor_value_info("y", F, output)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    version = 24 if nodes[0].op_type == "TensorScatter" else 18
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    model.ir_version = 11 if version == 24 else 9
    path.write_bytes(model.SerializeToString())
    return path


def agrees(path: Path, rows: Sequence[Mapping[str, np.ndarray]]) -> None:
    intarsia.build(path, "llvm").save(path.with_suffix(".intarsia"))
    executor = intarsia.load(path.with_suffix(".intarsia"))
    session = ort.InferenceSession(str(path))
    for row in rows:
        wanted = np.asarray(session.run(None, dict(row))[0])
        got = np.asarray(executor.run(dict(row))["y"])
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("equation", "y"), [("btd,bsd->bts", ("b", 4)), ("btd,bsd->d", ("b", 4)), ("btd,dbs->tsb", ())]
)
def test_einsum_of_open_sizes(tmp_path: Path, equation: str, y: tuple[object, ...]) -> None:
    second: list[int | str] = ["b", "s", 4] if y else [4, "b", "s"]
    inputs = {"a": (F, ["b", "t", 4]), "c": (F, second)}
    path = made(tmp_path / "m.onnx", [node("Einsum", "a c", "y", equation=equation)], inputs, None)
    rows = [
        {"a": drawn(b, t, 4), "c": drawn(b, s, 4) if y else drawn(4, b, s)}
        for b, t, s in ((1, 1, 1), (2, 3, 5), (3, 7, 2))
    ]
    agrees(path, rows)


def test_einsum_of_sizes_that_differ_is_an_error(tmp_path: Path) -> None:
    inputs: dict[str, tuple[int, list[int | str]]] = {"a": (F, ["t", "m"]), "c": (F, ["n", 4])}
    nodes = [node("Einsum", "a c", "y", equation="tm,mk->tk")]
    path = made(tmp_path / "m.onnx", nodes, inputs, None)
    agrees(path, [{"a": drawn(2, 3), "c": drawn(3, 4)}])
    executor = intarsia.load(path.with_suffix(".intarsia"))
    with pytest.raises(
        ModelError, match="m is broadcast, so it must be 1, or as large as the other operands"
    ):
        executor.run({"a": drawn(2, 3), "c": drawn(5, 4)})


def test_an_update_of_any_length_is_written_into_a_cache(tmp_path: Path) -> None:
    nodes = [node("TensorScatter", "cache new at", "y", axis=1)]
    inputs = {"cache": (F, [2, 16, 3]), "new": (F, [2, "s", 3]), "at": (I64, [2])}
    path = made(tmp_path / "m.onnx", nodes, inputs, None)
    rows = [
        {"cache": drawn(2, 16, 3), "new": drawn(2, s, 3), "at": numbers(0, 16 - s)}
        for s in (1, 5, 16)
    ]
    agrees(path, rows)


def test_a_size_that_is_broadcast_from_one_element(tmp_path: Path) -> None:
    nodes = [
        node("Slice", "x zero one zero", "first"),
        node("Shape", "first", "sizes"),
        node("Expand", "z sizes", "y"),
    ]
    inputs = {"x": (F, ["n", 4]), "z": (F, ["m", 1])}
    weights = {"zero": numbers(0), "one": numbers(1)}
    path = made(tmp_path / "m.onnx", nodes, inputs, None, **weights)
    agrees(path, [{"x": drawn(n, 4), "z": drawn(m, 1)} for n, m in ((1, 3), (5, 1), (2, 7))])


def test_a_squeeze_without_axes_chooses_when_the_model_runs(tmp_path: Path) -> None:
    nodes = [
        node("Squeeze", "x", "v"),
        node("Tanh", "v", "t"),
        node("ReduceSum", "t", "y", keepdims=0),
    ]
    path = made(tmp_path / "m.onnx", nodes, {"x": (F, ["n", 1, 4])}, None)
    agrees(path, [{"x": drawn(n, 1, 4)} for n in (1, 3)])


def test_a_squeeze_without_axes_leaves_the_declared_rank(tmp_path: Path) -> None:
    nodes = [node("Squeeze", "x", "v"), node("Sigmoid", "v", "y")]
    path = made(tmp_path / "m.onnx", nodes, {"x": (F, ["n", 1, 4])}, [4])
    agrees(path, [{"x": drawn(1, 1, 4)}])
    executor = intarsia.load(path.with_suffix(".intarsia"))
    with pytest.raises(ModelError, match=r"must be float32 \(1, 1, 4\), got"):
        executor.run({"x": drawn(2, 1, 4)})


def test_a_slice_of_the_last_positions_counts_from_the_end(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "sizes"),
        node("Gather", "sizes zero", "length"),
        node("Neg", "length", "start"),
        node("Slice", "z start end zero", "y"),
    ]
    inputs = {"x": (F, ["s", 2]), "z": (F, ["t", 4])}
    weights = {"zero": numbers(0), "end": numbers(2**31 - 1)}
    path = made(tmp_path / "m.onnx", nodes, inputs, None, **weights)
    agrees(
        path, [{"x": drawn(s, 2), "z": drawn(t, 4)} for s, t in ((1, 1), (2, 5), (5, 2), (3, 3))]
    )
