# SPDX-License-Identifier: Apache-2.0
"""Grids sampled from images whose sizes only the run knows, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import intarsia

MODES = [
    (mode, padding, corners)
    for mode in ("linear", "nearest", "cubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (0, 1)
]


@pytest.mark.parametrize(("mode", "padding", "corners"), MODES)
def test_grids_of_open_images(mode, padding, corners) -> None:
    info = helper.make_tensor_value_info
    node = helper.make_node(
        "GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=corners
    )
    inputs = [
        info("x", TensorProto.FLOAT, ("N", 2, "H", "W")),
        info("grid", TensorProto.FLOAT, ("N", "A", "B", 2)),
    ]
    graph = helper.make_graph([node], "g", inputs, [info("y", TensorProto.FLOAT, None)])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(data.SerializeToString())
    made, rng = intarsia.build(data.SerializeToString(), "llvm"), np.random.default_rng(0)
    assert made.passport.plan.open is not None
    with made.load(threads=1) as executable:
        for n, h, w, a, b in ((1, 7, 5, 4, 3), (3, 17, 31, 1, 9), (2, 1, 1, 3, 3), (1, 2, 1, 5, 1)):
            x = rng.standard_normal((n, 2, h, w)).astype(np.float32)
            grid = rng.uniform(-2.3, 2.3, (n, a, b, 2)).astype(np.float32)
            found = np.asarray(executable.run([x, grid])["y"])
            wanted = session.run(None, {"x": x, "grid": grid})[0]
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5, err_msg=f"{h}x{w}")
