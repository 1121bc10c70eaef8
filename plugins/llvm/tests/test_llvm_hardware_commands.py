# SPDX-License-Identifier: Apache-2.0
"""`intarsia hardware` with the devices of this plugin."""

from __future__ import annotations

import json

import pytest

from intarsia.cli.main import main
from intarsia.host.host import Host


@pytest.fixture
def run(capsys):
    def call(*words: str) -> str:
        assert main(["hardware", *words]) == 0
        return capsys.readouterr().out

    return call


def test_list_filters_by_vendor_kind_and_words(run):
    rows = json.loads(run("list", "--vendor", "Rockchip", "--json"))["hardware"]
    assert {row["vendor"] for row in rows} == {"rockchip"}
    assert {"name", "kind", "target", "source", "distribution"} <= rows[0].keys()
    boards = run("list", "--kind", "board", "pi", "model")
    assert "raspberrypi/4b" in boards
    assert "rockchip" not in boards
    assert run("list", "no-such-device") == "no device fits\n"


def test_show_says_all_that_is_known(run):
    shown = run("show", "st/stm32f746ng")
    assert "flash 1 MiB, sram 320 KiB" in shown
    assert "-mattr=-fp64" in shown
    parts = run("show", "rockchip/rk3399")
    assert "rockchip/rk3399:bigcpu, rockchip/rk3399:gpu, rockchip/rk3399:littlecpu" in parts
    row = json.loads(run("show", "rpi4", "--json"))["hardware"]
    assert row["type"] == "broadcom/bcm2711"
    assert row["lineage"][-1] == "arm/aarch64"
    assert "more" in run("show", "raspberrypi/rp2040") or "arduino" in run("show", "rp2040")


def test_detect_names_this_machine(run):
    found = json.loads(run("detect", "--json"))
    assert found["machine"]["arch"]
    assert found["tag"] is None or Host().hardware().find(found["tag"]) is not None
    assert found["reason"] in run("detect")


def test_a_profile_is_a_target(run, tmp_path, capsys):
    path = tmp_path / "box.json"
    assert run("export", "raspberrypi/5", "-o", str(path)) == ""
    host = Host()
    assert host.target(f"@{path}") == host.target("raspberrypi/5") == host.target(str(path))
    assert json.loads(path.read_text())["hardware"] == "raspberrypi/5"
    here = json.loads(run("export", "--target", "llvm"))
    assert host.target(here["target"]) == host.target("llvm")


def test_tags_in_dicts():
    host = Host()
    found = host.target({"tag": "rpi5", "num-threads": 3})
    assert found == host.target("Raspberry Pi 5 -num-threads=3")
    assert dict(found.fallback.origins) == {
        "mcpu": "tag raspberrypi/5",
        "mtriple": "tag raspberrypi/5",
        "hardware": "tag raspberrypi/5",
        "num-threads": "given",
    }
    nested = host.target({"kind": "composite", "fallback": {"tag": "aws/c7g"}})
    assert nested == host.target("aws/c7g")
