# SPDX-License-Identifier: Apache-2.0
"""Units as input from outside: a program, a source and a plan that do not belong together."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_opencl.device import OpenclDevice
from intarsia_opencl.loader import OpenclModel, load
from intarsia_opencl.program import KernelStart, OpenclProgram, stamp_line
from intarsia_runtime.abi import hosted_call
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    GuardStep,
    KernelStep,
    OpenSizes,
    RegionStep,
    SizeGuard,
    SizeSource,
    TensorSpec,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, PluginError, ResourceError
from intarsia_runtime.loading import LoadRequest, NativeCall
from intarsia_runtime.size import variable

F32 = DType.FLOAT32
SOURCE = "__kernel void add(__global float *x, __global float *y) { y[0] = x[0] + 1.0f; }\n"
X, Y = (TensorSpec(name, (4,), F32) for name in "xy")
INPUT, OUTPUT = (
    Argument(place, 0, (4,), F32) for place in (ArgumentSource.INPUT, ArgumentSource.OUTPUT)
)
STEP = KernelStep("f", (INPUT, OUTPUT))
PLAN = CallPlan((X,), (Y,), (), ("acme_0",), 0, (STEP,))
START = KernelStart("add", (0, 1), (1, 1, 1), (1, 1, 1))
PROGRAM = OpenclProgram("auto", "", False, 1, 0, {"f": (START,)}, {"f": 1})


def request(program=PROGRAM, plan=PLAN, source=SOURCE, stamped=None, regions=()):
    """What the loader gets."""
    text = program if isinstance(program, bytes) else program.to_json()
    code = source.encode() + stamp_line(text, plan if stamped is None else stamped)
    files = {"program.json": text, "kernels.cl": code}
    return LoadRequest("main", files, {}, (X,), (Y,), 1, 0, plan, regions)


def ran(model, value=1.0):
    y = np.zeros(4, np.float32)
    model.run(np.full(4, value, np.float32), y)
    return y


def test_a_model_and_each_of_its_kernels_run(device):
    model = load(request())
    assert ran(model)[0] == 2
    y = np.zeros(4, np.float32)
    model.kernel("f")(np.full(4, 7, np.float32), y)
    assert y[0] == 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"plan": None}, "opencl compiles whole models"),
        ({"program": b"{}"}, "program.json is damaged"),
        ({"program": b'{"schema": 9}'}, "schema 9, this plugin reads schema 1"),
        ({"stamped": replace(PLAN, workspace_bytes=64)}, "is for another program.json or plan"),
        ({"program": replace(PROGRAM, functions={})}, "program.json is damaged: KeyError"),
        ({"program": replace(PROGRAM, reads={"f": 3})}, "f reads more than its arguments"),
        (
            {"program": replace(PROGRAM, functions={"f": (replace(START, arguments=(2,)),)})},
            "add cannot be started so",
        ),
        (
            {"program": replace(PROGRAM, functions={"f": (replace(START, items=(0, 1, 1)),)})},
            "add cannot be started so",
        ),
        (
            {"program": replace(PROGRAM, functions={"f": (replace(START, name="sub"),)})},
            "cannot start a kernel.*INVALID_KERNEL_NAME",
        ),
        (
            {"program": replace(PROGRAM, functions={"f": (replace(START, arguments=(0,)),)})},
            "'add' takes 2 buffers and is given 1",
        ),
    ],
)
def test_units_that_fit_nothing(changed, message):
    made = request(**{**changed, "stamped": changed.get("stamped", changed.get("plan") or PLAN)})
    if "stamped" in changed:
        made = request(stamped=changed["stamped"])
    with pytest.raises(ArtifactError, match=message):
        load(made)


OPEN_SOURCE = """
__kernel void add(__global float *x, __global float *y, long n)
{
    if (get_global_id(0) < n) { y[get_global_id(0)] = x[get_global_id(0)] + 1.0f; }
}
"""
N = variable("N")
OPEN_X, OPEN_Y = (TensorSpec(name, (N,), F32) for name in "xy")
OPEN_ARGS = tuple(
    Argument(place, 0, (N,), F32)
    for place in (ArgumentSource.INPUT, ArgumentSource.WORKSPACE, ArgumentSource.OUTPUT)
)
OPEN_PLAN = CallPlan(
    (OPEN_X,),
    (OPEN_Y,),
    (),
    (),
    0,
    (KernelStep("f", OPEN_ARGS[:2], sizes=("N",)), CopyStep(OPEN_ARGS[1], OPEN_ARGS[2])),
    OpenSizes((SizeSource("N", 0, 0),), (), (4 * N,)),
)
OPEN_START = KernelStart("add", (0, 1), ("(N + 3) // 4", 1, 1), (4, 1, 1), ("N",))
OPEN_PROGRAM = OpenclProgram("auto", "", False, 4, 0, {"f": (OPEN_START,)}, {"f": 1})


def open_request(start=OPEN_START, plan=OPEN_PLAN):
    program = replace(OPEN_PROGRAM, functions={"f": (start,)})
    return request(program=program, plan=plan, source=OPEN_SOURCE)


def test_a_model_of_open_sizes_runs_whatever_was_before():
    model = load(open_request())
    for count in (3, 9, 9, 0, 100, 1):
        x, y = np.arange(count, dtype=np.float32), np.zeros(count, np.float32)
        model.run(x, y)
        np.testing.assert_array_equal(y, x + 1)
    x, y = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    model.kernel("f", 6)(x, y)
    np.testing.assert_array_equal(y, x + 1)


def test_more_elements_than_kernels_count():
    program = replace(OPEN_PROGRAM, most_elements=8)
    model = load(request(program=program, plan=OPEN_PLAN, source=OPEN_SOURCE))
    for count in (8, 9, 3):
        x, y = np.arange(count, dtype=np.float32), np.zeros(count, np.float32)
        if count <= 8:
            model.run(x, y)
            np.testing.assert_array_equal(y, x + 1)
            continue
        with pytest.raises(ResourceError, match="9 elements, and the kernels count 8"):
            model.run(x, y)


@pytest.mark.parametrize(
    "change", [{"groups": ("M", 1, 1)}, {"sizes": ("M",)}, {"sizes": ("N", "M")}]
)
def test_a_start_with_sizes_that_its_step_has_not(change):
    with pytest.raises(ArtifactError, match="add cannot be started so"):
        load(open_request(replace(OPEN_START, **change)))


def test_a_plan_of_open_sizes_has_kernels_and_copies():
    guard = GuardStep(SizeGuard(N, 2, "sizes differ"))
    with pytest.raises(ArtifactError, match="neither a kernel nor a copy"):
        load(open_request(plan=replace(OPEN_PLAN, steps=(*OPEN_PLAN.steps, guard))))


def test_a_step_that_devices_have_not():
    plan = replace(PLAN, steps=(GuardStep(SizeGuard(1, 2, "sizes differ")),))
    with pytest.raises(ArtifactError, match="opencl has no steps of the kind GuardStep"):
        load(request(plan=plan))


def test_a_kernel_that_the_unit_has_not():
    with pytest.raises(ArtifactError, match="no kernel 'g'"):
        load(request()).kernel("g")


def test_a_copy_and_a_region(device):
    def double(x, y):
        y[...] = 2 * x

    native = hosted_call(double, (X, Y), lambda error: None)
    region = NativeCall(ctypes.cast(native, ctypes.c_void_p).value, 0, native)
    again = Argument(ArgumentSource.WORKSPACE, 512, (4,), F32)
    steps = (CopyStep(INPUT, again), RegionStep(0, (again, OUTPUT)))
    plan = replace(PLAN, steps=steps, workspace_bytes=1024)
    np.testing.assert_array_equal(ran(load(request(plan=plan, regions=(region,))), 3.0), [6] * 4)


@pytest.mark.parametrize(
    ("describe", "message"), [(None, "gave no reason"), (lambda: "too hot", "too hot")]
)
def test_a_region_that_fails(device, describe, message):
    def fail(x, y):
        raise ValueError

    native = hosted_call(fail, (X, Y), lambda error: None)
    region = NativeCall(ctypes.cast(native, ctypes.c_void_p).value, 0, native, describe)
    plan = replace(PLAN, steps=(RegionStep(0, (INPUT, OUTPUT)),))
    model = OpenclModel(
        PROGRAM, plan, request(plan=plan, regions=(region,)), OpenclDevice(device, SOURCE)
    )
    with pytest.raises(PluginError, match=message):
        ran(model)
