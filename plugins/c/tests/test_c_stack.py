# SPDX-License-Identifier: Apache-2.0
"""Functions of the C sources have small frames, as the C compiler counts them."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import intarsia
from intarsia_ir.tir.passes.stack_to_scratch import SMALL_STACK_BYTES

SHAPES = {
    "a long sequence": ("Conv", (1, 64, 50_000), (32, 64, 3), {"pads": [1, 1]}),
    "an image": ("Conv", (1, 32, 40, 40), (32, 32, 5, 5), {"pads": [2] * 4}),
    "a dilation of 2**30": (
        *("Conv", (1, 8, 16), (8, 8, 2)),
        {"pads": [1 << 30, 0], "dilations": [1 << 30]},
    ),
    "a pool": ("MaxPool", (1, 1, 3_000_000), None, {"kernel_shape": [3]}),
    "rows of 6000": ("Softmax", (30, 6000), None, {"axis": -1}),
    "sums of columns": ("CumSum", (5, 1000, 3000), np.array(1), {}),
    "the largest of many": ("TopK", (3, 10_000), np.array([3000]), {}),
}


def save_model(path, kind, data, weight, attributes):
    """Write a model of one node."""
    names, weights = ["x"], []
    if weight is not None:
        array = weight if isinstance(weight, np.ndarray) else np.ones(weight, np.float32)
        names, weights = ["x", "w"], [numpy_helper.from_array(array, "w")]
    outputs = ["y", "i"] if kind == "TopK" else ["y"]
    node = helper.make_node(kind, names, outputs, **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [value("x", onnx.TensorProto.FLOAT, data)],
        [value(name, onnx.TensorProto.UNDEFINED, None) for name in outputs],
        weights,
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)


@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")
@pytest.mark.parametrize("name", SHAPES)
def test_frames_are_small(tmp_path, name):
    path = tmp_path / "m.onnx"
    save_model(path, *SHAPES[name])
    artifact = intarsia.build(str(path), target="c")
    (unit,) = artifact.units
    for file, content in unit.files.items():
        if file.endswith((".c", ".h")):
            (tmp_path / file).write_bytes(content)
    most = f"-Wframe-larger-than={2 * SMALL_STACK_BYTES}"
    command = ["gcc", "-std=c99", "-O1", most, "-Werror", "-S", "-o", "-", "model_entry.c"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
