# SPDX-License-Identifier: Apache-2.0
"""Artifacts for another machine: built here, named in the passport, refused here.

The tests of the Arm plugin run such an artifact under emulation.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_llvm.link import find_linker
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, ToolchainError

TRIPLE = "aarch64-linux-gnu"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        find_linker(TRIPLE)
    except ToolchainError as error:
        pytest.skip(f"{error} ({error.hint})")
    x = Var("x", TensorType((2, 3), DType.FLOAT32))
    module = IRModule.from_function(Function((x,), call(OPERATORS["tanh"], x)))
    path = tmp_path_factory.mktemp("cross") / "model.intarsia"
    intarsia.build(module, target=f"llvm -mtriple={TRIPLE} -mcpu=cortex-a72").save(path)
    return path


def test_the_passport_names_machine_and_target(artifact: Path) -> None:
    passport = open_artifact(artifact).passport
    assert passport.arch == "aarch64"
    assert f"-mtriple={TRIPLE}" in passport.target
    assert "-mcpu=cortex-a72" in passport.target


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the artifact would run here")
def test_another_machine_refuses_it(artifact: Path) -> None:
    with pytest.raises(ArtifactError, match="is for linux/aarch64, this machine is linux/x86_64"):
        intarsia.load(artifact)


def test_the_code_exports_the_convention(artifact: Path, tmp_path: Path) -> None:
    reader = shutil.which("readelf") or shutil.which("llvm-readelf")
    if reader is None:
        pytest.skip("no readelf to look into the library with")
    code = open_artifact(artifact).unit_files("main")["lib.so"]
    (tmp_path / "lib.so").write_bytes(code)
    command = [reader, "-h", "--dyn-syms", str(tmp_path / "lib.so")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "AArch64" in said
    assert "__tvm_ffi_main" in said or "intarsia_run_steps" in said
