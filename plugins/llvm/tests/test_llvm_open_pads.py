# SPDX-License-Identifier: Apache-2.0
"""Padded rows whose length only the run knows, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia

SIZES = ((4, 4), (5, 19), (4, 16), (33, 70))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("widths", [(0, 1, 0, 1), (2, 3, 1, 0), (0, 0, 3, 2)])
def test_pads_of_open_rows(mode: str, widths: tuple[int, int, int, int]) -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "widths"], ["y"], mode=mode)],
        "g",
        [info("x", TensorProto.FLOAT, ("H", "W"))],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(widths), "widths")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    data, rng = model.SerializeToString(), np.random.default_rng(0)
    session = onnxruntime.InferenceSession(data)
    smallest = () if mode == "reflect" else ((1, 1), (2, 3))
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        for shape in (*smallest, *SIZES):
            x = rng.standard_normal(shape).astype(np.float32)
            wanted = session.run(None, {"x": x})[0]
            np.testing.assert_array_equal(executable.run([x])["y"], wanted, err_msg=str(shape))
