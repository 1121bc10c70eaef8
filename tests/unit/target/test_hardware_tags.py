# SPDX-License-Identifier: Apache-2.0
"""Tags: names, aliases, parents, sizes, conflicts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from intarsia.target.kind import Memory
from intarsia_ir.hardware.tags import (
    HardwareTable,
    HardwareTag,
    check_circles,
    expand,
    merge_memory,
    name_key,
)
from intarsia_runtime.errors import DuplicateName, PluginError, TargetError


def tag(name: str, *parents: str, kind: str = "core", target: str = "", **more: object):
    found = HardwareTag(name, kind, f"about {name}", "a data sheet", parents=parents, target=target)
    return replace(found, owner="acme", where="acme.toml:1", **more)


CORE = tag("arm/a72", target="loops -mcpu=a72", keys=("arm",), microarchitecture="cortex_a72")
LITTLE = tag("arm/a53", target="loops -mcpu=a53", memory=(Memory("l2", 64, 512),))
SOC = tag("chips/c1", "arm/a72", "arm/a53", kind="soc", keys=("c1",), memory=(Memory("l2", 64, 9),))
BOARD = tag("pie/4b", "chips/c1", kind="board", aliases=("Pie 4 Model B", "pie4"))
OTHER = tag("rock/4", "chips/c1", kind="board")
CLOUD = tag("sky/m5", "arm/a53", kind="instance", types=("m5.{2,4}xlarge", "m5.metal"))
TABLE = HardwareTable([CORE, LITTLE, SOC, BOARD, OTHER, CLOUD])


@pytest.mark.parametrize(
    "name",
    ["pie/4b", "PIE/4B", " pie/4b ", "pie4", "Pie 4 Model B", "pie_4_model_b", "pie-4b", "4b"],
)
def test_every_name_of_a_device_means_it(name):
    assert TABLE.get(name) is BOARD


def test_a_tag_has_what_its_parents_have():
    board = TABLE.resolve("pie4")
    assert board.name == "pie/4b"
    assert board.target == "loops -mcpu=a72"
    assert board.lineage == ("pie/4b", "chips/c1", "arm/a72", "arm/a53")
    assert board.keys == ("arm", "c1")
    assert board.memory == (Memory("l2", 64, 9),)
    assert board.microarchitecture == "cortex_a72"
    assert (BOARD.vendor, BOARD.device) == ("pie", "4b")


def test_boards_around_one_soc_share_its_measurements():
    assert TABLE.resolve("pie4").type == TABLE.resolve("rock/4").type == "chips/c1"
    assert TABLE.resolve("chips/c1").type == "chips/c1"
    assert TABLE.resolve("arm/a72").type == "arm/a72"
    own = replace(BOARD, target="loops -num-threads=2")
    assert HardwareTable([CORE, LITTLE, SOC, own]).resolve("pie4").type == "pie/4b"


def test_sizes_of_a_cloud_family_are_tags():
    size = TABLE.resolve("sky/m5.4xlarge")
    assert size.name == "sky/m5.4xlarge"
    assert size.tag.parents == ("sky/m5",)
    assert size.target == "loops -mcpu=a53"
    assert TABLE.get("M5.metal").name == "sky/m5.metal"
    assert TABLE.find("sky/m5.8xlarge") is None
    special = tag("sky/m5.metal", "arm/a72", kind="instance")
    table = HardwareTable([CORE, LITTLE, CLOUD, special])
    assert table.resolve("m5.metal").target == "loops -mcpu=a72"


GPU = tag("nv/g1", kind="gpu", target="kernels -arch=1")
SUPER = tag("nv/gs", kind="gpu", target="kernels -arch=2", host="arm/a72")
BOX = tag("nv/box", "nv/gs", kind="machine")
RENTED = replace(
    tag("sky/g5", "nv/g1", kind="instance", types=("g5.{1,2}x",), host="sky/m5"),
    vcpus=(4, 8),
    memory_mib=(2048, 4096),
    gpus=(1, 2),
)
DEVICES = HardwareTable([CORE, LITTLE, SOC, CLOUD, GPU, SUPER, BOX, RENTED])


def test_a_device_is_driven_by_its_own_processor():
    assert (DEVICES.resolve("nv/g1").target, DEVICES.resolve("nv/g1").host) == (GPU.target, "")
    for name in ("nv/gs", "nv/box"):
        one = DEVICES.resolve(name)
        assert one.target == "kernels -arch=2, loops -mcpu=a72"
        assert (one.host, one.microarchitecture) == ("arm/a72", "cortex_a72")


def test_a_size_has_processors_memory_and_gpus():
    one = DEVICES.resolve("sky/g5.2x")
    assert one.target == "kernels -arch=1, loops -mcpu=a53 -num-threads=8"
    assert (one.threads, one.gpus, one.host) == (8, 2, "sky/m5")
    assert one.memory == (Memory("dram", size=4096 << 20),)
    family = DEVICES.resolve("sky/g5")
    assert family.target == "kernels -arch=1, loops -mcpu=a53"
    assert (family.threads, family.gpus) == (0, 0)


@pytest.mark.parametrize("driver", ["nv/gs", "nv/box", "nv/self"])
def test_a_host_has_no_host(driver):
    own = tag("nv/self", kind="gpu", target="kernels", host=driver)
    with pytest.raises(PluginError, match=f"is driven by '{driver}', which has a host itself"):
        HardwareTable([*DEVICES.tags, own]).resolve("nv/self")


def test_an_unknown_host_is_named():
    own = tag("nv/self", kind="gpu", target="kernels", host="arm/gone")
    with pytest.raises(PluginError, match="based on 'arm/gone'"):
        HardwareTable([own]).resolve("nv/self")


def test_unknown_names_get_the_nearest():
    with pytest.raises(TargetError, match="no hardware is called 'pie/4c'") as caught:
        TABLE.get("pie/4c")
    assert "pie/4b" in caught.value.hint
    with pytest.raises(TargetError) as caught:
        HardwareTable([], ["acme.toml: it is broken"]).get("x" * 99)
    assert caught.value.hint == "acme.toml: it is broken"
    assert "..." in caught.value.message
    with pytest.raises(TargetError) as caught:
        HardwareTable().get("x")
    assert caught.value.hint == "`hardware list` shows all"


def test_two_owners_of_a_name_are_named():
    theirs = replace(tag("far/board", "arm/a72", aliases=("pie4",)), owner="far", where="f.toml:7")
    table = HardwareTable([CORE, LITTLE, SOC, BOARD, theirs])
    assert table.get("pie/4b") is BOARD
    with pytest.raises(DuplicateName) as caught:
        table.get("pie4")
    assert "'far/board' of far (f.toml:7)" in caught.value.message
    assert "INTARSIA_DISABLE_PLUGINS=acme or INTARSIA_DISABLE_PLUGINS=far" in caught.value.hint
    with pytest.raises(DuplicateName) as caught:
        HardwareTable([BOARD, replace(BOARD, summary="again")]).get("pie/4b")
    assert "give the name up" in caught.value.hint


def test_a_short_name_of_two_devices_is_refused():
    table = HardwareTable([CORE, tag("sun/a72", target="loops")])
    with pytest.raises(DuplicateName, match="may be arm/a72 or sun/a72"):
        table.get("a72")
    named = HardwareTable([CORE, tag("sun/a72", target="loops", aliases=("a72",))])
    assert named.get("a72").name == "sun/a72"


@pytest.mark.parametrize(
    "tags, message",
    [
        ([tag("a/x", "a/y"), tag("a/y", "a/x")], "circle: a/x -> a/y -> a/x"),
        ([tag("a/x", "a/x")], "circle: a/x -> a/x"),
        ([tag("a/x", "a/gone")], "based on 'a/gone'"),
        ([tag("a/x")], "implies no target"),
    ],
)
def test_wrong_parents_are_found_when_a_tag_is_used(tags, message):
    with pytest.raises(PluginError, match=message) as caught:
        HardwareTable(tags).resolve("a/x")
    assert caught.value.where == "acme.toml:1"


def test_circles_of_a_file():
    check_circles([CORE, LITTLE, SOC, BOARD, OTHER])
    ring = [tag(f"a/{at}", f"a/{(at + 1) % 2000}") for at in range(2000)]
    with pytest.raises(PluginError, match="circle: a/0 -> a/1 "):
        check_circles(ring)


def test_children_and_parts():
    big = tag("chips/c1:big", "arm/a72", kind="soc")
    table = HardwareTable([CORE, LITTLE, SOC, BOARD, OTHER, big])
    assert table.children(SOC) == [BOARD, OTHER]
    assert table.parts(SOC) == [big]


def test_patterns():
    assert expand("n1") == ["n1"]
    assert expand("{a,b}-{1,2}") == ["a-1", "a-2", "b-1", "b-2"]


def test_memory_of_later_layers_wins():
    outer, inner = Memory("dram", 64, 1), Memory("sram", 16, 2)
    assert merge_memory((outer, inner), (Memory("dram", 64, 5),)) == (
        Memory("dram", 64, 5),
        inner,
    )


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_is_refused(text):
    assert name_key(name_key(text)) == name_key(text)
    clash: DuplicateName | None = None
    try:
        assert TABLE.get(text) in TABLE.tags or "m5" in text.casefold()
    except TargetError:
        pass
    except DuplicateName as error:
        clash = error
    assert clash is None or "may be" in clash.message
