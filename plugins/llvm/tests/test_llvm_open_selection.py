# SPDX-License-Identifier: Apache-2.0
"""Elements chosen along axes whose sizes only the run knows, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia

ROWS = {"few": 3, "many": 40}
CASES = {
    "few of columns": (0, 3, ((3, 7), (40, 5), (65, 1))),
    "few of rows": (1, 3, ((7, 3), (5, 40), (1, 65))),
    "many of rows, which a threshold finds": (1, 40, ((3, 40), (2, 399), (1, 400), (4, 1111))),
    "many of columns": (0, 40, ((40, 3), (500, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_top_k_of_open_sizes(name: str) -> None:
    axis, count, shapes = CASES[name]
    _agree(("A", "B"), axis, count, shapes)


@pytest.mark.parametrize("name", ROWS)
def test_top_k_of_rows_of_a_known_length(name: str) -> None:
    _agree(("A", 50), 1, ROWS[name], ((1, 50), (9, 50), (0, 50)))


def _agree(
    sizes: tuple[str | int, ...], axis: int, count: int, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """Choose from each of some shapes, of which some sizes are open."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=axis)],
        "g",
        [info("x", TensorProto.FLOAT, sizes)],
        [info("values", TensorProto.FLOAT, None), info("places", TensorProto.INT64, None)],
        [numpy_helper.from_array(np.array([count]), "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data, rng = model.SerializeToString(), np.random.default_rng(0)
    session = onnxruntime.InferenceSession(data)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        for shape in shapes:
            x = rng.standard_normal(shape).astype(np.float32)
            found = executable.run([x])
            values, places = session.run(None, {"x": x})
            np.testing.assert_array_equal(found["values"], values, err_msg=str(shape))
            np.testing.assert_array_equal(found["places"], places, err_msg=str(shape))
