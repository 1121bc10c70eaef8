# SPDX-License-Identifier: Apache-2.0
"""Options, the manifest, and devices: none of it imports NVRTC or needs a GPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from intarsia.host.host import Host
from intarsia.plugin import Target
from intarsia_cuda import driver, plugin
from intarsia_cuda.nvrtc import supported_architectures
from intarsia_cuda.occupancy import limits_of
from intarsia_cuda.target import ARCHITECTURES, LEGACY, CudaOptions, canonicalize
from intarsia_ir.graph.expr import get_item
from intarsia_ir.graph.walk import calls
from intarsia_runtime.errors import TargetError, WorkerLost
from intarsia_testkit.expressions import apply, function_of, var, weight


@pytest.fixture(scope="module")
def host():
    return Host()


def test_showing_the_kind_imports_no_cuda():
    code = """
import sys
from intarsia.cli.main import main
try:
    main(["targets", "show", "cuda"])
except SystemExit:
    pass
print("loaded:", sorted(m for m in sys.modules if m.split(".")[0] in ("cuda", "onnx")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "-max-threads-per-block" in done.stdout
    assert "loaded: []" in done.stdout, done.stdout + done.stderr


def test_needs_a_host_only_for_driving(host):
    target = host.target("cuda -arch=sm_90, c")
    assert (target.fallback.kind.name, target.host.kind.name) == ("cuda", "c")
    assert str(host.target(str(target))) == str(target)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_threads_per_block": 100}, "no multiple of 32"),
        ({"arch": "sm_75", "fpmath_mode": "tf32"}, "no tensor cores"),
        ({"cxx": ""}, "-cxx is empty"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(TargetError, match=message):
        canonicalize(CudaOptions(**options))


def test_unknown_architecture(host):
    with pytest.raises(TargetError, match="arch"):
        host.target("cuda -arch=sm_99")


@pytest.mark.parametrize(
    ("capability", "arch"), [(90, "sm_90"), (75, "sm_75"), (61, "sm_61"), (87, "sm_87")]
)
def test_native_is_the_gpu_of_this_machine(host, monkeypatch, capability, arch):
    monkeypatch.setattr(driver, "device_capability", lambda: capability)
    assert host.target("cuda -arch=native").fallback.options.arch == arch


def test_native_is_an_older_gpu_of_the_same_kind(host, monkeypatch):
    monkeypatch.setattr(driver, "device_capability", lambda: 129)
    assert host.target("cuda -arch=native").fallback.options.arch == "sm_121"


def test_native_needs_a_gpu_that_is_known(host, monkeypatch):
    monkeypatch.setattr(driver, "device_capability", lambda: 200)
    with pytest.raises(TargetError, match=r"compute capability 20\.0, which is not known"):
        host.target("cuda -arch=native")

    def none():
        raise WorkerLost("there is no CUDA driver")

    monkeypatch.setattr(driver, "device_capability", none)
    with pytest.raises(TargetError, match="a GPU in this machine: there is no CUDA driver"):
        host.target("cuda -arch=native")


@pytest.mark.parametrize("name", ["t4", "nvidia-t4", "Tesla T4", "nvidia/t4"])
def test_names_of_one_device(host, name):
    assert host.target(name).fallback.options.arch == "sm_75"


def own_tags(host):
    return [tag for tag in host.hardware().tags if tag.owner == "intarsia-cuda"]


def test_every_device_has_an_architecture_that_nvrtc_compiles_for(host):
    """Or is in the file of those that CUDA 13 left behind, and says so."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC says what it compiles for")
    known = {f"sm_{number}" for number in supported_architectures()}
    assert {name for name in ARCHITECTURES if not name.endswith("a")} == known
    assert {name.removesuffix("a") for name in ARCHITECTURES} == known
    tags = own_tags(host)
    assert len(tags) >= 100
    for tag in tags:
        arch = host.target(tag.name).fallback.options.arch
        legacy = "no longer compiles" in tag.notes
        assert legacy == (arch in LEGACY) == (arch not in known), tag.name
        assert tag.source


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_limits_of_every_architecture(arch):
    limits = limits_of(CudaOptions(arch=arch).capability)
    assert limits.warps in (32, 48, 64)
    assert limits.shared_bytes >= 64 * 1024


def test_steps_of_recurrent_layers_are_products() -> None:
    layer = apply("nn.lstm", var("x", 3, 2, 16), var("h", 2, 4), var("c", 2, 4), weight(4, 16))
    made = plugin.rewrite_relay(
        function_of(get_item(layer, 0)), Target(plugin.register_target_kind()[0], CudaOptions())
    )
    names = [node.name for node in calls(made)]
    assert names.count("matmul") == 3
    assert "nn.lstm" not in names
