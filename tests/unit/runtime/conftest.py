# SPDX-License-Identifier: Apache-2.0
"""A compiled artifact without a compiler: its code is a small C file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_ir.writing.artifact_writer import write_artifact
from intarsia_runtime.artifact.machine import detect_machine
from intarsia_runtime.artifact.passport import Passport, UnitEntry
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    KernelStep,
    RegionStep,
    TensorSpec,
)
from intarsia_runtime.artifact.unit import SHARED_LIBRARY, CompiledUnit
from intarsia_runtime.dtype import DType

SHAPE = (2, 3)
BIAS = np.array([1, 2, 3], np.float32)


def _tensor(place: ArgumentSource, index: int, shape: tuple[int, ...] = SHAPE) -> Argument:
    return Argument(place, index, shape, DType.FLOAT32)


PLAN = CallPlan(
    inputs=(TensorSpec("x", SHAPE, DType.FLOAT32),),
    outputs=(TensorSpec("y", SHAPE, DType.FLOAT32), TensorSpec("z", SHAPE, DType.FLOAT32)),
    constants=("bias",),
    regions=("double_0",),
    workspace_bytes=128,
    steps=(
        KernelStep(
            "relu",
            (_tensor(ArgumentSource.INPUT, 0), _tensor(ArgumentSource.WORKSPACE, 0)),
            "nn.relu",
            ("r",),
        ),
        RegionStep(
            0,
            (_tensor(ArgumentSource.WORKSPACE, 0), _tensor(ArgumentSource.WORKSPACE, 64)),
            "twice",
            ("d",),
        ),
        KernelStep(
            "add",
            (
                _tensor(ArgumentSource.WORKSPACE, 64),
                _tensor(ArgumentSource.CONSTANT, 0, (3,)),
                _tensor(ArgumentSource.OUTPUT, 0),
            ),
            "add",
            ("a",),
        ),
        CopyStep(_tensor(ArgumentSource.INPUT, 0), _tensor(ArgumentSource.OUTPUT, 1)),
    ),
)


@pytest.fixture(scope="session")
def machine_code(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to make the sample's code")
    target = tmp_path_factory.mktemp("code") / "lib.so"
    source = Path(__file__).with_name("sample.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", target, source], check=True)
    return target.read_bytes()


@pytest.fixture
def passport() -> Passport:
    machine = detect_machine()
    shape = TensorSpec("t", SHAPE, DType.FLOAT32)
    return Passport(
        name="sample",
        intarsia="0",
        target="toy",
        os=machine.os,
        arch=machine.arch,
        plan=PLAN,
        units=(
            UnitEntry("main", SHARED_LIBRARY, ("lib.so",)),
            UnitEntry("double_0", SHARED_LIBRARY, ("lib.so",), (), (shape,), (shape,)),
        ),
    )


@pytest.fixture
def save(tmp_path: Path, machine_code: bytes, passport: Passport) -> Callable[..., Path]:
    """Write the sample, with another loader for its region and other files if wanted."""

    def write(loader: str = SHARED_LIBRARY, plugin: str = "", **changes: object) -> Path:
        region = replace(passport.units[1], loader=loader, plugin=plugin, constants=("bias",))
        written = replace(passport, units=(passport.units[0], region), **changes)
        files = {"lib.so": machine_code}
        units = [
            CompiledUnit("main", SHARED_LIBRARY, files),
            CompiledUnit("double_0", loader, files),
        ]
        path = tmp_path / "sample.intarsia"
        write_artifact(path, written, units, {"bias": BIAS})
        return path

    return write


@pytest.fixture
def artifact(save: Callable[..., Path]) -> Path:
    return save()


@pytest.fixture
def toy_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Install a distribution with the loader ``toy``, whose body is the given source."""

    def install(source: str, distribution: str = "intarsia-toy") -> None:
        module = distribution.replace("-", "_") + "_" + os.urandom(4).hex()
        site = tmp_path / f"site-{distribution}"
        metadata = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n"
        )
        (metadata / "entry_points.txt").write_text(f"[intarsia.loaders]\ntoy = {module}:load\n")
        (site / f"{module}.py").write_text(source)
        monkeypatch.setattr(sys, "path", [str(site), *sys.path])

    return install
