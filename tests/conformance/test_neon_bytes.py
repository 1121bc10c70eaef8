# SPDX-License-Identifier: Apache-2.0
"""Products of bytes for AArch64 under QEMU: exact sums by each instruction that makes them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.bench.aarch64 import outputs

TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-gcc")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")

PROCESSORS = {"cortex-a53": "smull", "cortex-a76": "sdot", "neoverse-n2": "smmla"}
"""Processor to the instruction of its inner loops over several rows."""


def model(x: np.ndarray, weight: np.ndarray, path: Path, stride: int = 0) -> np.ndarray:
    """Save an integer product, or a convolution of a stride; return its sums.

    Args:
        x: Rows ``[M, K]``, or an image ``[1, C, H, W]``.
        weight: ``[K, N]``, or ``[N, C, 3, 3]``, in int8.
        path: The model.
        stride: Of a convolution of 3x3 with a border of one; a product if 0.
    """
    op, attrs = ("MatMulInteger", {})
    wide, w = x.astype(np.int64), weight.astype(np.int64)
    if stride:
        op, attrs = "ConvInteger", {"strides": [stride] * 2, "pads": [1] * 4}
        padded = np.pad(wide, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        sums = np.einsum("nchwyx,ocyx->nohw", windows[:, :, ::stride, ::stride], w)
    else:
        sums = wide @ w
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], **attrs)],
        "one",
        [info("x", kind, x.shape)],
        [info("y", TensorProto.INT32, sums.shape)],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path
    )
    return sums.astype(np.int32)


def computed(path: Path, processor: str, x: np.ndarray) -> tuple[np.ndarray, str]:
    """Return a model's result on a processor, and the code of its library."""
    result = np.frombuffer(outputs(path, processor, x), np.int32)
    listing = subprocess.run(
        ["aarch64-linux-gnu-objdump", "-d", str(path.parent / "lib.so")],
        capture_output=True,
        text=True,
        check=True,
    )
    return result, listing.stdout


def drawn(kind: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(kind)
    return np.random.default_rng(1).integers(limits.min, limits.max + 1, shape).astype(kind)


PRODUCTS = {
    "all bytes": (drawn("int8", 13, 64), drawn("int8", 64, 19)),
    "no sign": (drawn("uint8", 21, 96), drawn("int8", 96, 33)),
    "rest of K": (drawn("int8", 11, 41), drawn("int8", 41, 16)),
    "one row": (drawn("uint8", 1, 64), drawn("int8", 64, 24)),
    "least pairs": (np.full((12, 64), -128, np.int8), np.full((64, 16), -128, np.int8)),
    "narrow pairs": (np.full((12, 64), -128, np.int8), np.full((64, 16), -127, np.int8)),
}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_exact(tmp_path: Path, name: str, processor: str) -> None:
    x, weight = PRODUCTS[name]
    wanted = model(x, weight, tmp_path / "model.onnx")
    got, code = computed(tmp_path / "model.onnx", processor, x)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
    is_alone = len(x) == 1 or x.shape[1] % 16  # a row, or words that do not fill vectors
    assert ("sdot" if is_alone and processor != "cortex-a53" else PROCESSORS[processor]) in code


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(("kind", "stride"), [("int8", 1), ("uint8", 2)])
def test_convolutions_are_exact(tmp_path: Path, kind: str, stride: int, processor: str) -> None:
    x, weight = drawn(kind, 1, 16, 9, 11), drawn("int8", 20, 16, 3, 3)
    wanted = model(x, weight, tmp_path / "model.onnx", stride)
    got, code = computed(tmp_path / "model.onnx", processor, x)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
    assert PROCESSORS[processor] in code
