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

from intarsia_ir.tir.expr import IntImm, index
from intarsia_loops.cpu.packing import pair_columns, paired_position, unpair_columns

TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-gcc")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")

PROCESSORS = {"cortex-a53": "smull", "cortex-a76": "sdot", "neoverse-n2": "smmla"}
"""Processor to the instruction of its inner loops over several rows."""


def model(
    x: np.ndarray, weight: np.ndarray, path: Path, stride: int = 0, border: int = 1, apart: int = 1
) -> np.ndarray:
    """Save an integer product, or a convolution of a stride; return its sums.

    Args:
        x: Rows ``[M, K]``, or an image ``[1, C, H, W]``.
        weight: ``[K, N]``, or ``[N, C / groups, 3, 3]``, in int8.
        path: The model.
        stride: Of a convolution of 3x3; a product if 0.
        border: Its padding.
        apart: Its dilation.
    """
    op, attrs = ("MatMulInteger", {})
    wide, w = x.astype(np.int64), weight.astype(np.int64)
    if stride:
        groups = x.shape[1] // weight.shape[1]
        attrs = {"strides": [stride] * 2, "pads": [border] * 4, "dilations": [apart] * 2}
        op, attrs = "ConvInteger", {**attrs, "group": groups}
        padded = np.pad(wide, ((0, 0), (0, 0), (border, border), (border, border)))
        span = 2 * apart + 1
        windows = np.lib.stride_tricks.sliding_window_view(padded, (span, span), (2, 3))
        windows = windows[:, :, ::stride, ::stride, ::apart, ::apart]
        parts = [
            np.einsum("nchwyx,ocyx->nohw", data, own)
            for data, own in zip(np.split(windows, groups, 1), np.split(w, groups), strict=True)
        ]
        sums = np.concatenate(parts, 1)
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
    "no sign, rest of K": (drawn("uint8", 12, 36), drawn("int8", 36, 17)),
    "one step": (drawn("int8", 9, 16), drawn("int8", 16, 3)),
    "in parts": (drawn("int8", 40, 8208), drawn("int8", 8208, 80)),
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
    uses = "sdot" if is_alone and processor != "cortex-a53" else PROCESSORS[processor]
    if processor == "neoverse-n2" and x.dtype == np.uint8:
        uses = "usdot|sudot" if is_alone else "usmmla"
    assert any(name in code for name in uses.split("|"))


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(("kind", "stride"), [("int8", 1), ("uint8", 2)])
def test_convolutions_are_exact(tmp_path: Path, kind: str, stride: int, processor: str) -> None:
    x, weight = drawn(kind, 1, 16, 9, 11), drawn("int8", 20, 16, 3, 3)
    wanted = model(x, weight, tmp_path / "model.onnx", stride)
    got, code = computed(tmp_path / "model.onnx", processor, x)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
    assert PROCESSORS[processor] in code


@pytest.mark.parametrize(
    ("data", "weight", "window"),
    [
        ((1, 32, 9, 11), (24, 32, 3, 3), (1, 0, 1)),  # rows of the input itself
        ((1, 64, 12, 10), (40, 32, 3, 3), (1, 1, 1)),  # groups
        ((1, 16, 14, 13), (8, 16, 3, 3), (1, 3, 3)),  # taps apart
        ((2, 16, 1, 9), (5, 16, 3, 3), (1, 1, 1)),  # rows that are padding alone
    ],
)
def test_windows_of_pairs_are_exact(tmp_path: Path, data, weight, window) -> None:
    x, w = drawn("uint8", *data), drawn("int8", *weight)
    wanted = model(x, w, tmp_path / "model.onnx", *window)
    got, code = computed(tmp_path / "model.onnx", "neoverse-n2", x)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
    assert "smmla" in code


@pytest.mark.parametrize("processor", ["cortex-a76", "neoverse-n2"])
def test_padding_counts_where_most_taps_meet_it(tmp_path: Path, processor: str) -> None:
    x, w = drawn("uint8", 1, 16, 14, 14), drawn("int8", 8, 16, 3, 3)
    wanted = model(x, w, tmp_path / "model.onnx", 1, 5, 5)
    got, _ = computed(tmp_path / "model.onnx", processor, x)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


def test_pairs_of_columns_are_where_loops_read_them() -> None:
    words = np.arange(3 * 4 * 8).reshape(3, 4, 8)
    packed = pair_columns(words)
    np.testing.assert_array_equal(packed[0, :2, :4], [[0, 8, 1, 9], [2, 10, 3, 11]])
    np.testing.assert_array_equal(unpair_columns(packed), words)
    for word, column in np.ndindex(4, 8):
        place = paired_position(index(word), index(column))
        row, lane = (at.value for at in place if isinstance(at, IntImm))
        assert packed[2, row, lane] == words[2, word, column]
