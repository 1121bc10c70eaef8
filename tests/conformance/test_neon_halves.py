# SPDX-License-Identifier: Apache-2.0
"""Products of 16-bit floats for AArch64 under QEMU: sums in float32, in float16 where allowed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.bench.aarch64 import outputs

TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-gcc")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")


def drawn(kind: str, *shape: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal(shape).astype(kind)


def save(path: Path, x: np.ndarray, weight: np.ndarray, shape: tuple[int, ...], **attrs) -> None:
    """Save a product, or a convolution if the weight has four dimensions."""
    op = "Conv" if weight.ndim == 4 else "MatMul"
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    info = helper.make_tensor_value_info
    node = helper.make_node(op, ["x", "w"], ["y"], **attrs)
    weights = [numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph(
        [node], "one", [info("x", kind, x.shape)], [info("y", kind, shape)], weights
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def convolved(x: np.ndarray, w: np.ndarray, stride: int, border: int) -> np.ndarray:
    """Return the convolution in float64."""
    groups, size = x.shape[1] // w.shape[1], w.shape[2]
    padded = np.pad(x, ((0, 0), (0, 0), (border, border), (border, border)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (2, 3))
    windows = windows[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("nchwyx,ocyx->nohw", d, own) for d, own in parts], 1)


def code_of(path: Path) -> str:
    """Return the code of the library beside a model."""
    tool = ["aarch64-linux-gnu-objdump", "-d", str(path.parent / "lib.so")]
    return subprocess.run(tool, capture_output=True, text=True, check=True).stdout


def adds_in_float16(path: Path) -> bool:
    """Whether the library beside a model multiplies and adds vectors of float16."""
    return re.search(r"fmla\s+v\d+\.8h", code_of(path)) is not None


def rounded(value: np.ndarray) -> np.ndarray:
    return value.astype(ml_dtypes.bfloat16).astype(np.float64)


def check_sums(got: np.ndarray, wanted: np.ndarray, magnitudes: np.ndarray, most: float) -> None:
    """Check results against sums in float64, by the sums of the magnitudes of their products."""
    assert np.all(np.abs(got - wanted) <= most * magnitudes)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "uses"),
    [
        (13, 64, 19, "bfmmla"),
        (1, 64, 24, "bfmmla"),
        (9, 8, 3, "bfmmla"),
        (11, 22, 16, "bfdot"),
        (16, 256, 64, "bfmmla"),
        (30, 4104, 80, "bfmmla"),  # whose sums of parts lie in memory
        (5, 33, 16, "fmla"),  # no pairs along K
    ],
)
def test_products_in_bfloat16_are_sums_of_rounded_operands(
    tmp_path: Path, rows: int, depth: int, columns: int, uses: str
) -> None:
    path, x, w = (
        tmp_path / "model.onnx",
        drawn("float32", rows, depth),
        drawn("float32", depth, columns),
    )
    save(path, x, w, (rows, columns))
    made = outputs(path, "neoverse-n2", x, "-fpmath-mode=bf16")
    got = np.frombuffer(made, np.float32).reshape(rows, columns)
    assert uses in code_of(path)
    narrow = (
        (x.astype(np.float64), w.astype(np.float64)) if uses == "fmla" else (rounded(x), rounded(w))
    )
    a, b = narrow
    check_sums(got, a @ b, np.abs(a) @ np.abs(b), 2.0**-20)


@pytest.mark.parametrize(
    ("data", "weight", "stride", "border", "uses"),
    [
        ((1, 16, 9, 11), (20, 16, 3, 3), 1, 1, "bfmmla"),
        ((1, 32, 9, 11), (24, 32, 3, 3), 2, 0, "bfmmla"),
        ((1, 32, 12, 10), (40, 16, 3, 3), 1, 1, "bfmmla"),
        ((2, 3, 15, 17), (16, 3, 7, 7), 2, 3, "bfdot"),
        ((1, 24, 7, 5), (9, 24, 1, 1), 2, 0, "bfmmla"),
    ],
)
def test_convolutions_in_bfloat16_are_sums_of_rounded_operands(
    tmp_path: Path, data, weight, stride, border, uses
) -> None:
    path, x, w = tmp_path / "model.onnx", drawn("float32", *data), drawn("float32", *weight)
    groups = data[1] // weight[1]
    wanted = convolved(rounded(x), rounded(w), stride, border)
    attrs = {"strides": [stride] * 2, "pads": [border] * 4, "group": groups}
    save(path, x, w, wanted.shape, **attrs)
    made = outputs(path, "neoverse-n2", x, "-fpmath-mode=bf16")
    got = np.frombuffer(made, np.float32).reshape(wanted.shape)
    assert uses in code_of(path)
    magnitudes = convolved(np.abs(rounded(x)), np.abs(rounded(w)), stride, border)
    check_sums(got, wanted, magnitudes, 2.0**-20)


@pytest.mark.filterwarnings("ignore:'-fpmath-mode")  # what has none of it says so
@pytest.mark.parametrize(
    ("processor", "options"),
    [
        ("neoverse-n2", ""),
        ("cortex-a76", "-fpmath-mode=bf16"),
        ("neoverse-n2 -mattr=-bf16", "-fpmath-mode=bf16"),
    ],
)
def test_bfloat16_is_for_who_asks_and_has_it(tmp_path: Path, processor: str, options: str) -> None:
    path, x, w = tmp_path / "model.onnx", drawn("float32", 8, 32), drawn("float32", 32, 16)
    save(path, x, w, (8, 16))
    got = np.frombuffer(outputs(path, processor, x, options), np.float32).reshape(8, 16)
    check_sums(got, x.astype(np.float64) @ w, np.abs(x) @ np.abs(w), 2.0**-20)
    assert "bfmmla" not in code_of(path)


@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [(13, 64, 19), (1, 64, 24), (9, 8, 3), (11, 22, 16), (16, 256, 64), (5, 33, 40)],
)
def test_products_of_float16_may_add_up_in_it(
    tmp_path: Path, rows: int, depth: int, columns: int
) -> None:
    path, x, w = (
        tmp_path / "model.onnx",
        drawn("float16", rows, depth),
        drawn("float16", depth, columns),
    )
    save(path, x, w, (rows, columns))
    got = np.frombuffer(outputs(path, "cortex-a76", x, "-fpmath-mode=fp16"), np.float16)
    a, b = x.astype(np.float64), w.astype(np.float64)
    assert adds_in_float16(path)
    check_sums(got.reshape(rows, columns), a @ b, np.abs(a) @ np.abs(b), 2.0**-11 * depth**0.5)


@pytest.mark.parametrize(
    ("data", "weight", "stride", "border"),
    [
        ((1, 16, 9, 11), (20, 16, 3, 3), 1, 1),
        ((1, 32, 9, 11), (24, 16, 3, 3), 2, 0),
        ((2, 3, 15, 17), (16, 3, 7, 7), 2, 3),
        ((1, 24, 7, 5), (9, 24, 1, 1), 1, 0),
    ],
)
def test_convolutions_of_float16_may_add_up_in_it(
    tmp_path: Path, data, weight, stride, border
) -> None:
    path, x, w = tmp_path / "model.onnx", drawn("float16", *data), drawn("float16", *weight)
    wide, wide_weight = x.astype(np.float64), w.astype(np.float64)
    wanted = convolved(wide, wide_weight, stride, border)
    groups = data[1] // weight[1]
    save(path, x, w, wanted.shape, strides=[stride] * 2, pads=[border] * 4, group=groups)
    got = np.frombuffer(outputs(path, "neoverse-n2", x, "-fpmath-mode=fp16"), np.float16)
    assert adds_in_float16(path)
    magnitudes = convolved(np.abs(wide), np.abs(wide_weight), stride, border)
    check_sums(got.reshape(wanted.shape), wanted, magnitudes, 2.0**-11 * w[0].size ** 0.5)


@pytest.mark.filterwarnings("ignore:'-fpmath-mode")  # what has none of it says so
@pytest.mark.parametrize(
    ("processor", "options", "kind"),
    [
        ("cortex-a76", "", "float16"),
        ("cortex-a72", "-fpmath-mode=fp16", "float16"),  # converts float16 only
        ("cortex-a76", "-fpmath-mode=fp16", "float32"),
    ],
)
def test_sums_in_float16_are_for_who_asks_and_has_them(
    tmp_path: Path, processor: str, options: str, kind: str
) -> None:
    path, x, w = tmp_path / "model.onnx", drawn(kind, 8, 64), drawn(kind, 64, 16)
    save(path, x, w, (8, 16))
    got = np.frombuffer(outputs(path, processor, x, options), kind).reshape(8, 16)
    a, b = x.astype(np.float64), w.astype(np.float64)
    one_rounding = 2.0**-11 if kind == "float16" else 2.0**-20
    check_sums(got, a @ b, np.abs(a) @ np.abs(b), one_rounding)
    assert not adds_in_float16(path)
