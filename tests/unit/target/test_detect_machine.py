# SPDX-License-Identifier: Apache-2.0
"""What a machine says of itself, and the tag that fits it."""

from __future__ import annotations

import archspec.cpu
import pytest

from intarsia.target.detect import (
    MachineFacts,
    clean_name,
    detect,
    lattice,
    machine_facts,
    not_run_by,
)
from intarsia_ir.hardware.tags import HardwareTable, HardwareTag
from intarsia_runtime.errors import ModelError


def tag(name: str, march: str = "", *aliases: str, kind: str = "core") -> HardwareTag:
    return HardwareTag(
        name, kind, "words", "a manual", aliases=aliases, target="loops", microarchitecture=march
    )


TABLE = HardwareTable(
    [
        tag("x86/v3", "x86_64_v3"),
        tag("x86/v4", "x86_64_v4"),
        tag("intel/cascadelake", "cascadelake"),
        tag("intel/xeon", "cascadelake", "Intel Xeon Platinum 8259CL", kind="cpu"),
        tag("pie/4b", "aarch64", "Pie 4 Model B", kind="board"),
    ]
)


def facts(march: str, *models: str, cpu: str = "") -> MachineFacts:
    one = archspec.cpu.TARGETS[march]
    return MachineFacts("linux", "x86_64", models, cpu, march, frozenset(one.features))


@pytest.mark.parametrize(
    "machine, name, reason",
    [
        (facts("aarch64", "Pie 4 Model B"), "pie/4b", "device 'Pie 4 Model B'"),
        (facts("cascadelake", cpu="Intel Xeon Platinum 8259CL"), "intel/xeon", "processor"),
        (facts("cascadelake", "KVM"), "intel/cascadelake", "microarchitecture cascadelake"),
        (facts("haswell"), "x86/v3", "microarchitecture haswell"),
        (facts("x86_64_v3", cpu="Intel Xeon Platinum 8259CL"), "x86/v3", "avx512f"),
        (facts("riscv64"), None, "no tag describes this machine"),
    ],
)
def test_the_best_tag_that_promises_nothing_the_machine_lacks(machine, name, reason):
    found = detect(machine, TABLE)
    assert (found.tag.name if found.tag else None) == name
    assert reason in found.reason


@pytest.mark.parametrize(
    "said, name",
    [
        ("Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz", "Intel Xeon Platinum 8370C"),
        ("13th Gen Intel(R) Core(TM) i7-13700K", "Intel Core i7-13700K"),
        ("AMD EPYC 7763 64-Core Processor", "AMD EPYC 7763"),
        ("Raspberry Pi 4 Model B Rev 1.4", "Raspberry Pi 4 Model B"),
        ("", ""),
    ],
)
def test_names_are_cleaned(said, name):
    assert clean_name(said) == name


def test_this_machine_is_asked(tmp_path):
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/model").write_bytes(b"Pie 4 Model B Rev 1.1\0")
    (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name : ACME(R) 9 CPU @ 1GHz\n")
    found = machine_facts(tmp_path)
    assert found.models == ("Pie 4 Model B",)
    assert found.cpu == "ACME 9"
    assert found.microarchitecture in archspec.cpu.TARGETS
    assert machine_facts(tmp_path / "none").models == ()


def test_the_lattice_decides_what_runs_where():
    assert lattice("cascadelake")[:2] == ("cascadelake", "skylake_avx512")
    assert lattice("unheard-of") == ()
    assert not_run_by(["avx2", "avx512f"], "haswell") == ("avx512f",)
    assert not_run_by(["avx2"], "zen4") == ()
    with pytest.raises(ModelError, match="no microarchitecture 'x'"):
        not_run_by([], "x")
