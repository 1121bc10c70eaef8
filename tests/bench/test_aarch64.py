# SPDX-License-Identifier: Apache-2.0
"""Kernels for AArch64 under QEMU: ONNX Runtime's outputs, and few instructions."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest

from .aarch64 import CPUS, KERNELS, LAYERS, count, counter, outputs
from .aarch64_peers import counted, show_processor

TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "cc")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
ALL = {**KERNELS, **LAYERS}
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")


@pytest.mark.parametrize("processor", CPUS)
@pytest.mark.parametrize("name", ALL)
def test_outputs_are_those_of_onnx_runtime(tmp_path, name, processor):
    model = ALL[name].model
    onnx.save(model, tmp_path / "model.onnx")
    declared = model.graph.input[0].type.tensor_type
    shape = [d.dim_value for d in declared.shape.dim]
    rng, kind = np.random.default_rng(3), onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)
    x = rng.standard_normal(shape).astype(kind)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        x = rng.integers(limits.min, limits.max + 1, shape).astype(kind)
    made = outputs(tmp_path / "model.onnx", processor, x, ALL[name].options)
    options = onnxruntime.SessionOptions()
    if kind == np.uint8:  # without VNNI its products saturate by default
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, {"x": x})
    got = np.frombuffer(made, want.dtype).reshape(want.shape)
    if kind.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:
        near = 2e-2 if kind == np.float16 or "bfloat16" in name else 1e-4
        np.testing.assert_allclose(got, want, atol=near * np.abs(want).max())


@pytest.mark.parametrize(
    ("name", "processor", "most"),
    [
        ("float32 product", "cortex-a72", 0.32),
        ("float16 product", "cortex-a76", 0.32),
        ("float16 product in float16", "cortex-a76", 0.147),
        ("float16 3x3 convolution in float16", "cortex-a76", 0.153),
        ("int8 product", "cortex-a72", 0.32),
        ("int8 3x3 convolution", "cortex-a72", 0.32),
        ("int8 product", "cortex-a76", 0.088),
        ("int8 3x3 convolution", "cortex-a76", 0.085),
        ("uint8 product", "cortex-a76", 0.089),
        ("uint8 3x3 convolution", "cortex-a76", 0.086),
        ("int8 product", "neoverse-n2", 0.057),
        ("int8 3x3 convolution", "neoverse-n2", 0.055),
        ("uint8 product", "neoverse-n2", 0.057),
        ("uint8 3x3 convolution", "neoverse-n2", 0.055),
        ("float32 product in bfloat16", "neoverse-n2", 0.103),
        ("float32 3x3 convolution in bfloat16", "neoverse-n2", 0.106),
        ("LSTM of 128 columns, batch 1", "cortex-a72", 0.419),
        ("LSTM of 128 columns, batch 4", "cortex-a72", 0.341),
        ("LSTM of 128 columns, batch 8", "cortex-a72", 0.356),
        ("GRU of 128 columns, batch 1", "cortex-a72", 0.414),
        ("GRU of 128 columns, batch 4", "cortex-a72", 0.337),
        ("GRU of 128 columns, batch 8", "cortex-a72", 0.352),
    ],
)
def test_instructions_of_a_multiply_add_stay_few(tmp_path, name, processor, most):
    counted = count(ALL[name], processor, counter(tmp_path), tmp_path)
    assert counted.instructions <= most * ALL[name].products
    assert sum(loop.spills for loop in counted.loops) == 0


def test_a_program_of_another_library_that_fails_is_told(tmp_path):
    show_processor(tmp_path)
    program = tmp_path / "fails"
    (tmp_path / "fails.c").write_text("int main(void) { return 7; }")
    tool = ["aarch64-linux-gnu-gcc", "-static", str(tmp_path / "fails.c"), "-o", str(program)]
    subprocess.run(tool, check=True)
    with pytest.raises(RuntimeError, match="status 7"):
        counted([str(program)], counter(tmp_path), tmp_path)
