# SPDX-License-Identifier: Apache-2.0
"""Options and the manifest: none of it imports pyopencl."""

from __future__ import annotations

import subprocess
import sys

import pytest

from intarsia.host.host import Host
from intarsia.plugin import Target
from intarsia_ir.graph.expr import get_item
from intarsia_ir.graph.walk import calls
from intarsia_opencl import plugin
from intarsia_opencl.target import OpenclOptions, canonicalize
from intarsia_runtime.errors import TargetError
from intarsia_testkit.expressions import apply, function_of, var, weight


@pytest.fixture(scope="module")
def host():
    return Host()


def test_showing_the_kind_imports_no_driver():
    code = """
import sys
from intarsia.cli.main import main
try:
    main(["targets", "show", "opencl"])
except SystemExit:
    pass
print("loaded:", sorted(m for m in sys.modules if m.split(".")[0] in ("pyopencl", "numpy")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "-max-work-group-size" in done.stdout
    assert "loaded: []" in done.stdout, done.stdout + done.stderr


def test_needs_a_host_only_for_driving(host):
    target = host.target("opencl -device-type=gpu, c")
    assert (target.fallback.kind.name, target.host.kind.name) == ("opencl", "c")
    assert str(host.target(str(target))) == str(target)


@pytest.mark.parametrize(("size", "hint"), [(100, 64), (384, 256), (1000, 512)])
def test_groups_are_powers_of_two(size, hint):
    with pytest.raises(TargetError, match="is no power of two") as caught:
        canonicalize(OpenclOptions(max_work_group_size=size))
    assert caught.value.hint == f"-max-work-group-size={hint}"


@pytest.mark.parametrize(
    "option", ["-device-type=dsp", "-local-memory=100", "-max-work-group-size=2048"]
)
def test_values_that_no_device_has(host, option):
    with pytest.raises(TargetError, match=option.partition("=")[0]):
        host.target(f"opencl {option}")


def test_the_gpu_of_a_board_is_driven_by_the_boards_cores(host):
    target = host.target("rockchip/rk3399:gpu")
    assert target.fallback.kind.name == "opencl"
    assert target.host.kind.name == "llvm"
    assert target.host.options.mcpu == "cortex-a72"


def test_steps_of_recurrent_layers_are_products() -> None:
    layer = apply("nn.lstm", var("x", 3, 2, 16), var("h", 2, 4), var("c", 2, 4), weight(4, 16))
    made = plugin.rewrite_relay(
        function_of(get_item(layer, 0)), Target(plugin.register_target_kind()[0], OpenclOptions())
    )
    names = [node.name for node in calls(made)]
    assert names.count("matmul") == 3
    assert "nn.lstm" not in names
