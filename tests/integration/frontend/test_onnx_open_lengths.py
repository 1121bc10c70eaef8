# SPDX-License-Identifier: Apache-2.0
"""Layers over batches of open size whose sequences differ in length, as ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import UnsupportedError

SIZE, HIDDEN = 5, 6
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def layer(
    op: str, direction: str, *, starts: bool, dtype: type = np.float32, **attrs: object
) -> bytes:
    rng, count = np.random.default_rng(3), 2 if direction == "bidirectional" else 1
    rows = GATES[op] * HIDDEN
    shapes = {"w": (count, rows, SIZE), "r": (count, rows, HIDDEN), "b": (count, 2 * rows)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) * 0.4).astype(dtype), name)
        for name, shape in shapes.items()
    ]
    states = ["h", "c"][: 2 if op == "LSTM" else 1] if starts else []
    info, kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [info("x", kind, ["t", "n", SIZE]), info("lengths", TensorProto.INT32, ["n"])]
    inputs += [info(name, kind, [count, "n", HIDDEN]) for name in states]
    results = ["y", "last", "cell"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(
        op, ["x", "w", "r", "b", "lengths", *states], results,
        direction=direction, hidden_size=HIDDEN, **attrs,
    )  # fmt: skip
    outputs = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


LAYERS = [
    (op, direction, starts, attrs)
    for op, direction in (
        *(("GRU", name) for name in ("forward", "reverse", "bidirectional")),
        *(("LSTM", name) for name in ("forward", "reverse", "bidirectional")),
        *(("RNN", name) for name in ("forward", "reverse", "bidirectional")),
    )
    for starts in (False, True)
    for attrs in ({}, {"linear_before_reset": 1}) [: 2 if op == "GRU" else 1]
]  # fmt: skip


@pytest.mark.parametrize(("op", "direction", "starts", "attrs"), LAYERS)
def test_sequences_of_different_lengths(op: str, direction: str, starts: bool, attrs: dict) -> None:
    data = layer(op, direction, starts=starts, **attrs)
    session = onnxruntime.InferenceSession(data)
    with collecting_guards():
        module = from_onnx(data)
    artifact = intarsia.build(data, "llvm")
    assert artifact.passport.executor["kind"] == "aot"
    rng = np.random.default_rng(4)
    with artifact.load(threads=1) as executable:
        for steps, lengths in ((7, (7, 2, 5)), (4, (4, 4)), (9, (1,)), (3, (1, 3, 2, 3, 1))):
            feeds = {"x": (steps, len(lengths), SIZE)}
            for info in session.get_inputs()[2:]:
                feeds[info.name] = (info.shape[0], len(lengths), HIDDEN)
            given = {n: rng.standard_normal(s).astype(np.float32) for n, s in feeds.items()}
            given["lengths"] = np.array(lengths, np.int32)
            wanted = session.run(None, given)
            for found in ([*executable.run(given).values()], evaluate(module.main, given, module)):
                for mine, theirs in zip(found, wanted, strict=True):
                    assert mine.shape == theirs.shape
                    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
def test_layers_of_float16_are_compiled_for_open_sizes(op: str) -> None:
    data = layer(op, "bidirectional", starts=True, dtype=np.float16)
    session = onnxruntime.InferenceSession(data)
    artifact = intarsia.build(data, "llvm")
    assert artifact.passport.executor["kind"] == "aot"
    rng = np.random.default_rng(6)
    with artifact.load(threads=1) as executable:
        for steps, lengths in ((7, (7, 2, 5)), (1, (1,)), (40, (3, 40))):
            feeds = {"x": (steps, len(lengths), SIZE)}
            for info in session.get_inputs()[2:]:
                feeds[info.name] = (info.shape[0], len(lengths), HIDDEN)
            given = {n: rng.standard_normal(s).astype(np.float16) for n, s in feeds.items()}
            given["lengths"] = np.array(lengths, np.int32)
            found = executable.run(given).values()
            for mine, theirs in zip(found, session.run(None, given), strict=True):
                assert mine.dtype == np.float16
                # A unit of float16 next to 1 is 2**-10: results differ in their rounding alone.
                np.testing.assert_allclose(mine, theirs, rtol=2**-10, atol=2**-12)


def test_other_activations_are_refused_by_their_reason() -> None:
    data = layer("RNN", "reverse", starts=False, activations=["Softsign"])
    with collecting_guards(), pytest.raises(UnsupportedError, match="the usual activations"):
        from_onnx(data)


@pytest.mark.parametrize("op", GATES)
def test_long_sequences_of_a_known_length_are_not_unrolled(op: str) -> None:
    data = layer(op, "bidirectional", starts=False)
    shapes = {"x": (600, 2, SIZE), "lengths": (2,)}
    rng = np.random.default_rng(5)
    given = {
        "x": rng.standard_normal(shapes["x"]).astype(np.float32),
        "lengths": np.array([600, 417], np.int32),
    }
    wanted = onnxruntime.InferenceSession(data).run(None, given)
    with intarsia.build(data, "llvm", shapes=shapes).load(threads=1) as executable:
        for mine, theirs in zip(executable.run(given).values(), wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-5)
