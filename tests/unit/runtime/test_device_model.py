# SPDX-License-Identifier: Apache-2.0
"""A whole model that a plugin's loader runs: the plan, the weights and the regions go to it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_ir.writing.artifact_writer import write_artifact
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    KernelStep,
    OpenSizes,
    SizeGuard,
    SizeSource,
    TensorSpec,
)
from intarsia_runtime.artifact.unit import SHARED_LIBRARY, CompiledUnit
from intarsia_runtime.discovery import is_installed
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, ModelError, PluginError, UnsupportedError
from intarsia_runtime.executors.open import OpenExecutor
from intarsia_runtime.load import load
from intarsia_runtime.size import variable

LOADER = """
import numpy as np
from intarsia_runtime.loading import DeviceModel
from intarsia_runtime.abi import ArgumentBlock, SafeCall

def load(request):
    assert request.name == "main" and request.run_steps == 0
    assert [type(step).__name__ for step in request.plan.steps][1] == "RegionStep"
    region = request.regions[0]
    block = ArgumentBlock([spec for spec in (request.inputs[0], request.inputs[0])])

    def twice(x):
        y = np.empty_like(x)
        for tensor, array in zip(block.tensors, (x, y)):
            tensor.data = array.ctypes.data
        call = SafeCall(region.function)
        assert call(region.handle or None, block.address, block.count, block.result_address) == 0
        return y

    def relu(x, y):
        y[...] = np.maximum(x, 0)

    def add(x, bias, y):
        y[...] = x + bias

    def run(x, y, z):
        y[...] = twice(np.maximum(x, 0)) + request.constants["bias"]
        z[...] = x

    return DeviceModel(run, {"relu": relu, "add": add}.__getitem__)
"""
ONLY_RUN = """
def load(request):
    def run(x, y, z):
        raise ValueError("the device is on fire")
    return run
"""
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


@pytest.fixture
def hosted(tmp_path, passport, machine_code):
    """Write the sample with a main unit that the loader ``toy`` runs."""
    main = replace(passport.units[0], loader="toy", plugin="intarsia-toy==1.0", files=("m.bin",))
    written = replace(passport, units=(main, passport.units[1]))
    units = [
        CompiledUnit("main", "toy", {"m.bin": b"1"}),
        CompiledUnit("double_0", SHARED_LIBRARY, {"lib.so": machine_code}),
    ]
    path = tmp_path / "hosted.intarsia"
    weights = {"bias": np.array([1, 2, 3], np.float32)}
    write_artifact(path, written, units, weights)
    return path


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_the_loader_runs_the_plan(hosted, toy_loader, executor):
    toy_loader(LOADER)
    with load(hosted, executor=executor) as model:
        for _ in range(2):
            found = model.run({"x": X})
            np.testing.assert_array_equal(found["y"], np.maximum(X, 0) * 2 + [1, 2, 3])
            np.testing.assert_array_equal(found["z"], X)


def test_a_loader_without_single_kernels(hosted, toy_loader):
    toy_loader(ONLY_RUN)
    with pytest.raises(UnsupportedError, match="its loader cannot run one alone"):
        load(hosted, executor="graph")


def test_what_the_loaders_function_raises_is_told(hosted, toy_loader):
    toy_loader(ONLY_RUN)
    model = load(hosted)
    with pytest.raises(PluginError, match="the device is on fire"):
        model.run({"x": X})


def test_without_the_loader(hosted):
    with pytest.raises(ArtifactError, match="this process cannot run") as caught:
        load(hosted)
    assert "pip install 'intarsia-toy==1.0'" in caught.value.hint


def test_what_is_installed_is_not_asked_for():
    assert is_installed("pytest==1.0")
    assert not is_installed("intarsia-toy==1.0")
    assert not is_installed("==")


OPEN_LOADER = """
import numpy as np
from intarsia_runtime.loading import DeviceModel

def load(request):
    def double(*sizes):
        def kernel(x, y):
            assert sizes == x.shape
            y[...] = 2 * x
        return kernel

    def run(x, bound, y):
        assert bound.shape == x.shape == y.shape
        y[...] = 2 * x

    return DeviceModel(run, lambda name, *sizes: {"double": double}[name](*sizes))
"""
N, M = variable("N"), variable("M")


def open_plan() -> CallPlan:
    """Doubles ``x`` of every length, by way of the workspace; ``bound`` is as long."""
    x, bound, y = (
        TensorSpec(name, (size,), DType.FLOAT32)
        for name, size in (("x", N), ("bound", M), ("y", N))
    )
    source, kept, result = (
        Argument(place, 0, (N,), DType.FLOAT32)
        for place in (ArgumentSource.INPUT, ArgumentSource.WORKSPACE, ArgumentSource.OUTPUT)
    )
    steps = (KernelStep("double", (source, kept), sizes=("N",)), CopyStep(kept, result))
    guard = SizeGuard(N, M, "x and bound go together")
    sizes = OpenSizes((SizeSource("N", 0, 0), SizeSource("M", 1, 0)), (guard,), (4 * N,))
    return CallPlan((x, bound), (y,), (), (), 0, steps, sizes)


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_plan_of_open_sizes_runs_on_a_device(tmp_path, passport, toy_loader, executor):
    toy_loader(OPEN_LOADER)
    main = replace(
        passport.units[0],
        loader="toy",
        plugin="intarsia-toy==1.0",
        files=("m.bin",),
        constants=(),
    )
    plan = open_plan()
    written = replace(passport, plan=plan, units=(main,))
    path = tmp_path / "open.intarsia"
    write_artifact(path, written, [CompiledUnit("main", "toy", {"m.bin": b"1"})], {})
    with load(path, executor=executor) as model:
        assert isinstance(model, OpenExecutor)
        for count in (3, 5, 5, 0, 2):
            x = np.arange(count, dtype=np.float32)
            feeds = {"x": x, "bound": x}
            np.testing.assert_array_equal(model.run(feeds)["y"], 2 * x)
            np.testing.assert_array_equal(model.walk_regions(feeds, lambda *_: None)["y"], 2 * x)
        with pytest.raises(ModelError, match="go together: N is 3 and M is 4"):
            model.run({"x": np.zeros(3, np.float32), "bound": np.zeros(4, np.float32)})
