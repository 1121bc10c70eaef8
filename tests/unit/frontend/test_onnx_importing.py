# SPDX-License-Identifier: Apache-2.0
"""What importing keeps of a model (names, order, places, branches), and what it refuses."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from intarsia_ir.diagnostics import ModelWarning
from intarsia_ir.graph.expr import Call, If
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.graph.types import variable
from intarsia_ir.graph.walk import calls, post_order
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, TypeRuleError, UnsupportedError, UsageError

from .onnx_models import assert_like_onnxruntime, model, node, ours


def test_names_order_and_places() -> None:
    nodes = [node("MatMul", "b w", "h", name="fc"), node("Add", "h a")]
    proto = model(nodes, {"b": (2, 3), "a": (4,)}, weights={"w": np.ones((3, 4), np.float32)})
    main = from_onnx(proto).main
    assert [param.name for param in main.params] == ["b", "a"]
    assert main.output_names == ("y",)
    assert [str(call.span) for call in calls(main)] == ["fc (MatMul)", "y (Add)"]


def test_initializer_listed_as_input_is_no_parameter() -> None:
    proto = model(
        [node("Add", "x w")], {"x": (2,), "w": (2,)}, weights={"w": np.ones(2, np.float32)}
    )
    assert [param.name for param in from_onnx(proto).main.params] == ["x"]


def test_output_that_is_an_input() -> None:
    proto = model([node("Relu", "x")], {"x": (2,)}, outputs=("x", "y"))
    values = np.array([-1, 1], np.float32)
    same, relu = ours(proto, {"x": values})
    assert same.tolist() == [-1, 1]
    assert relu.tolist() == [0, 1]


def test_shapes_replace_symbols_everywhere() -> None:
    proto = model([node("Add", "x z")], {"x": ("N", 3), "z": ("N", 1)})
    main = from_onnx(proto, shapes={"x": (5, 3)}).main
    assert [param.type.shape for param in main.params] == [(5, 3), (5, 1)]
    assert from_onnx(proto).main.params[0].type.shape == (variable("N"), 3)


@pytest.mark.parametrize(
    "shapes, fragment",
    [
        ({"q": (1,)}, "inputs: left, right"),
        ({"lefft": (1,)}, "did you mean 'left'?"),
        ({"left": (1,)}, "has 2 dimensions"),
        ({"left": (-1, 3)}, "negative size -1"),
        ({"left": (2, 3), "right": (4, 3)}, "dimension 'N' is 2 and 4"),
    ],
)
def test_wrong_shapes(shapes: dict, fragment: str) -> None:
    proto = model([node("Add", "left right")], {"left": ("N", 3), "right": ("N", 3)})
    with pytest.raises(UsageError) as caught:
        from_onnx(proto, shapes=shapes)
    assert fragment in str(caught.value)


def _switch(then_op: str = "Relu", else_op: str = "Neg") -> onnx.ModelProto:
    def graph(op: str) -> onnx.GraphProto:
        info = helper.make_empty_tensor_value_info(f"{op}_out")
        return helper.make_graph([node(op, "h", f"{op}_out")], op, [], [info])

    nodes = [
        node("Abs", "x", "h"),
        node("Cast", "k", "c", to=TensorProto.BOOL),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=graph(then_op), else_branch=graph(else_op)
        ),
    ]
    return model(nodes, {"x": (3,), "k": ()})


def test_if_at_run_time_and_at_compile_time() -> None:
    proto = _switch()
    x = np.array([-1, 2, -3], np.float32)
    main = from_onnx(proto).main
    assert any(isinstance(e, If) for e in post_order(main.body))
    for condition in (0, 1):
        k = np.array(condition, np.float32)
        sign = 1 if condition else -1
        assert evaluate(main, {"x": x, "k": k})[0].tolist() == [sign, 2 * sign, 3 * sign]
        known = from_onnx(proto, constants={"k": k}).main
        assert [param.name for param in known.params] == ["x"]
        assert not any(isinstance(e, If) for e in post_order(known.body))
        assert evaluate(known, {"x": x})[0].tolist() == [sign, 2 * sign, 3 * sign]


def test_branch_not_taken_may_be_unsupported() -> None:
    proto = _switch(else_op="Nonsense")
    from_onnx(proto, constants={"k": np.array(1, np.float32)})
    with pytest.raises(UnsupportedError, match="Nonsense"):
        from_onnx(proto)


def test_branches_of_different_types() -> None:
    with pytest.raises(UnsupportedError, match="chosen at run time"):
        from_onnx(_switch(else_op="IsNaN"))
    with pytest.raises(UnsupportedError, match="else_branch does not fit"):
        from_onnx(_switch(else_op="Not"))


@pytest.mark.parametrize(
    "value, fragment",
    [(np.zeros((), np.int32), "takes float32"), (np.zeros(2, np.float32), "shape (2,)")],
)
def test_wrong_constants(value: np.ndarray, fragment: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_onnx(_switch(), constants={"k": value})
    assert fragment in str(caught.value)


def test_all_problems_in_one_error() -> None:
    nodes = [
        node("Rellu", "x", "a", name="act1"),
        node("Rellu", "x", "b", name="act2"),
        node("Add", "a b", "c"),
        node("Sofmax", "c", "d", name="act3"),
        node("Magic", "x", "e", name="act4", domain="com.example"),
        node("EyeLike", "x", "f", name="eye"),
        node("Sum", "d e f", "y"),
    ]
    proto = model(nodes, {"x": (2,)})
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(proto)
    text = str(caught.value)
    for fragment in ("'act1', 'act2'", "'Relu'", "'act3'", "'Softmax'", "com.example", "EyeLike"):
        assert fragment in text


N, M = variable("N"), variable("M")

SHAPE_ARITHMETIC = {
    "the whole shape": ([node("Shape", "x", "s"), node("Reshape", "x s")], (N, 3, M)),
    "a size in the place of -1": ([node("Reshape", "x k")], (N, M, 3)),
    "one size, gathered": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s two", "m", axis=0),
            node("Concat", "m minus", "t", axis=0),
            node("Reshape", "x t"),
        ],
        (M, 3 * N),
    ),
    "a product of sizes": (
        [
            node("Shape", "x", "s"),
            node("Slice", "s zero one", "n"),
            node("Mul", "n three", "p"),
            node("Concat", "p minus", "t", axis=0),
            node("Reshape", "x t"),
        ],
        (3 * N, M),
    ),
    "a slice up to a size": (
        [node("Shape", "x", "s"), node("Slice", "s zero one", "n"), node("Slice", "x zero n two")],
        None,
    ),
    "a constant of a shape": (
        [node("Shape", "x", "s"), node("ConstantOfShape", "s", "z"), node("Add", "x z")],
        (N, 3, M),
    ),
}


@pytest.mark.parametrize("name", SHAPE_ARITHMETIC)
def test_shapes_as_data_are_sizes(name: str) -> None:
    nodes, shape = SHAPE_ARITHMETIC[name]
    weights = {
        "k": np.array([0, -1, 3], np.int64),
        "two": np.array([2], np.int64),
        "one": np.array([1], np.int64),
        "zero": np.array([0], np.int64),
        "three": np.array([3], np.int64),
        "minus": np.array([-1], np.int64),
    }
    with collecting_guards():
        main = from_onnx(model(nodes, {"x": ("N", 3, "M")}, weights=weights)).main
    for n, m in ((2, 5), (4, 3), (1, 1)):
        x = np.arange(n * 3 * m, dtype=np.float32).reshape(n, 3, m)
        (got,) = evaluate(main, {"x": x})
        if shape is not None:
            assert main.body.type.shape == shape
            np.testing.assert_array_equal(got.reshape(-1), x.reshape(-1))
        else:
            np.testing.assert_array_equal(got, x[:, :, :n])


def test_one_symbolic_size_survives_reshapes() -> None:
    nodes = [
        node("Flatten", "x", "f"),
        node("Unsqueeze", "f a", "u"),
        node("Reshape", "u s"),
    ]
    weights = {"a": np.array([1], np.int64), "s": np.array([0, 3, -1], np.int64)}
    main = from_onnx(model(nodes, {"x": ("N", 2, 3)}, weights=weights)).main
    assert main.body.type.shape == (variable("N"), 3, 2)
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    assert evaluate(main, {"x": x})[0].shape == (2, 3, 2)


def test_a_declared_output_shape_that_is_wrong_is_a_warning() -> None:
    proto = model([node("Relu", "x")], {"x": (2, 3)})
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 4)))
    with pytest.warns(ModelWarning, match=r"output 'y' is declared as Tensor\[\(2, 4\)"):
        assert from_onnx(proto).main.body.type.shape == (2, 3)  # ONNX Runtime warns too


def test_a_rank_that_an_exporter_guessed_is_a_warning() -> None:
    """PyTorch writes one named size behind a Squeeze of a scalar; ONNX Runtime warns too."""
    proto = model([node("Squeeze", "x")], {"x": (1,)})
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["If_0"]))
    with pytest.warns(ModelWarning, match=r"declared as Tensor\[\(If_0,\), float32\], but is"):
        assert from_onnx(proto).main.body.type.shape == ()
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT32, ["If_0"]))
    with pytest.raises(ModelError, match="declared as"):
        from_onnx(proto)


def test_type_errors_name_the_node() -> None:
    proto = model(
        [node("Add", "x w", name="sum")], {"x": (2, 3)}, weights={"w": np.ones(4, np.float32)}
    )
    with pytest.raises(TypeRuleError, match=r"sum \(Add\)"):
        from_onnx(proto)


def test_model_local_functions_are_expanded() -> None:
    body = [node("Mul", "a a", "b"), node("Relu", "b", "c")]
    opset = [helper.make_opsetid("", 18)]
    function = helper.make_function("local", "Twice", ["a"], ["c"], body, opset)
    proto = model([node("Twice", "x", domain="local")], {"x": (3,)})
    proto.opset_import.append(helper.make_opsetid("local", 1))
    proto.functions.append(function)
    assert [call.name for call in calls(from_onnx(proto).main)] == ["multiply", "nn.relu"]


def test_bodies_onnx_defines_keep_the_place() -> None:
    proto = model([node("SoftmaxCrossEntropyLoss", "x l", name="loss")], {"x": (3, 5)})
    label = helper.make_tensor_value_info("l", TensorProto.INT64, (3,))
    proto.graph.input.append(label)
    main = from_onnx(proto).main
    assert {call.span.name for call in calls(main)} == {"loss"}


def _old_add(**attrs) -> onnx.ModelProto:
    weight = np.ones(3 if attrs else 4, np.float32)
    proto = model([node("Add", "x w", broadcast=1, **attrs)], {"x": (2, 3, 4)}, opset=6)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, weight.shape))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3, 4)))
    return proto


def test_old_operator_set_is_upgraded() -> None:
    (found,) = ours(_old_add(), {"x": np.zeros((2, 3, 4), np.float32)})
    assert (found == 1).all()
    with pytest.raises(UnsupportedError, match="operator set 6 cannot be upgraded"):
        from_onnx(_old_add(axis=1))


def test_deep_graphs_are_linear(tmp_path: Path) -> None:
    def seconds(length: int) -> float:
        names = [f"v{index}" for index in range(length)]
        nodes = [node("Relu", a, b) for a, b in zip(["x", *names], [*names, "y"], strict=True)]
        data = model(nodes, {"x": (2,)}).SerializeToString()
        start = time.process_time()
        module = from_onnx(data)
        spent = time.process_time() - start
        assert sum(isinstance(e, Call) for e in post_order(module.main.body)) == length + 1
        return spent

    seconds(100)
    assert seconds(20_000) < 20


def test_constant_subgraphs_are_known() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s i", "n"),
        node("Unsqueeze", "n a", "u"),
        node("Concat", "u m", "t", axis=0),
        node("Reshape", "x t"),
    ]
    weights = {
        "i": np.array(0, np.int64),
        "a": np.array([0], np.int64),
        "m": np.array([-1], np.int64),
    }
    assert_like_onnxruntime(model(nodes, {"x": (2, 3, 4)}, weights=weights))


def test_folding_keeps_to_its_budget() -> None:
    nodes = [
        node("ConstantOfShape", "s", "big"),
        node("ReduceSum", "big", "total", keepdims=0),
        node("Cast", "total", "n", to=TensorProto.INT64),
        node("Reshape", "x n"),
    ]
    proto = model(nodes, {"x": (4,)}, weights={"s": np.array([1 << 16, 1 << 10], np.int64)})
    start = time.process_time()
    with pytest.raises(UnsupportedError, match="not known at compile time"):
        from_onnx(proto)
    assert time.process_time() - start < 2
