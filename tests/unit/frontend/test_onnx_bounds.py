# SPDX-License-Identifier: Apache-2.0
"""Fixed numbers that sizes are compared with, and numbers that are something else."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia_onnx.bounds import NO_BOUND, largest_bound
from intarsia_onnx.reader import read_model

from .onnx_models import model, node

X = {"x": ("N", 4)}
SIZE = node("Shape", "x", "n", end=1)


def bound(nodes: list[onnx.NodeProto], weights: Mapping[str, object], opset: int = 18) -> int:
    arrays = {name: np.asarray(value) for name, value in weights.items()}
    made = model(nodes, X, weights=arrays, opset=opset)
    return largest_bound(read_model(made).graph)


@pytest.mark.parametrize(
    ("nodes", "weights", "found"),
    [
        ([node("Slice", "x a b")], {"a": [0, 3], "b": [2000, 2**60]}, 2000),
        ([node("Slice", "x a b")], {"a": [-5000], "b": [NO_BOUND]}, 5000),
        ([node("Unsqueeze", "b z", "c"), node("Slice", "x a c")],
         {"a": [0], "b": 70, "z": [0]}, 70),
        ([SIZE, node("Min", "n b", "m"), node("Slice", "x a m")], {"a": [0], "b": [300]}, 301),
        ([SIZE, node("Cast", "n", "f", to=1), node("Mul", "f h", "q"), node("Min", "q b", "m"),
          node("Cast", "m", "e", to=7), node("Slice", "x a e")],
         {"a": [0], "h": np.array([0.25], np.float32), "b": np.array([100], np.float32)}, 404),
        ([node("Constant", "", "b", value_int=900), SIZE, node("Less", "n b", "c"),
          node("Cast", "c", "e", to=7), node("Slice", "x a e")], {"a": [0]}, 901),
        ([node("Identity", "x", "w"), node("Reshape", "w s")], {"s": [-1, 2500]}, 0),
        ([node("Gather", "x i")], {"i": [1, 0, 1]}, 0),
        ([node("Mul", "x w")], {"w": np.array([9000], np.float32)}, 0),
    ],
)  # fmt: skip
def test_numbers_are_followed_to_where_they_bound(
    nodes: list[onnx.NodeProto], weights: dict[str, object], found: int
) -> None:
    assert bound(nodes, weights) == found


def test_old_operator_sets_have_bounds_in_attributes() -> None:
    assert bound([node("Slice", "x", starts=[0], ends=[4000])], {}, opset=9) == 4000
    assert bound([node("Clip", "x", min=-1.5, max=6.0)], {}, opset=9) == 6


def test_graphs_inside_are_followed() -> None:
    info = helper.make_tensor_value_info
    limit = numpy_helper.from_array(np.array([1234]), "limit")
    body = helper.make_graph(
        [node("Less", "n limit", "c"), node("Cast", "c", "r", to=TensorProto.FLOAT)],
        "inside", [], [info("r", TensorProto.FLOAT, None)], [limit],
    )  # fmt: skip
    found = bound([SIZE, node("If", "yes", then_branch=body, else_branch=body)], {"yes": True})
    assert found == 1235


def test_large_weights_are_not_read() -> None:
    """Only integers of more than a byte may be as large as a size."""
    many = np.full(1 << 17, 5000, np.float32)
    few = [SIZE, node("Cast", "n", "f", to=1), node("Min", "f w")]
    assert bound(few, {"w": many}) == 1
    assert bound(few, {"w": many[:9]}) == 5001
    assert bound([SIZE, node("Min", "n w")], {"w": np.full(1 << 17, 5000)}) == 5001
