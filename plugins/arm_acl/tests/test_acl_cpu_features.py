# SPDX-License-Identifier: Apache-2.0
"""An AArch64 machine refuses code for another processor, with the names of what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

import intarsia
from intarsia_arm_acl.validate import CPU
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.dtype import DType

from .aarch64_python import Unavailable, make_python

LOAD = """\
import sys
import numpy as np
import intarsia
import intarsia_runtime.errors
try:
    made = intarsia.load(sys.argv[1]).run({"x": np.zeros((2, 3), np.float32)})
    print({name: array.tolist() for name, array in made.items()})
except intarsia_runtime.errors.ArtifactError as error:
    print(error.exit_code, error)
"""


@pytest.mark.slow
def test_the_emulated_processor_runs_its_own_code_only(tmp_path: Path) -> None:
    try:
        python = make_python(tmp_path / "root")
    except Unavailable as reason:
        pytest.skip(str(reason))
    x = Var("x", TensorType((2, 3), DType.FLOAT32))
    module = IRModule.from_function(Function((x,), call(OPERATORS["tanh"], x)))
    said: dict[str, str] = {}
    for cpu in (CPU, "neoverse-v1"):
        path = str(tmp_path / f"{cpu}.intarsia")
        intarsia.build(module, f"llvm -mtriple=aarch64-linux-gnu -mcpu={cpu}").save(path)
        said[cpu] = python.run("-c", LOAD, path)
    assert "[0.0, 0.0, 0.0]" in said[CPU]
    assert said["neoverse-v1"].startswith("7 ")
    lacking = said["neoverse-v1"].partition("this machine has no ")[2].split()
    assert {"sve", "i8mm", "bf16"} <= set(lacking)
    assert not {"atomics", "asimddp", "lrcpc"} & set(lacking)
