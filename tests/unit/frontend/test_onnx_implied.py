# SPDX-License-Identifier: Apache-2.0
"""Operands that are inputs and follow from the declared shapes: compiled, and checked by a run."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import intarsia
from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.module import OnlyFor
from intarsia_onnx import from_onnx
from intarsia_onnx.graph import Node
from intarsia_onnx.implied import UnknownOperands, forms
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.artifact.plan_json import spec_from_json, spec_to_json
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, ModelError, UnsupportedError

F, INDEX = TensorProto.FLOAT, TensorProto.INT64
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def model(op: str, operand: list, result: list | tuple, **attrs: object) -> bytes:
    """A node of ``x``, which is float (2, 3, 4), and ``n``, which is int64."""
    return chain([helper.make_node(op, ["x", "n"], ["y"], **attrs)], operand, {"y": result})


def chain(nodes: list, operand: list, results: dict, x: tuple = (2, 3, 4)) -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", F, x), info("n", INDEX, operand)],
        [info(name, F, list(shape)) for name, shape in results.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()


def run(data: bytes, *values: list, x: np.ndarray = X) -> list[np.ndarray]:
    artifact = intarsia.build(data, "llvm")
    assert artifact.placement.host == ()
    with artifact.load(threads=1) as executable:
        return [executable.run({"x": x, "n": np.array(n, np.int64)})["y"] for n in values]


def test_axes_that_the_sizes_tell() -> None:
    found = run(model("ReduceSum", [2], [1, 3, 1]), [0, 2], [2, 0], [-1, 0], [-3, -1])
    for result in found:
        np.testing.assert_array_equal(result, X.sum((0, 2), keepdims=True))


def test_axes_that_the_sizes_leave_open_are_chosen_at_run_time() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2) - 5
    node = helper.make_node("ReduceL1", ["x", "n"], ["y"], keepdims=0)
    data = chain([node], [1], {"y": (3, 2)}, x=(3, 2, 2))
    for axis, result in zip((1, 2, -2, -1), run(data, [1], [2], [-2], [-1], x=x), strict=True):
        np.testing.assert_array_equal(result, np.abs(x).sum(axis))


def test_every_axis_of_a_running_sum() -> None:
    found = run(model("CumSum", [], [2, 3, 4]), *range(-3, 3))
    for axis, result in zip(range(-3, 3), found, strict=True):
        np.testing.assert_array_equal(result, np.cumsum(X, axis))


SHAPED = [
    ("Reshape", [2], [6, 4], {}, [[6, 4], [-1, 4], [6, -1]], X.reshape(6, 4)),
    ("Reshape", [3], [2, 4, 3], {}, [[2, 4, 3], [0, -1, 3], [2, 4, -1]], X.reshape(2, 4, 3)),
    ("Unsqueeze", [2], [1, 2, 1, 3, 4], {}, [[0, 2], [2, -5]], X.reshape(1, 2, 1, 3, 4)),
    ("Tile", [3], [2, 6, 4], {}, [[1, 2, 1]], np.tile(X, (1, 2, 1))),
    ("Expand", [4], [5, 2, 3, 4], {}, [[5, 1, 3, 4], [5, 2, 1, 1]], np.stack([X] * 5)),
    ("TopK", [1], [2, 3, 2], {}, [[2]], X[..., ::-1][..., :2]),
    ("CenterCropPad", [2], [2, 1, 4], {"axes": [1, 2]}, [[1, 4]], X[:, 1:2]),
]


@pytest.mark.parametrize(("op", "operand", "result", "attrs", "values", "wanted"), SHAPED)
def test_operands_that_say_sizes(op, operand, result, attrs, values, wanted) -> None:
    data = model(op, operand, result, **attrs)
    if op == "TopK":
        nodes = [helper.make_node("TopK", ["x", "n"], ["y", ""], axis=-1)]
        data = chain(nodes, operand, {"y": result})
    for found in run(data, *values):
        np.testing.assert_array_equal(found, wanted)


def test_parts_of_a_split() -> None:
    nodes = [
        helper.make_node("Split", ["x", "n"], ["y", "z"], axis=2),
    ]
    data = chain(nodes, [2], {"y": (2, 3, 1), "z": (2, 3, 3)})
    (found,) = run(data, [1, 3])
    np.testing.assert_array_equal(found, X[..., :1])
    with pytest.raises(ModelError, match=r"input 'n' is \[2, 2\]; .* go with \[1, 3\]"):
        run(data, [2, 2])


def test_sizes_are_followed_back_through_functions_of_elements() -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x", "n"], ["s"]),
        helper.make_node("Sqrt", ["s"], ["r"]),
        helper.make_node("Neg", ["r"], ["y"]),
    ]
    (found,) = run(chain(nodes, [1], {"y": (2, 1, 4)}), [1])
    np.testing.assert_allclose(found, -np.sqrt(X.sum(1, keepdims=True)), rtol=1e-6)


def test_a_value_that_contradicts_the_declaration_is_an_error() -> None:
    data = model("ReduceSum", [1], [2, 1, 4])
    module = from_onnx(data)
    assert module.attr(OnlyFor) == OnlyFor({"n": ((-2,), (1,))})
    with pytest.raises(ModelError, match=r"input 'n' is \[0\]; .* go with \[-2\] or \[1\]") as got:
        run(data, [0])
    assert "executor vm" in got.value.hint
    artifact = intarsia.build(data, "llvm", executor=intarsia.Executor("vm"))
    with artifact.load(threads=1) as executable:  # a program follows the value
        found = executable.run({"x": X, "n": np.array([0], np.int64)})["y"]
    np.testing.assert_array_equal(found, X.sum(0, keepdims=True))


def test_two_nodes_narrow_what_a_value_may_be() -> None:
    nodes = [
        helper.make_node("CumSum", ["x", "n"], ["y"]),
        helper.make_node("ReduceSum", ["x", "n"], ["z"]),
    ]
    data = chain(nodes, [1], {"y": (2, 3, 4), "z": (2, 3, 1)})
    module = from_onnx(data)
    assert module.attr(OnlyFor) == OnlyFor({"n": ((-1,), (2,))})
    (found,) = run(data, [2])
    np.testing.assert_array_equal(found, np.cumsum(X, 2))


@pytest.mark.parametrize(
    ("operand", "result"),
    [([1], [2, "n", 4]), ([1], [7, 7, 7]), ([5], [1, 1, 1]), (["k"], [1, 1, 1])],
)
def test_what_no_declaration_tells_is_refused(operand: list, result: list) -> None:
    with pytest.raises(UnsupportedError, match="the axes is not known"):
        from_onnx(model("ReduceSum", operand, result))


def test_other_shapes_of_the_inputs_void_the_declaration() -> None:
    with pytest.raises(UnsupportedError, match="the axes is not known"):
        from_onnx(_open_model(), shapes={"x": [2, 3, 4]})


def _open_model() -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x", "n"], ["y"])],
        "g",
        [info("x", F, ["batch", 3, 4]), info("n", INDEX, [1])],
        [info("y", F, [2, 1, 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()


def test_a_spec_keeps_its_values() -> None:
    spec = TensorSpec("n", (2,), DType.INT64, only=((0, 1), (-1, 2)))
    assert spec_from_json(spec_to_json(spec)) == spec
    for damaged in ([1], [["a"]]):
        with pytest.raises(ArtifactError, match="values that an input may have"):
            spec_from_json(spec_to_json(spec) | {"only": damaged})


@given(st.data())
def test_every_order_of_axes_is_among_the_forms(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    axes = data.draw(st.lists(st.integers(0, rank - 1), unique=True, min_size=1, max_size=3))
    node = Node("ReduceSum", "", ("x", "n"), ("y",), {}, Span("it", "ReduceSum"))
    shape = (2,) * rank
    found = dict(forms(UnknownOperands(node, (1,), (shape, (len(axes),)), (shape,))))
    for order in permutations(axes):
        assert found[order] == tuple(sorted(axes))
        assert found[tuple(axis - rank for axis in order)] == tuple(sorted(axes))


def test_too_many_forms_are_none() -> None:
    node = Node("Reshape", "", ("x", "n"), ("y",), {}, Span("it", "Reshape"))
    shape = (2,) * 10
    assert forms(UnknownOperands(node, (1,), (shape, (10,)), (shape,))) == []


def two(op: str, x: list, result: list, **attrs: object) -> bytes:
    """A node of ``x`` and two operands that are inputs."""
    info = helper.make_tensor_value_info
    names = {"Col2Im": ["x", "n", "m"], "STFT": ["x", "n", "", "m"]}[op]
    shape = [2] if op == "Col2Im" else []
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)],
        "g",
        [info("x", F, x), info("n", INDEX, shape), info("m", INDEX, shape)],
        [info("y", F, result)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()


def test_operands_that_follow_together() -> None:
    data = two("STFT", [1, 128, 1], [1, 15, 9, 2])
    assert from_onnx(data).attr(OnlyFor) == OnlyFor({"n": ((8,),), "m": ((16,),)})
    x = np.sin(np.arange(128, dtype=np.float32)).reshape(1, 128, 1)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        found = executable.run({"x": x, "n": np.array(8), "m": np.array(16)})["y"]
    frames = np.stack([x[0, at : at + 16, 0] for at in range(0, 113, 8)])
    wanted = np.fft.rfft(frames)
    np.testing.assert_allclose(found[0, ..., 0] + 1j * found[0, ..., 1], wanted, atol=1e-4)


def test_blocks_of_two_forms_are_told_apart_at_run_time() -> None:
    data = two("Col2Im", [1, 5, 5], [1, 1, 5, 5])
    x = np.arange(25, dtype=np.float32).reshape(1, 5, 5)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        for block, wanted in (([1, 5], x[0].T), ([5, 1], x[0])):
            given = {"x": x, "n": np.array([5, 5]), "m": np.array(block)}
            np.testing.assert_array_equal(executable.run(given)["y"][0, 0], wanted)


def test_operands_that_only_go_with_one_another_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="the step is not known"):
        from_onnx(two("STFT", [1, 10, 1], [1, 3, 3, 2]))
