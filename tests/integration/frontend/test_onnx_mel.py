# SPDX-License-Identifier: Apache-2.0
"""MelWeightMatrix of bands and frequencies that are inputs, compiled, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

import intarsia

CASES = (
    (8, 16, 8192, 0, 4096),
    (80, 512, 16000, 20, 8000),
    (128, 400, 16000, 0, 8000),  # narrow bands: some have no bins, some share one
    (3, 64, 8000, 100, 4000),
    (64, 32, 16000, 0, 8000),
)


def test_bands_of_the_run() -> None:
    names = ("bands", "length", "rate", "low", "high")
    kinds = (*(TensorProto.INT32,) * 3, *(TensorProto.FLOAT,) * 2)
    graph = helper.make_graph(
        [helper.make_node("MelWeightMatrix", names, ["y"])],
        "g",
        [
            helper.make_tensor_value_info(name, kind, [])
            for name, kind in zip(names, kinds, strict=True)
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data)
    artifact = intarsia.build(data, "llvm")
    assert artifact.placement.host == ()
    with artifact.load(threads=1) as executable:
        for case in CASES:
            given = [
                np.array(value, np.int32 if n < 3 else np.float32) for n, value in enumerate(case)
            ]
            (wanted,) = session.run(None, dict(zip(names, given, strict=True)))
            (found,) = executable.run(dict(zip(names, given, strict=True))).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=str(case))
