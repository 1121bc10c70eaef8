# SPDX-License-Identifier: Apache-2.0
"""Models in forms that exporters write and ONNX Runtime takes, compared with it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.driver.dynamic import import_any
from intarsia.driver.source import ModuleSource
from intarsia_ir.graph.module import IRModule
from intarsia_onnx import from_onnx
from intarsia_onnx.dynamic import run_reference
from intarsia_runtime.errors import ModelError

from .onnx_models import assert_like_onnxruntime, feeds, model, node, ours

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) / 2


def theirs(proto: onnx.ModelProto, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, values)


def run_any(proto: onnx.ModelProto, values: dict[str, np.ndarray]) -> list:
    """Run as a program, by the definitions of the operators."""
    imported = import_any(ModuleSource(proto.SerializeToString()), None, None, None)
    assert not isinstance(imported, IRModule)
    return list(run_reference(imported, [values[info.name] for info in imported.program.inputs]))


@pytest.mark.parametrize("size", [-1, -100, -(1 << 62)])
def test_a_size_below_zero_is_open(size: int) -> None:
    """PaddlePaddle writes -1 for the size of a batch."""
    proto = model([node("Softmax", "x")], {"x": (size, 3)})
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, (size, 3)))
    values = {"x": f32(4, 3)}
    main = from_onnx(proto, shapes={"x": (4, 3)}).main
    assert not from_onnx(proto).main.params[0].type.is_static
    assert main.params[0].type.static_shape == (4, 3)
    open_form = model([node("Softmax", "x")], {"x": ("N", 3)})
    np.testing.assert_allclose(ours(proto, values)[0], theirs(open_form, values)[0], rtol=1e-5)


def chain(length: int) -> onnx.ModelProto:
    nodes = [node("Tanh", "x", "v0", name="n0")]
    for n in range(1, length):
        nodes.append(node("Add", f"v{n - 1} v{n // 2}", f"v{n}", name=f"n{n}"))
    nodes.append(node("Relu", f"v{length - 1}"))
    return model(nodes, {"x": (3,)})


@pytest.mark.parametrize("seed", range(3))
def test_nodes_in_any_order_are_sorted(seed: int) -> None:
    proto = chain(20)
    values = feeds(proto)
    nodes = list(proto.graph.node)
    random.Random(seed).shuffle(nodes)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    with pytest.warns(UserWarning, match="its nodes are not in order, and were sorted"):
        (found,) = ours(proto, values)
    np.testing.assert_allclose(found, theirs(proto, values)[0], rtol=1e-5)


def test_nodes_inside_a_branch_are_sorted_and_may_use_what_comes_later_outside() -> None:
    inner = [node("Neg", "t", "r"), node("Abs", "late", "t")]
    info = helper.make_empty_tensor_value_info
    then_branch = helper.make_graph(inner, "then", [], [info("r")])
    other = helper.make_graph([node("Identity", "x", "r2")], "else", [], [info("r2")])
    nodes = [
        node("If", "c", then_branch=then_branch, else_branch=other),
        node("Exp", "x", "late"),
        node("Greater", "s z", "c"),
        node("ReduceSum", "x", "s", keepdims=0),
    ]
    proto = model(nodes, {"x": (3,)}, weights={"z": np.float32(0)})
    for sign in (1, -1):
        values = {"x": sign * np.ones(3, np.float32)}
        with pytest.warns(UserWarning, match="were sorted"):
            (found,) = ours(proto, values)
        wanted = -np.exp(values["x"]) if sign == 1 else values["x"]
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_nodes_in_order_need_no_note(recwarn: pytest.WarningsRecorder) -> None:
    from_onnx(chain(5))
    assert not recwarn


CELLS = [
    ("LSTM", 4, {}),
    ("LSTM", 4, {"peepholes": True}),
    ("GRU", 3, {}),
    ("GRU", 3, {"linear_before_reset": 1}),
    ("RNN", 1, {}),
]


def recurrent(op: str, gates: int, *, peepholes: bool = False, **attrs) -> onnx.ModelProto:
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    hidden, size, batch = 5, 3, 4
    weights = {
        "w": f32(directions, gates * hidden, size),
        "r": f32(directions, gates * hidden, hidden),
        "b": f32(directions, 2 * gates * hidden),
        "h": f32(directions, batch, hidden),
    }
    names = "y yh yc" if op == "LSTM" else "y yh"
    if peepholes:
        weights["p"] = f32(directions, 3 * hidden)
    cell = node(op, "x w r b n h" + " _ p" * peepholes, names, hidden_size=hidden, **attrs)
    inputs = {"x": (6, batch, size), "n": (batch,)}
    proto = model([cell], inputs, weights=weights, outputs=tuple(names.split()))
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT32
    return proto


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op, gates, more", CELLS)
@pytest.mark.parametrize("fixed", [False, True])
def test_sequences_of_different_lengths(
    op: str, gates: int, more: dict, direction: str, fixed: bool
) -> None:
    proto = recurrent(op, gates, direction=direction, **more)
    lengths = np.array([6, 1, 4, 3], np.int32)
    values = {"x": f32(6, 4, 3), "n": lengths}
    wanted = theirs(proto, values)
    if fixed:
        del proto.graph.input[1]
        proto.graph.initializer.append(numpy_helper.from_array(lengths, "n"))
        del values["n"]
    for found, expected in zip(ours(proto, values), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (1, 3, 5), (2, 2, 5), (1, 2, 4)])
@pytest.mark.parametrize("operand", [5, 6])
def test_states_of_another_shape_are_refused(shape: tuple[int, ...], operand: int) -> None:
    names = ["x", "w", "r", *"_" * (operand - 3), "h"]
    weights = {"w": f32(1, 20, 3), "r": f32(1, 20, 5), "h": np.asarray(f32(*shape), np.float32)}
    proto = model([node("LSTM", " ".join(names), hidden_size=5)], {"x": (4, 2, 3)}, weights=weights)
    with pytest.raises(ModelError, match=r"initial state must have shape \(1, 2, 5\)"):
        from_onnx(proto)


@pytest.mark.parametrize("shape", [(), (3,), (1, 2)])
def test_lengths_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    weights = {"w": f32(1, 20, 3), "r": f32(1, 20, 5), "n": np.ones(shape, np.int32)}
    proto = model([node("LSTM", "x w r _ n", hidden_size=5)], {"x": (4, 2, 3)}, weights=weights)
    with pytest.raises(ModelError, match="are not one for each of 2"):
        from_onnx(proto)


@pytest.mark.parametrize("op", ["LpPool", "MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [3, 3], "strides": [2, 2]},
        {"kernel_shape": [2, 3], "strides": [3, 2], "pads": [1, 0, 0, 1]},
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 1, 1, 1], "dilations": [2, 1]},
        {"kernel_shape": [2, 2], "strides": [3, 3]},
    ],
)
def test_pools_that_round_up(op: str, attrs: dict) -> None:
    for size in (7, 8):
        pool = node(op, "x", ceil_mode=1, **attrs)
        assert_like_onnxruntime(model([pool], {"x": (1, 2, size, size + 1)}, opset=20))


TEXT = np.array(["1", "b", "-zz"], object)
INTS = {"r": [1, 3], "u": [0], "two": [2], "i": [2, 0, 2], "g": [[1], [2]], "s": [0], "e": [2]}
MOVES = [
    ("Reshape", "t r", {}), ("Unsqueeze", "t u", {}), ("Concat", "t t", {"axis": 0}),
    ("Transpose", "t", {}), ("Shape", "t", {}), ("Size", "t", {}), ("Squeeze", "t", {}),
    ("Flatten", "t", {}), ("Expand", "t r", {}), ("Tile", "t two", {}), ("Slice", "t s e", {}),
    ("Gather", "t i", {}), ("GatherND", "t g", {}), ("Split", "t", {"num_outputs": 1}),
    ("GatherElements", "t i", {}), ("Where", "c t t", {}),
]  # fmt: skip


@pytest.mark.parametrize("op, operands, attrs", MOVES, ids=[op for op, *_ in MOVES])
def test_operators_that_move_elements_move_strings(op: str, operands: str, attrs: dict) -> None:
    used = operands.split()
    weights = {k: np.array(v, np.int64) for k, v in INTS.items() if k in used}
    if "c" in used:
        weights["c"] = np.array([True, False, True])
    proto = model([node(op, operands, **attrs)], {"t": (3,)}, weights=weights, opset=20)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    (found,), (wanted,) = run_any(proto, {"t": TEXT}), theirs(proto, {"t": TEXT})
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert found.tolist() == wanted.tolist()


def test_strings_of_two_operands_meet() -> None:
    inputs = {"a": (2,), "b": (3,)}
    proto = model([node("Concat", "b a b", "j", axis=0), node("Gather", "j i")], inputs,
                  weights={"i": np.array([3, 4, 0, 7])})  # fmt: skip
    for info in proto.graph.input:
        info.type.tensor_type.elem_type = TensorProto.STRING
    values = {"a": TEXT[:2], "b": TEXT}
    assert run_any(proto, values)[0].tolist() == theirs(proto, values)[0].tolist()


def test_a_sequence_is_an_output(tmp_path: Path) -> None:
    proto = model([node("SplitToSequence", "x", axis=0)], {"x": (3, 2)}, opset=20)
    output = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    proto.graph.output[0].CopyFrom(output)
    values = {"x": f32(3, 2)}
    (found,), (wanted,) = run_any(proto, values), theirs(proto, values)
    assert [x.tolist() for x in found] == [x.tolist() for x in wanted]
