# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from intarsia_runtime.artifact.machine import (
    Machine,
    check_machine,
    detect_machine,
    read_cpu_features,
)
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.errors import ArtifactError

PASSPORT = Passport(
    name="m",
    intarsia="0",
    target="toy",
    os="linux",
    arch="x86_64",
    plan=CallPlan((), (), (), (), 0, ()),
    units=(),
    cpu_features=("avx2", "avx512f"),
)


def test_features_are_those_of_every_processor(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags : sse2 avx2\nprocessor : 1\nflags\t: sse2 fma\n")
    assert read_cpu_features(cpuinfo) == {"sse2"}
    cpuinfo.write_text("processor : 0\nFeatures\t: fp asimd sve\n")
    assert read_cpu_features(cpuinfo) == {"fp", "asimd", "sve"}
    cpuinfo.write_text("processor : 0\n")
    assert read_cpu_features(cpuinfo) is None
    assert read_cpu_features(tmp_path / "absent") is None


def test_an_emulator_shows_the_list_of_another_machine(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nflags : sse2 avx2\n")
    assert read_cpu_features(cpuinfo, "x86_64") == {"sse2", "avx2"}
    assert read_cpu_features(cpuinfo, "aarch64") is None


@pytest.mark.parametrize(
    ("isa", "extensions"),
    [
        ("rv64imafdcv_zba_zvfh", {*"imafdcv", "zba", "zvfh"}),
        ("rv64gc_zicsr", {*"imafdc", "zicsr"}),
        ("unknown", set[str]()),
    ],
)
def test_a_risc_v_processor_names_its_extensions(
    isa: str, extensions: set[str], tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nhart\t\t: 1\nisa\t\t: {isa}\nmmu\t\t: sv39\n")
    assert read_cpu_features(cpuinfo, "riscv64") == extensions


def test_this_machine_describes_itself() -> None:
    machine = detect_machine()
    assert machine.os == sys.platform
    assert machine.arch


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (Machine("linux", "aarch64", None), "for linux/x86_64, this machine is linux/aarch64"),
        (Machine("darwin", "x86_64", None), "for linux/x86_64, this machine is darwin/x86_64"),
        (
            Machine("linux", "x86_64", frozenset({"avx2"})),
            "needs the CPU features avx2 avx512f; this machine has no avx512f",
        ),
    ],
)
def test_an_artifact_for_another_machine_is_refused(machine: Machine, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        check_machine(PASSPORT, machine)


def test_an_artifact_for_this_machine_is_accepted() -> None:
    check_machine(PASSPORT, Machine("linux", "x86_64", frozenset({"avx2", "avx512f", "sse2"})))
    check_machine(replace(PASSPORT, cpu_features=()), Machine("linux", "x86_64", frozenset()))
    check_machine(PASSPORT, Machine("linux", "x86_64", None))


def test_reading_a_passport_imports_no_numpy() -> None:
    code = (
        "import intarsia_runtime.artifact.archive, sys; print({'numpy', 'onnx'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
