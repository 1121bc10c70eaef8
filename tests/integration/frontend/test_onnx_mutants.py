# SPDX-License-Identifier: Apache-2.0
"""No mutant of a model is an internal error; ``python -m tests.e2e.model_mutants`` runs more."""

from __future__ import annotations

import warnings
from itertools import islice

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.e2e.model_mutants import check, mutants
from tests.unit.frontend.onnx_models import model, node

from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, UnsupportedError


def test_mutants_are_refused_with_a_reason() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = {number: check(data) for number, data in islice(mutants(0), 150)}
    assert {number: text for number, text in said.items() if text} == {}


WRONG_TYPES = [
    ("Elu", {"alpha": 1}, "a float"),
    ("Softmax", {"axis": 1.0}, "an integer"),
    ("Transpose", {"perm": 0}, "a list of integers"),
    ("Constant", {"value": "a"}, "a tensor"),
    ("Gelu", {"approximate": [1.0]}, "a string"),
    ("LinearAttention", {"kv_num_heads": [1]}, "an integer"),
]


@pytest.mark.parametrize("op, attrs, wanted", WRONG_TYPES, ids=[row[0] for row in WRONG_TYPES])
def test_attributes_have_the_types_of_their_operator(op: str, attrs: dict, wanted: str) -> None:
    opset = 27 if op == "LinearAttention" else 20
    operands = {"Constant": "", "LinearAttention": "x x x"}.get(op, "x")
    results = "y z" if op == "LinearAttention" else "y"
    proto = model([node(op, operands, results, **attrs)], {"x": (2,)}, opset=opset)
    name = next(iter(attrs))
    with pytest.raises(ModelError, match=f"attribute '{name}' is not {wanted}"):
        from_onnx(proto)


def test_a_body_that_leaves_out_a_result_is_refused() -> None:
    proto = model(
        [node("CausalConvWithState", "x w", "y s", activation="x")],
        {"x": (2, 4, 8), "w": (4, 1, 4)}, opset=27, outputs=("y", "s"),
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="cannot be expanded"):
        from_onnx(proto)


@pytest.mark.parametrize("dims", [(1 << 62, 0), (0, 1 << 62, 4)])
def test_an_empty_weight_with_a_size_that_no_array_has_is_refused(dims: tuple[int, ...]) -> None:
    proto = model([node("Add", "x w")], {"x": (1,)})
    proto.graph.initializer.append(TensorProto(name="w", data_type=1, dims=dims))
    with pytest.raises(Exception, match="no array has the shape") as caught:
        from_onnx(proto)
    assert caught.value.exit_code == 8


def test_a_declared_result_that_no_operand_leads_to_is_refused() -> None:
    proto = model([node("Expand", "x s")], {"x": (5, 5, 0), "s": (0,)})
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 5)))
    with pytest.raises(UnsupportedError, match="not known at compile time"):
        from_onnx(proto)


@pytest.mark.parametrize("attrs", [{"strides": [1]}, {"dilations": [1, 1, 1]}, {"pads": [0]},
                                   {"strides": [0, 1]}])  # fmt: skip
def test_blocks_with_windows_of_another_rank_are_refused(attrs: dict) -> None:
    weights = {"i": np.array([5, 5]), "k": np.array([1, 5])}
    proto = model([node("Col2Im", "x i k", **attrs)], {"x": (1, 5, 5)}, weights=weights)
    with pytest.raises(ModelError, match="strides"):
        from_onnx(proto)


def test_a_loop_whose_body_gives_too_few_values_is_refused() -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", "c", "k"), node("Abs", "v", "w")], "body",
        [info("t", TensorProto.INT64, ()), info("c", TensorProto.BOOL, ()), info("v", 1, (2,))],
        [info("k", TensorProto.BOOL, ()), info("w", 1, (2,))],
    )  # fmt: skip
    proto = model([node("Loop", "n _ x", "y z", body=body)], {"x": (2,)},
                  weights={"n": np.array(2)}, outputs=("y", "z"))  # fmt: skip
    with pytest.raises(ModelError, match="gives 0 values to collect, not 1"):
        from_onnx(proto)


@pytest.mark.parametrize(
    "x, window, found", [((5,), (4,), 0), ((1, 8, 1, 1), (4,), 0), ((1, 8), (), 2)]
)
def test_frames_of_another_rank_are_refused(x: tuple, window: tuple, found: int) -> None:
    weights = {"s": np.array(2), "w": np.ones(window, np.float32)}
    proto = model([node("STFT", "x s w")], {"x": x}, weights=weights)
    with pytest.raises(ModelError, match=f"input {found} must have"):
        from_onnx(proto)
