# SPDX-License-Identifier: Apache-2.0
"""The hardware tags of all plugins: hosts of devices, sizes, memories."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from msgspec.structs import replace

from intarsia.cli.main import main
from intarsia.host.host import Host
from intarsia.target.detect import machine_facts
from intarsia_ir.hardware.tags import HardwareTable, HardwareTag, tag_sizes

CPU = 1  # DLPack's device type
KIB = 1 << 10


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(env={})


@pytest.fixture(scope="module")
def table(host: Host) -> HardwareTable:
    return host.hardware()


def compiled_for(host: Host) -> list[HardwareTag]:
    """Tags that imply kinds of the plugins that are installed."""
    table, kinds = host.hardware(), set(host.names())
    words = {tag.name: table.resolve(tag.name).target.split()[0].rstrip(",") for tag in table.tags}
    return [tag for tag in table.tags if words[tag.name] in kinds]


def parts_of_devices(host: Host) -> list[HardwareTag]:
    """Tags of devices with a processor of their own beside what computes."""
    return [tag for tag in compiled_for(host) if host.hardware().resolve(tag.name).host]


def test_what_is_no_card_implies_the_processor_beside_it(host, table):
    """A target for a device without a host of its own would be driven by this very machine."""
    cards: set[str] = set()
    installed = compiled_for(host)
    devices = {table.resolve(tag.name).target for tag in installed}
    devices = {text for text in devices if host.target(text).fallback.kind.device_type != CPU}
    for tag in installed:
        one = table.resolve(tag.name)
        if one.target in devices and not one.host:
            cards.add(tag.name)
    assert {"nvidia/rtx-4090", "nvidia/t4", "nvidia/a100", "nvidia/v100"} <= cards
    whole = [name for name in cards if ":" in name or table.get(name).kind != "gpu"]
    assert whole == []
    # A backend that is not installed keeps nobody from seeing what drives the device.
    others = {tag.name for tag in table.tags} - {tag.name for tag in installed}
    assert all(", llvm -m" in table.resolve(name).target for name in others)
    superchips = ("gh", "gb", "jetson", "dgx")
    assert [name for name in cards if name.split("/")[1].startswith(superchips)] == []


def test_the_host_of_a_device_has_its_triple_and_its_processor(host, table):
    devices = parts_of_devices(host)
    assert len(devices) >= 50
    for tag in devices:
        one = table.resolve(tag.name)
        own = host.target(one.host).fallback.options
        driver = host.target(tag.name).host.options
        assert (driver.mtriple, driver.mcpu) == (own.mtriple, own.mcpu), tag.name
        assert driver.mcpu not in ("", "native"), tag.name


@pytest.mark.parametrize(
    "name, arch, cpu",
    [
        ("jetson-agx-orin", "sm_87", "cortex-a78ae"),
        ("jetson-agx-orin:gpu", "sm_87", "cortex-a78ae"),
        ("jetson-nano", "sm_53", "cortex-a57"),
        ("gh200", "sm_90", "neoverse-v2"),
        ("gb200", "sm_100", "neoverse-v2"),
        ("gb300", "sm_103", "neoverse-v2"),
        ("dgx-spark", "sm_121", "cortex-x925"),
        ("aws/g5g.xlarge", "sm_75", "neoverse-n1"),
    ],
)
def test_a_device_with_an_arm_processor_is_driven_by_it(host, name, arch, cpu):
    target = host.target(name)
    assert target.fallback.options.arch == arch
    assert target.host.options.mcpu == cpu
    assert target.host.options.mtriple.startswith("aarch64-")


def test_a_host_named_behind_a_device_wins(host):
    named = host.target("gh200, llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
    assert named.fallback.options.arch == "sm_90"
    assert named.host.options.mcpu == "neoverse-n1"
    with_accelerator = host.target("tensorrt, jetson-agx-orin")
    assert [one.kind.name for one in with_accelerator.targets] == ["tensorrt", "cuda", "llvm"]
    assert with_accelerator.host.options.mcpu == "cortex-a78ae"


def test_what_drives_a_device_is_shown(capsys):
    for name, driver in (
        ("rtx-4090", "the machine it is plugged into: this one, unless a host is named behind"),
        ("gh200", "nvidia/grace"),
        ("g5.xlarge", "aws/g5:cpu"),
    ):
        assert main(["hardware", "show", name]) == 0
        assert f"  host              {driver}\n" in capsys.readouterr().out


def test_what_was_not_checked_is_marked(table, capsys):
    marked = next(tag for tag in table.tags if tag.unverified)
    checked = table.get("st/stm32u585ai")
    assert checked.unverified == ""
    assert main(["hardware", "list", "--vendor", marked.vendor]) == 0
    assert f"{marked.summary} (unverified)" in capsys.readouterr().out
    assert main(["hardware", "show", marked.name]) == 0
    assert f"  unverified        {marked.unverified}\n" in capsys.readouterr().out
    assert main(["hardware", "list", checked.name, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["hardware"]
    assert row["unverified"] == ""


def test_a_profile_of_a_machine_with_a_gpu_has_this_processor(host, monkeypatch, capsys):
    facts = replace(machine_facts(), models=("g5.xlarge",), cpu="")
    monkeypatch.setattr("intarsia.target.detect.machine_facts", lambda: facts)
    monkeypatch.setattr("intarsia.target.detect.missing_features", lambda *_: ())
    assert main(["hardware", "export"]) == 0
    profile = json.loads(capsys.readouterr().out)
    assert profile["hardware"] == "aws/g5.xlarge"
    assert {"kind": "cuda", "arch": "sm_86"}.items() <= profile["target"]["fallback"].items()
    assert profile["target"]["target_host"] == host.target("llvm").host.to_json()


def test_every_cloud_family_has_sizes_with_processors_and_memory(table):
    families = [tag for tag in table.tags if tag.kind == "instance" and not tag.threads]
    bare = {tag.name for tag in families if not tag.types and ":" not in tag.name}
    assert bare == {tag.name for tag in families if tag.unverified.startswith("sizes:")}
    for tag in families:
        assert len(tag.vcpus) == len(tag.memory_mib) == len(tag_sizes(tag)), tag.name
        assert all(tag.vcpus), tag.name
        assert all(tag.memory_mib), tag.name
        assert bool(tag.gpus) == bool(table.resolve(tag.name).host), tag.name


@pytest.mark.parametrize(
    "name, threads, gib, gpus, kind",
    [
        ("aws/g4dn.xlarge", 4, 16, 1, "nvidia/t4"),
        ("aws/g5.48xlarge", 192, 768, 8, "nvidia/a10g"),
        ("aws/g6.2xlarge", 8, 32, 1, "nvidia/l4"),
        ("p4d.24xlarge", 96, 1152, 8, "nvidia/a100"),
        ("p5.48xlarge", 192, 2048, 8, "nvidia/h100"),
        ("a2-highgpu-1g", 12, 85, 1, "nvidia/a100"),
        ("a3-highgpu-8g", 208, 1872, 8, "nvidia/h100"),
        ("Standard_NC24ads_A100_v4", 24, 220, 1, "nvidia/a100-80gb"),
        ("Standard_ND96asr_v4", 96, 900, 8, "nvidia/a100"),
        ("Standard_E104is_v5", 104, 672, 0, "intel/xeon-scalable-3"),
        ("Standard_E80ids_v4", 80, 504, 0, "intel/xeon-scalable-2"),
        ("m8i.2xlarge", 8, 32, 0, "intel/xeon-6-p"),
        ("aws/c5.metal", 96, 192, 0, "intel/xeon-scalable-2"),
        ("g4ad.xlarge", 4, 16, 0, "amd/epyc-7002"),
    ],
)
def test_an_instance_has_the_sizes_of_its_provider(host, table, name, threads, gib, gpus, kind):
    one = table.resolve(name)
    memory = {level.name: level.size for level in one.memory}
    assert (one.threads, memory["dram"] >> 30, one.gpus) == (threads, gib, gpus)
    assert kind in one.lineage
    assert host.target(name).host.options.num_threads == threads


@pytest.mark.parametrize(
    "name, flash, sram",
    [
        ("st/stm32u585ai", 2048, 786),
        ("st/stm32l476rg", 1024, 96 + 32),
        ("st/stm32l552ze", 512, 256),
        ("st/stm32wb55rg", 1024, 256),
        ("st/stm32f723ie", 512, 256),
        ("st/stm32h723zg", 1024, 564),
        ("st/stm32h743zi", 2048, 64 + 128 + 864 + 4),  # "1 Mbyte" on the first page
        ("st/stm32h747xi", 2048, 64 + 128 + 864 + 4),
        ("st/stm32h745zi", 2048, 64 + 128 + 864 + 4),
        ("st/stm32f407vg", 1024, 64 + 128),
        ("arduino/portenta-h7:m4", 2048, 64 + 128 + 864 + 4),
        ("nxp/imxrt1062", None, 1024),
        ("nordic/nrf52840", 1024, 256),
    ],
)
def test_a_microcontroller_has_the_memory_of_its_data_sheet(table, name, flash, sram):
    memory = {level.name: level.size for level in table.resolve(name).memory}
    assert memory["sram"] == sram * KIB
    assert memory.get("flash") == (None if flash is None else flash * KIB)


def test_parts_of_one_die_have_the_same_ram(table):
    dies: dict[str, set[int]] = defaultdict(set)
    for tag in table.tags:
        if tag.die:
            memory = {level.name: level.size for level in table.resolve(tag.name).memory}
            dies[tag.die].add(memory["sram"])
    assert len(dies) >= 40
    assert {die: sizes for die, sizes in dies.items() if len(sizes) > 1} == {}


def test_microcontrollers_and_gpus_say_their_memory(host, table):
    for tag in compiled_for(host):
        names = {level.name for level in table.resolve(tag.name).memory}
        if tag.kind == "gpu" and tag.target:
            assert "global" in names, tag.name
        if tag.kind == "mcu":
            assert "sram" in names or tag.unverified, tag.name


def test_a_microcontroller_with_helium_passes_floats_in_registers(host, table):
    for name in ("corstone-300", "corstone-310", "corstone-315", "corstone-320"):
        options = host.target(f"arm/{name}").fallback.options
        assert options.mtriple.endswith("eabihf")
        assert options.mcpu == ("cortex-m55" if name == "corstone-300" else "cortex-m85")
        assert options.has_mve
