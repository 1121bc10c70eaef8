# SPDX-License-Identifier: Apache-2.0
"""The driver's side: what is said where there is no driver, no device, or one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pyopencl as cl
import pytest

import intarsia
from intarsia.cli.main import main
from intarsia_opencl import driver
from intarsia_opencl.device import OpenclDevice
from intarsia_opencl.driver import (
    all_devices,
    check_device,
    describe,
    driver_errors,
    find_device,
)
from intarsia_opencl.plugin import probe
from intarsia_opencl.program import OpenclProgram
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.errors import ArtifactError, ResourceError, ToolchainError, WorkerLost

from .test_opencl_models import DIGITS

ADD = "__kernel void add(__global float *x) { x[get_global_id(0)] += 1.0f; }"
PROGRAM = OpenclProgram("auto", "", False, 256, 9472, {}, {})


def failing(code, error=cl.RuntimeError):
    """A call of the driver that fails."""

    def call(*_args, **_named):
        raise error(cl._cl._ErrorRecord("the driver's words", code, "clDoSomething"))

    return call


@pytest.fixture
def artifact(tmp_path):
    return intarsia.build(DIGITS / "digits.onnx", target="opencl").save(tmp_path / "m.intarsia")


def command(*words):
    """Exit code of a command."""
    return main([*map(str, words)])


def test_without_pyopencl_a_model_compiles_and_does_not_run(artifact, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    compiled = artifact.with_name("again.intarsia")
    assert not command("compile", DIGITS / "digits.onnx", "--target", "opencl", "-o", compiled)
    units = [open_artifact(path).unit_files("main") for path in (artifact, compiled)]
    assert units[0] == units[1]
    capfd.readouterr()
    assert command("run", artifact, "--inputs", "random") == 6
    assert capfd.readouterr().err.count("pyopencl is not installed") == 1


def test_without_a_driver(artifact, monkeypatch, capfd):
    monkeypatch.setattr(cl, "get_platforms", failing(-1001, cl.LogicError))
    assert command("run", artifact, "--inputs", "random") == 9
    assert capfd.readouterr().err.count("no OpenCL driver is installed here") == 1


@pytest.mark.parametrize("vendors", [None, "/nonexistent"])
def test_the_environment_of_the_process_is_kept(vendors):
    code = (
        "import os\n"
        "from intarsia_opencl.driver import all_devices\n"
        "before = dict(os.environ)\n"
        "found = [len(all_devices()) for _ in range(2)]\n"
        "print(found[0] == found[1], bool(found[0]), dict(os.environ) == before)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYOPENCL_HOME"}
    environment |= {} if vendors is None else {"OCL_ICD_VENDORS": vendors}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", str(vendors is None), "True"]


def test_what_a_driver_built_is_kept_where_it_keeps_nothing_itself(device, monkeypatch, tmp_path):
    monkeypatch.setattr("pyopencl.characterize.has_src_build_cache", lambda _device: None)
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        OpenclDevice(device, ADD)
        assert len([*(tmp_path / "opencl").glob("*/binary")]) == 1
    monkeypatch.delenv("INTARSIA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    OpenclDevice(device, ADD)
    assert len([*(tmp_path / "user" / "intarsia" / "opencl").glob("*/binary")]) == 1


def test_a_driver_that_fails_when_it_is_asked_for_devices(monkeypatch):
    monkeypatch.setattr(cl, "get_platforms", failing(-6, cl.MemoryError))
    with pytest.raises(ResourceError, match="no memory or resources left"):
        find_device("auto", "")
    monkeypatch.setattr(cl, "get_platforms", failing(-32, cl.LogicError))
    with pytest.raises(WorkerLost, match="device or its driver failed"):
        find_device("auto", "")


def test_a_driver_without_devices_is_passed_over(monkeypatch):
    empty, broken = (SimpleNamespace(get_devices=failing(code)) for code in (-1, -2))
    monkeypatch.setattr(cl, "get_platforms", lambda: [empty])
    assert all_devices() == []
    monkeypatch.setattr(cl, "get_platforms", lambda: [broken])
    with pytest.raises(WorkerLost, match="the driver's words"):
        all_devices()


def devices_of(monkeypatch, *types):
    """Devices of these types on one platform."""
    platform = SimpleNamespace(name="Acme", version="OpenCL 3.0")
    rows = [
        SimpleNamespace(name=f"{kind} {n}", type=getattr(cl.device_type, kind), platform=platform)
        for n, kind in enumerate(types)
    ]
    platform.get_devices = lambda: rows
    monkeypatch.setattr(cl, "get_platforms", lambda: [platform])


@pytest.mark.parametrize(
    ("device_type", "name", "chosen"),
    [
        ("auto", "", "GPU 1"),
        ("cpu", "", "CPU 0"),
        ("auto", "gpu 2", "GPU 2"),
        ("auto", "cpu", "CPU 0"),
        ("gpu", "acme", "GPU 1"),
    ],
)
def test_options_choose_the_device(monkeypatch, device_type, name, chosen):
    devices_of(monkeypatch, "CPU", "GPU", "GPU")
    assert find_device(device_type, name).name == chosen


@pytest.mark.parametrize(
    ("device_type", "name", "message"),
    [
        ("accelerator", "", "is '-device-type=accelerator'; there is 'CPU 0', 'GPU 1'"),
        ("auto", "mali", "is '-device-type=auto -device=mali'; there is"),
    ],
)
def test_a_device_that_is_not_here(monkeypatch, device_type, name, message):
    devices_of(monkeypatch, "CPU", "GPU")
    with pytest.raises(WorkerLost, match=message):
        find_device(device_type, name)


def small(**changes):
    """A device that is too small for the program, or large enough."""
    has = {"max_work_group_size": 256, "local_mem_size": 32768, "extensions": "cl_khr_fp64"}
    return SimpleNamespace(name="small", **(has | changes))


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"max_work_group_size": 200}, "groups of 256 work-items", "-max-work-group-size=128"),
        ({"local_mem_size": 8192}, "take 9472 bytes of local memory", "-local-memory=8192"),
        ({"extensions": "cl_khr_fp16"}, "compute in float64", "float32"),
    ],
)
def test_a_device_that_is_too_small(changes, message, hint):
    program = OpenclProgram("auto", "", True, 256, 9472, {}, {})
    check_device(small(), program)
    with pytest.raises(ArtifactError, match=message) as caught:
        check_device(small(**changes), program)
    assert hint in caught.value.hint


def test_kernels_that_the_driver_refuses(device):
    with pytest.raises(ToolchainError, match=r"refuses the kernels:\n.*expected") as caught:
        OpenclDevice(device, "__kernel void f( {")
    assert "-cl-std" not in caught.value.message


def test_a_driver_that_fails_when_it_builds(device, monkeypatch):
    monkeypatch.setattr(cl, "Program", failing(-5))
    with pytest.raises(ResourceError, match="the driver's words"):
        OpenclDevice(device, ADD)


def test_a_driver_says_more_than_an_error_would(device, recwarn):
    OpenclDevice(device, f'#warning "slow"\n{ADD}')
    assert not [w for w in recwarn if issubclass(w.category, cl.CompilerWarning)]


def test_memory_that_the_device_has_not(device):
    program = OpenclDevice(device, ADD)
    with pytest.raises(ResourceError, match="no memory or resources left"), driver_errors():
        # Some drivers look for memory when it is first used.
        program.write(program.reserve(1 << 60), np.zeros(1, np.uint8))


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (-4, ResourceError, "no memory or resources left"),
        (-46, ArtifactError, "cannot start a kernel"),
        (-54, ArtifactError, "cannot start a kernel.*\n.*smaller -max-work-group-size"),
        (-36, WorkerLost, "device or its driver failed"),
    ],
)
def test_the_device_fails_while_a_model_runs(artifact, monkeypatch, code, error, message):
    image = np.load(DIGITS / "samples.npz")["image"][:1]
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
    with intarsia.load(artifact) as model:
        monkeypatch.setattr(cl, "enqueue_copy", failing(code))
        with pytest.raises(error, match=message):
            model.run({"image": image})


def test_a_buffer_that_begins_where_none_can(device):
    program = OpenclDevice(device, ADD)
    with pytest.raises(ArtifactError, match="begins at byte 4 of the workspace"):
        program.part(program.reserve(1024), 4, 16)


def test_probe_says_what_would_run(make_target, device, monkeypatch):
    found = probe(make_target())
    assert found.usable
    assert found.device == describe(device)
    assert found.sdk.startswith("pyopencl 20")
    monkeypatch.setattr(driver, "all_devices", list)
    found = probe(make_target())
    assert not found.usable
    assert "compiles, but cannot run here: no OpenCL driver" in found.detail
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    assert "pyopencl is not installed" in probe(make_target()).detail
