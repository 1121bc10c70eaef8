# SPDX-License-Identifier: Apache-2.0
"""Transposes by squares of whole vectors on AArch64, under QEMU."""

from __future__ import annotations

import shutil
from pathlib import Path

import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 by it
import numpy as np
import onnx
import pytest
from onnx import helper
from tests.bench.aarch64 import outputs

from .test_neon_halves import code_of

TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-gcc")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")

LANES = {"int8": "16b", "float16": "8h", "bfloat16": "4s", "float32": "4s"}
"""Type to the lanes of vectors that its squares are transposed in."""


@pytest.mark.parametrize("kind", LANES)
@pytest.mark.parametrize("shape", [(2, 35, 50), (1, 16, 16), (3, 64, 21)])
def test_squares_of_whole_vectors_are_transposed(
    tmp_path: Path, kind: str, shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(4).integers(-128, 128, shape).astype(np.dtype(kind))
    wanted = x.swapaxes(1, 2)
    element = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node("Transpose", ["x"], ["y"], perm=(0, 2, 1))
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "one", [info("x", element, shape)], [info("y", element, wanted.shape)]
    )
    path = tmp_path / "model.onnx"
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    got = np.frombuffer(outputs(path, "cortex-a72", x), x.dtype).reshape(wanted.shape)
    np.testing.assert_array_equal(got, wanted)
    assert f".{LANES[kind]}, v" in code_of(path)
