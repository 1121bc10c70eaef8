# SPDX-License-Identifier: Apache-2.0
"""Kernels for AArch64 under QEMU: ONNX Runtime's outputs, and few instructions."""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest

import intarsia
from intarsia_runtime.artifact.archive import open_artifact

from .aarch64 import CPUS, KERNELS, count, counter
from .instructions import write_program

TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "cc")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed")


@pytest.mark.parametrize("processor", CPUS)
@pytest.mark.parametrize("name", KERNELS)
def test_outputs_are_those_of_onnx_runtime(tmp_path, name, processor):
    model = KERNELS[name].model
    onnx.save(model, tmp_path / "model.onnx")
    declared = model.graph.input[0].type.tensor_type
    shape = [d.dim_value for d in declared.shape.dim]
    rng, kind = np.random.default_rng(3), onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)
    x = rng.standard_normal(shape).astype(kind)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        x = rng.integers(limits.min, limits.max + 1, shape).astype(kind)
    (tmp_path / "in").write_bytes(x.tobytes())
    target = f"llvm -mtriple=aarch64-linux-gnu -mcpu={processor}"
    intarsia.build(str(tmp_path / "model.onnx"), target=target).save(tmp_path / "model.intarsia")
    program = write_program(
        open_artifact(tmp_path / "model.intarsia"), tmp_path, "aarch64-linux-gnu-gcc"
    )
    emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", "max,sve=off"]
    files = [str(tmp_path / file) for file in ("in", "out")]
    alone = {"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]}
    subprocess.run([*emulator, *program, "1", *files], check=True, env=alone)
    options = onnxruntime.SessionOptions()
    if kind == np.uint8:  # without VNNI its products saturate by default
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, {"x": x})
    got = np.frombuffer((tmp_path / "out").read_bytes(), want.dtype).reshape(want.shape)
    if kind.kind in "iu":
        np.testing.assert_array_equal(got, want)
    else:
        near = 2e-2 if kind == np.float16 else 1e-4
        np.testing.assert_allclose(got, want, atol=near * np.abs(want).max())


@pytest.mark.parametrize(
    ("name", "processor", "most"),
    [
        ("float32 product", "cortex-a72", 0.32),
        ("float16 product", "cortex-a76", 0.32),
        ("int8 product", "cortex-a72", 0.32),
        ("int8 3x3 convolution", "cortex-a72", 0.32),
        ("int8 product", "cortex-a76", 0.095),
        ("int8 3x3 convolution", "cortex-a76", 0.095),
        ("int8 product", "neoverse-n2", 0.08),
        ("int8 3x3 convolution", "neoverse-n2", 0.08),
    ],
)
def test_instructions_of_a_multiply_add_stay_few(tmp_path, name, processor, most):
    counted = count(KERNELS[name], processor, counter(tmp_path), tmp_path)
    assert counted.instructions <= most * KERNELS[name].products
    assert sum(loop.spills for loop in counted.loops) == 0
