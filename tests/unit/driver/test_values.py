# SPDX-License-Identifier: Apache-2.0
"""Values of inputs that are constants of what is compiled."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia.driver.source import ModuleSource
from intarsia_ir.given_values import input_values, parse_value
from intarsia_ir.graph.types import TensorType, variable
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UsageError

TYPES = {
    "rate": TensorType((), DType.INT64),
    "flag": TensorType((1,), DType.BOOL),
    "scale": TensorType((2,), DType.FLOAT32),
    "any": TensorType((variable("n"), 2), DType.INT32),
}


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("rate", "16000", np.array(16000)),
        ("rate", "0x10", np.array(16)),
        ("rate", 5, np.array(5)),
        ("flag", "true", np.array([True])),
        ("scale", "1,2.5", np.array([1, 2.5], np.float32)),
        ("scale", [1, 2], np.array([1, 2], np.float32)),
        ("any", "1,2,3,4", np.array([[1, 2], [3, 4]], np.int32)),
        ("any", np.ones((3, 2)), np.ones((3, 2), np.int32)),
    ],
)
def test_a_value_has_the_type_of_its_input(name: str, value: object, wanted: np.ndarray) -> None:
    found = input_values({name: value}, TYPES)[name]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("rat", "1", "a value is given for 'rat', which is no input"),
        ("rate", "fast", "'fast' is no value of input 'rate'"),
        ("rate", "1.5", "'1.5' is no value of input 'rate'"),
        ("rate", "1,2", "'1,2' is no value of input 'rate'"),
        ("scale", "1", "'1' is no value of input 'scale'"),
        ("any", "1,2,3", "'1,2,3' is no value of input 'any'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        input_values({name: value}, TYPES)


def test_options_are_names_and_values() -> None:
    assert parse_value("sr=16000") == ("sr", "16000")
    assert parse_value("a=b=c") == ("a", "b=c")
    for text in ("sr", "=1", "sr="):
        with pytest.raises(UsageError, match="is no value of an input"):
            parse_value(text)


def chosen() -> bytes:
    """An ``If`` on an input, whose branches give results of different ranks."""
    info = helper.make_tensor_value_info

    def branch(op: str, **attrs: object) -> object:
        node = helper.make_node(op, ["x"], [op], **attrs)
        return helper.make_graph([node], op, [], [info(op, TensorProto.FLOAT, None)])

    then, other = branch("Exp"), branch("ReduceSum", keepdims=0)
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        "g",
        [info("x", TensorProto.FLOAT, [3]), info("c", TensorProto.BOOL, [])],
        [info("y", TensorProto.FLOAT, None)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return made.SerializeToString()


@pytest.mark.parametrize(("value", "shape"), [("true", (3,)), (False, ())])
def test_a_value_decides_a_branch(value: object, shape: tuple[int, ...]) -> None:
    module = ModuleSource(chosen(), values={"c": value}).module()
    assert [param.name for param in module.main.params] == ["x"]
    assert module.main.body.type.shape == shape


def test_a_module_takes_values() -> None:
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "s"], ["y"])],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "s")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    whole = intarsia.from_onnx(proto)
    module = ModuleSource(whole, values={"s": "2,3"}).module()
    assert [param.name for param in module.main.params] == ["x"]
    assert [param.name for param in whole.main.params] == ["x", "s"]
