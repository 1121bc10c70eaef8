# SPDX-License-Identifier: Apache-2.0
"""Control flow, sequences and optionals on the host."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import GraphProto, TensorProto, helper

from intarsia_runtime.errors import ModelError, UnsupportedError

from .nodes import f32, i64, one, run


def graph(nodes: list, inputs: str, outputs: str, shape: list | None = None) -> GraphProto:
    """A graph inside a node; its values are floats unless their names say otherwise."""
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL}

    def infos(names: str):
        return [
            helper.make_tensor_value_info(name, kinds.get(name[0], TensorProto.FLOAT), shape)
            for name in names.split()
        ]

    made = [helper.make_node(op, a.split(), b.split(), **attrs) for op, a, b, attrs in nodes]
    return helper.make_graph(made, "body", infos(inputs), infos(outputs))


COUNTING = graph(
    [("Identity", "c", "c_out", {}), ("Add", "x x", "x_out", {}), ("Neg", "x", "row", {})],
    "i c x",
    "c_out x_out row",
    [1],
)


def test_if_runs_one_branch() -> None:
    branches = {
        "then_branch": graph([("Neg", "x1", "a", {})], "", "a"),
        "else_branch": graph([("Abs", "x1", "b", {})], "", "b"),
    }
    assert _run_if(np.array(True), f32([3]), branches).tolist() == [-3]
    assert _run_if(np.array(False), f32([3]), branches).tolist() == [3]


def _run_if(condition: np.ndarray, x: np.ndarray, branches: dict) -> np.ndarray:
    """If takes one operand; the branches see ``x1`` around them."""
    from collections import ChainMap

    from intarsia_onnx.dynamic.evaluator import Evaluator
    from intarsia_onnx.reader import read_model, standard_bodies

    info = helper.make_tensor_value_info
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("If", ["x0"], ["y0"], **branches)],
            "g",
            [info("x0", TensorProto.BOOL, []), info("x1", TensorProto.FLOAT, [1])],
            [info("y0", TensorProto.FLOAT, [1])],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
    )
    scope = ChainMap({"x0": condition, "x1": x})
    Evaluator(standard_bodies).run(read_model(proto, any_value=True).graph.nodes, scope, 21)
    return scope["y0"]


def test_loop_carries_and_stacks() -> None:
    x, rows = run("Loop", i64(3), np.array(True), f32([1]), body=COUNTING, outputs=2)
    assert x.tolist() == [8]
    assert rows.tolist() == [[-1], [-2], [-4]]
    x, rows = run("Loop", i64(0), None, f32([1]), body=COUNTING, outputs=2)
    assert (x.tolist(), rows.shape) == ([1], (0, 1))
    x, rows = run("Loop", None, np.array(False), f32([1]), body=COUNTING, outputs=2)
    assert (x.tolist(), rows.shape) == ([1], (0, 1))


ADDING = graph(
    [("Add", "s x", "s_out", {}), ("Identity", "s_out", "row", {})], "s x", "s_out row", [2]
)


def test_scan_walks_forwards_and_backwards() -> None:
    x = f32([[1, 2], [3, 4], [5, 6]])
    total, rows = run("Scan", f32(0, 0), x, body=ADDING, num_scan_inputs=1, outputs=2)
    assert total.tolist() == [9, 12]
    np.testing.assert_array_equal(rows, np.cumsum(x, 0))
    back = run(
        "Scan", f32(0, 0), x.T.copy(), body=ADDING, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1], outputs=2,
    )  # fmt: skip
    np.testing.assert_array_equal(back[1], np.cumsum(x[::-1], 0)[::-1].T)


def test_scan_of_opset_8_has_a_batch() -> None:
    x = f32([[[1, 2], [3, 4]], [[0, 1], [1, 0]]])
    operands = (None, np.zeros((2, 2), np.float32), x)
    total, rows = run("Scan", *operands, body=ADDING, num_scan_inputs=1, opset=8, outputs=2)
    assert total.tolist() == [[4, 6], [1, 1]]
    assert rows.shape == (2, 2, 2)
    lengths = (i64([2, 1]), *operands[1:])
    with pytest.raises(UnsupportedError, match="lengths of sequences that differ"):
        run("Scan", *lengths, body=ADDING, num_scan_inputs=1, opset=8, outputs=2)


def test_sequences() -> None:
    a, b = f32([1]), f32(2, 3)
    (items,) = run("SequenceConstruct", a, b)
    assert [item.tolist() for item in items] == [[1], [2, 3]]
    assert run("SequenceEmpty") == [[]]
    (longer,) = run("SequenceInsert", items, b, i64(0))
    assert [len(item) for item in longer] == [2, 1, 2]
    (end,) = run("SequenceInsert", items, a)
    assert [len(item) for item in end] == [1, 2, 1]
    assert one("SequenceAt", items, i64(-1)).tolist() == [2, 3]
    assert one("SequenceLength", items).item() == 2
    assert len(run("SequenceErase", items)[0]) == 1
    assert run("SequenceErase", items, i64(0))[0][0].tolist() == [2, 3]
    with pytest.raises(ModelError, match="position 5 is outside of a sequence of 2"):
        one("SequenceAt", items, i64(5))


def test_cutting_and_joining_sequences() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert [p.shape for p in run("SplitToSequence", x, axis=1)[0]] == [(2, 1)] * 3
    assert [p.shape for p in run("SplitToSequence", x, axis=1, keepdims=0)[0]] == [(2,)] * 3
    assert [p.shape for p in run("SplitToSequence", x, i64(2), axis=1)[0]] == [(2, 2), (2, 1)]
    (parts,) = run("SplitToSequence", x, i64([1, 2]), axis=1)
    assert [p.shape for p in parts] == [(2, 1), (2, 2)]
    np.testing.assert_array_equal(one("ConcatFromSequence", parts, axis=1), x)
    assert one("ConcatFromSequence", [x, x], axis=0, new_axis=1).shape == (2, 2, 3)
    with pytest.raises(ModelError, match="parts of 0 elements"):
        run("SplitToSequence", x, i64(0))
    with pytest.raises(ModelError, match=r"parts of \[5\] for 2 elements"):
        run("SplitToSequence", x, i64([5]))
    with pytest.raises(ModelError, match="a sequence of sequences"):
        one("ConcatFromSequence", [[x]], axis=0)


def test_a_body_is_applied_to_every_element() -> None:
    body = graph([("Add", "x z", "y", {})], "x z", "y")
    (items,) = run("SequenceMap", [f32([1]), f32([2])], f32([10]), body=body)
    assert [item.tolist() for item in items] == [[11], [12]]
    (items,) = run("SequenceMap", [f32([1])], [f32([5])], body=body)
    assert items[0].tolist() == [6]


def test_optionals() -> None:
    assert one("OptionalHasElement").item() is False
    assert one("OptionalHasElement", f32([1])).item() is True
    assert run("OptionalGetElement", [f32([1])])[0][0].tolist() == [1]
    assert run("Optional", f32([1]))[0].tolist() == [1]
    assert run("Identity", [f32([1])])[0][0].tolist() == [1]
    with pytest.raises(ModelError, match="holds nothing"):
        run("OptionalGetElement", None)


def test_what_a_node_cannot_take() -> None:
    with pytest.raises(UnsupportedError, match="'Relu' of a sequence"):
        run("Relu", [f32([1])])
    with pytest.raises(ModelError, match="expects a tensor"):
        run("Scan", [f32(0, 0)], f32([[1, 2]]), body=ADDING, num_scan_inputs=1, outputs=2)
    with pytest.raises(ModelError, match="'body' is missing"):
        run("Loop", i64(1), None, f32([1]), outputs=1)
    with pytest.raises(UnsupportedError, match="operator 'Gradient' is not supported"):
        run("Gradient", f32([[1]]), sample_size=1)
