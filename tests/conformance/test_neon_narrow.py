# SPDX-License-Identifier: Apache-2.0
"""Floats that become small integers on AArch64, under QEMU: limits, ties, NaN and infinities."""

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

KINDS = {
    np.dtype(name): helper.np_dtype_to_tensor_dtype(np.dtype(name))
    for name in ("int8", "uint8", "int16", "uint16")
}
SPECIAL = [np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5]
SPECIAL += [127.5, 128.5, -128.5, -129.5, 254.5, 255.5, 32767.5, -32768.5, 65535.5, 65536.5]


def floats() -> np.ndarray:
    x = np.random.default_rng(2).uniform(-70000, 70000, 203)  # no whole number of vectors
    x[::2] /= 300
    x[: len(SPECIAL)] = SPECIAL
    return x.astype(np.float32)


def save(node: onnx.NodeProto, kind: int, path: Path, **constants: np.ndarray) -> None:
    """Save a model of one operator, from floats to another type."""
    info, size = helper.make_tensor_value_info, (len(floats()),)
    graph = helper.make_graph(
        [node],
        "one",
        [info("x", TensorProto.FLOAT, size)],
        [info("y", kind, size)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path
    )


def saturated(x: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Convert whole numbers as every backend does: NaN gives 0."""
    limits = np.iinfo(kind)
    return np.clip(np.where(np.isnan(x), 0, x), limits.min, limits.max).astype(kind)


def computed(path: Path, kind: np.dtype) -> tuple[np.ndarray, str]:
    """Return the results, and the code that they are from."""
    result = np.frombuffer(outputs(path, "cortex-a72", floats()), kind)
    tool = ["aarch64-linux-gnu-objdump", "-d", str(path.parent / "lib.so")]
    return result, subprocess.run(tool, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("zero", [0, 7])
def test_rounded_floats_saturate(tmp_path: Path, kind: np.dtype, zero: int) -> None:
    scale, offset = np.float32(0.5), np.array(zero, kind)
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])
    save(node, KINDS[kind], tmp_path / "model.onnx", scale=scale, zero=offset)
    got, code = computed(tmp_path / "model.onnx", kind)
    wanted = saturated(np.rint(floats().astype(np.float64) / 0.5) + zero, kind)
    np.testing.assert_array_equal(got, wanted)
    assert ("sqxtn" if kind.kind == "i" else "uqxtn") in code


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_converted_floats_are_cut_off(tmp_path: Path, kind: np.dtype) -> None:
    save(
        helper.make_node("Cast", ["x"], ["y"], to=KINDS[kind]), KINDS[kind], tmp_path / "model.onnx"
    )
    got, code = computed(tmp_path / "model.onnx", kind)
    np.testing.assert_array_equal(got, saturated(np.trunc(floats().astype(np.float64)), kind))
    assert ("sqxtn" if kind.kind == "i" else "uqxtn") in code


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("zero", [0, 7, 100])
@pytest.mark.parametrize("scales", [1, 24])  # of the weights: one, or of each column
def test_sums_are_rescaled_as_float32_is(tmp_path: Path, kind: str, zero: int, scales: int) -> None:
    rng, limits = np.random.default_rng(5), np.iinfo(kind)
    x = rng.integers(limits.min, limits.max + 1, (21, 32)).astype(kind)
    w = rng.integers(-127, 128, (32, 24)).astype(np.int8)
    w_scale = np.float32(0.01) * rng.integers(1, 4, scales).astype(np.float32)
    x_scale, y_scale, offset = np.float32(0.02), np.float32(0.04), np.array(zero, kind)
    constants = {"xs": x_scale, "xz": offset, "w": w, "ws": w_scale, "ys": y_scale, "yz": offset}
    constants["wz"] = np.zeros(scales, np.int8)
    if scales == 1:
        constants.update(ws=w_scale[0], wz=np.int8(0))
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    info, element = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("QLinearMatMul", names, ["y"])],
        "one",
        [info("x", element, x.shape)],
        [info("y", element, (21, 24))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    path = tmp_path / "model.onnx"
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    got = np.frombuffer(outputs(path, "neoverse-n2", x), kind).reshape(21, 24)
    sums = ((x.astype(np.int32) - zero) @ w.astype(np.int32)).astype(np.float32)
    wanted = saturated(np.rint(sums * (x_scale * w_scale / y_scale)) + zero, np.dtype(kind))
    np.testing.assert_array_equal(got, wanted)
    assert {limits.min, limits.max} <= set(np.unique(got))
