# SPDX-License-Identifier: Apache-2.0
"""The devices that this plugin describes: LLVM knows their processors, their targets parse."""

from __future__ import annotations

import os
from pathlib import Path

import archspec.cpu
import llvmlite.binding as llvm
import pytest

import intarsia_llvm
from intarsia.host.host import Host
from intarsia.target.universal import Tag
from intarsia_ir.hardware.tags import HardwareTable
from intarsia_runtime.errors import PluginError, TargetError

FOLDER = Path(intarsia_llvm.__file__).parent / "hardware"


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(env={"INTARSIA_PLUGINS": "llvm"})


@pytest.fixture(scope="module")
def table(host: Host) -> HardwareTable:
    return host.hardware()


def own_targets(table: HardwareTable) -> list[str]:
    """The targets that tags imply, but for those of parts that another backend drives."""
    targets = {table.resolve(tag.name).target for tag in table.tags}
    return sorted(target for target in targets if target.startswith("llvm"))


def test_parts_that_another_backend_drives_say_which(host, table):
    others = [tag.name for tag in table.tags if table.resolve(tag.name).target[:4] != "llvm"]
    assert "rockchip/rk3399:gpu" in others
    for name in others:  # the backend is not installed, or not named in INTARSIA_PLUGINS
        with pytest.raises((TargetError, PluginError), match="'opencl'"):
            host.target(name)


def complaints(triple: str, cpu: str, features: str) -> str:
    """What LLVM prints on stderr about a processor while compiling for it."""
    read, write = os.pipe()
    saved = os.dup(2)
    os.dup2(write, 2)
    try:
        target = llvm.Target.from_triple(triple)
        machine = target.create_target_machine(cpu=cpu, features=features)
        module = llvm.parse_assembly(f'target triple = "{triple}"\ndefine i32 @f() {{ ret i32 7 }}')
        assert machine.emit_object(module)
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(write)
    with os.fdopen(read) as stream:
        return stream.read()


def test_there_are_devices_and_all_files_are_named(table):
    assert table.problems == ()
    assert len(table.tags) >= 250
    assert len({tag.vendor for tag in table.tags}) >= 50
    assert all(tag.source for tag in table.tags)
    assert {tag.where.split(":")[0] for tag in table.tags} == {
        f"hardware/{path.name}" for path in FOLDER.glob("*.toml")
    }


def test_llvm_knows_every_processor(host, table):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    assert "not a recognized processor" in complaints("aarch64-linux-gnu", "nonsense", "")
    wrong: list[str] = []
    for text in own_targets(table):
        words = dict(word.removeprefix("-").split("=", 1) for word in text.split()[1:])
        said = complaints(words["mtriple"], words["mcpu"], words.get("mattr", ""))
        wrong += [f"{text}: {said}"] if said else []
        options = host.target(text).fallback.options
        assert (options.mtriple, options.mcpu) == (words["mtriple"], words["mcpu"])
    assert wrong == []


def test_every_tag_is_a_target(host, table):
    for tag in table.tags:
        one = table.resolve(tag.name)
        assert host.tag(tag.name) == Tag(one.name, one.target, one.keys)
        assert not one.microarchitecture or one.microarchitecture in archspec.cpu.TARGETS
        for alias in tag.aliases:
            assert table.find(alias) is tag, alias


@pytest.mark.parametrize(
    "name, canonical, cpu",
    [
        ("rasp4b", "raspberrypi/4b", "cortex-a72"),
        ("Raspberry Pi 5", "raspberrypi/5", "cortex-a76"),
        ("broadcom/bcm2711", "broadcom/bcm2711", "cortex-a72"),
        ("rockchip/rk3399:bigcpu", "rockchip/rk3399:bigcpu", "cortex-a72"),
        ("rockchip/rk3399:littlecpu", "rockchip/rk3399:littlecpu", "cortex-a53"),
        ("aws/c4.xlarge", "aws/c4.xlarge", "haswell"),
        ("c5.24xlarge", "aws/c5.24xlarge", "cascadelake"),
        ("Standard_D8ps_v5", "azure/standard_d8ps_v5", "neoverse-n1"),
        ("n2d-standard-8", "gcp/n2d-standard-8", "znver2"),
        ("st/nucleo-f746zg", "st/nucleo-f746zg", "cortex-m7"),
        ("AMD EPYC 9R14", "amd/epyc-9004", "znver4"),
        ("m1", "apple/m1", "apple-m1"),
    ],
)
def test_devices_by_name(host, table, name, canonical, cpu):
    assert table.resolve(name).name == canonical
    target = host.target(f"'{name}' -num-threads=2")
    assert target.fallback.options.mcpu == cpu
    assert target.fallback.options.num_threads == 2
    assert host.hardware_of(target).name == canonical


def test_a_board_is_its_system_on_chip(host):
    board, soc = host.target("raspberrypi/4b"), host.target("broadcom/bcm2711")
    assert board.fallback.options == soc.fallback.options
    assert host.hardware_of(host.target("raspberrypi/400")).type == "broadcom/bcm2711"


def test_the_type_of_hardware_survives_text_and_json(host):
    board = host.target("rasp4b")
    for written in (str(board), board.json_text(), board.to_json()):
        again = host.target(written)
        assert again == board
        assert host.hardware_of(again).type == "broadcom/bcm2711"
        assert again.fallback.keys == ("arm", "llvm", "cpu")


def test_what_a_tag_implies_is_what_its_text_says(host, table):
    tags = [tag for tag in table.tags if table.resolve(tag.name).target.startswith("llvm")]
    for tag in tags[::5]:
        target = host.target(tag.name)
        again = host.target(str(target))
        assert (str(again), again) == (str(target), target)
        assert host.hardware_of(again).name == tag.name


def test_boards_have_the_memory_of_their_chip(host):
    memory = {level.name: level.size for level in host.memory_of(host.target("st/nucleo-f411re"))}
    assert (memory["flash"], memory["sram"]) == (512 << 10, 128 << 10)
