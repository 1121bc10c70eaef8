# SPDX-License-Identifier: Apache-2.0
"""The host side against a driver that only writes down what it is asked.

The order of calls and their arguments are checked, not their effect.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_cuda.driver import CudaDevice, device_capability, device_name
from intarsia_cuda.loader import LoadedModel, load
from intarsia_cuda.open_model import OpenCudaModel
from intarsia_cuda.program import (
    DeviceProgram,
    Start,
    check_program,
    plan_operations,
    program_from_json,
)
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    GuardStep,
    KernelStep,
    OpenSizes,
    SizeGuard,
    SizeSource,
    TensorSpec,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, ResourceError, ToolchainError, WorkerLost
from intarsia_runtime.loading import LoadRequest
from intarsia_runtime.size import variable


class Mode:
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1


class Recorder:
    """A driver that gives numbers for everything, and memory of the host for pinned memory."""

    CUstreamCaptureMode = Mode
    CUdevice_attribute = int
    CUfunction_attribute = int

    def __init__(self, fail=None):
        self.calls = []
        self.fail = fail or {}
        self.pinned = []
        self.next = 0x1000

    def __getattr__(self, name):
        def call(*args):
            self.calls.append((name, args))
            if name in self.fail:
                answer = self.fail[name]
                if isinstance(answer, Exception):
                    raise answer
                return (answer, None)
            if name == "cuDeviceGetName":
                return 0, b"NVIDIA Test\0\0what was there before"
            if name == "cuDeviceGetAttribute":
                return 0, {75: 8, 76: 6}[args[0]]
            if name == "cuMemHostAlloc":
                self.pinned.append(ctypes.create_string_buffer(args[0]))
                return 0, ctypes.addressof(self.pinned[-1])
            self.next += 0x1000
            return 0, self.next

        return call

    def names(self):
        return [name for name, _ in self.calls]

    def of(self, wanted):
        return [args for name, args in self.calls if name == wanted]


def argument(place, index, count=4):
    return Argument(place, index, (count,), DType.FLOAT32)


X, Y = TensorSpec("x", (4,), DType.FLOAT32), TensorSpec("y", (4,), DType.FLOAT32)
Z = TensorSpec("z", (4,), DType.FLOAT32)
PLAN = CallPlan(
    inputs=(X,),
    outputs=(Y, Z),
    constants=("w", "unused"),
    regions=(),
    workspace_bytes=512,
    steps=(
        KernelStep(
            "f", (argument(ArgumentSource.CONSTANT, 0), argument(ArgumentSource.WORKSPACE, 256))
        ),
        KernelStep(
            "g",
            (
                argument(ArgumentSource.INPUT, 0),
                argument(ArgumentSource.WORKSPACE, 256),
                argument(ArgumentSource.OUTPUT, 0),
            ),
        ),
        CopyStep(argument(ArgumentSource.INPUT, 0), argument(ArgumentSource.OUTPUT, 1)),
    ),
)
LAUNCHES = {"f": [("kernel_f", (0, 1))], "g": [("kernel_g", (0, 1)), ("kernel_h", (1, 2))]}
START = Start((3, 1, 1, 64, 1, 1), False)
PROGRAM = DeviceProgram(
    "sm_80",
    False,
    dict.fromkeys(("kernel_f", "kernel_g", "kernel_h"), START),
    LAUNCHES,
    {"f": 1, "g": 1},
    plan_operations(PLAN, LAUNCHES),
)


def request_for(program=PROGRAM, files=None):
    given = {"program.json": program.to_json().encode()} if files is None else files
    weights = {"w": np.arange(4, dtype=np.float32)}
    return LoadRequest("main", given, weights, PLAN.inputs, PLAN.outputs, 1, 0, PLAN)


def model(driver):
    device = CudaDevice([b"cubin", b"ptx"], driver)
    return LoadedModel(PROGRAM, PLAN, request_for(), device), device


def test_copies_are_placed_at_the_first_reader_and_the_last_writer():
    assert [(op.what, op.kernel or op.spots[0].index) for op in PROGRAM.operations] == [
        ("launch", "kernel_f"),
        ("in", 0),
        ("launch", "kernel_g"),
        ("launch", "kernel_h"),
        ("out", 0),
        ("copy", 1),
        ("out", 1),
    ]


def test_a_run_is_one_graph():
    driver = Recorder()
    loaded, device = model(driver)
    names = driver.names()
    begin, end = names.index("cuStreamBeginCapture"), names.index("cuStreamEndCapture")
    assert names[begin + 1 : end] == [
        *("cuLaunchKernel", "cuMemcpyHtoDAsync", "cuLaunchKernel", "cuLaunchKernel"),
        *("cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync"),
    ]
    assert names[end + 1] == "cuGraphInstantiate"
    assert names[: names.index("cuMemAllocFromPoolAsync")] == [
        *("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"),
        *("cuModuleLoadData", "cuStreamCreate", "cuDeviceGetDefaultMemPool"),
    ]
    driver.calls.clear()
    y, z = np.zeros(4, np.float32), np.zeros(4, np.float32)
    loaded.run(np.arange(4, dtype=np.float32), y, z)
    loaded.run(np.arange(4, dtype=np.float32), y, z)
    assert driver.names() == ["cuCtxSetCurrent", "cuGraphLaunch", "cuStreamSynchronize"] * 2
    assert device is not None


N = variable("N")
OPEN_PLAN = CallPlan(
    inputs=(TensorSpec("x", (N,), DType.FLOAT32),),
    outputs=(TensorSpec("y", (N,), DType.FLOAT32),),
    constants=("w",),
    regions=(),
    workspace_bytes=0,
    steps=(
        KernelStep(
            "f",
            (
                Argument(ArgumentSource.CONSTANT, 0, (4,), DType.FLOAT32),
                Argument(ArgumentSource.INPUT, 0, (N,), DType.FLOAT32),
                Argument(ArgumentSource.WORKSPACE, 1, (N,), DType.FLOAT32),
            ),
            sizes=("N",),
        ),
        CopyStep(
            Argument(ArgumentSource.WORKSPACE, 1, (N,), DType.FLOAT32),
            Argument(ArgumentSource.OUTPUT, 0, (N,), DType.FLOAT32),
        ),
    ),
    open=OpenSizes((SizeSource("N", 0, 0),), (), (64, 4 * N)),
)
OPEN_PROGRAM = DeviceProgram(
    "sm_80",
    False,
    {"kernel_f": Start(("(N + 63) // 64", 1, 1, 64, 1, 1), False, ("N",))},
    {"f": [("kernel_f", (0, 1, 2))]},
    {"f": 2},
    (),
)


def open_model(driver, program=OPEN_PROGRAM):
    weights = {"w": np.arange(4, dtype=np.float32)}
    plan = OPEN_PLAN
    request = LoadRequest("main", {}, weights, plan.inputs, plan.outputs, 1, 0, plan)
    check_program(program, plan)
    return OpenCudaModel(program, plan, request, CudaDevice([b"cubin"], driver))


def run_open(loaded, count):
    loaded.run(np.zeros(count, np.float32), np.zeros(count, np.float32))


def test_new_sizes_run_at_once_and_known_ones_as_a_graph():
    driver = Recorder()
    loaded = open_model(driver)
    run_open(loaded, 65)
    assert "cuGraphInstantiate" not in driver.names()
    function, *dims, shared, stream, (values, types), extra = driver.of("cuLaunchKernel")[0]
    assert (dims, shared, extra) == ([2, 1, 1, 64, 1, 1], 0, 0)
    assert types == (ctypes.c_void_p,) * 3 + (ctypes.c_int64,)
    assert values[3] == 65
    weight, _, _ = driver.of("cuMemcpyHtoD")[0]
    assert values[0] == weight
    assert driver.of("cuMemcpyHtoDAsync")[0][2] == 260
    assert driver.of("cuMemcpyDtoDAsync")[0][2] == 260
    assert function != stream
    driver.calls.clear()
    for _ in range(3):
        run_open(loaded, 65)
    assert driver.names().count("cuGraphInstantiate") == 1
    assert driver.names().count("cuGraphLaunch") == 3
    driver.calls.clear()
    run_open(loaded, 3)
    assert driver.names()[0] == "cuGraphExecDestroy"
    assert "cuGraphLaunch" not in driver.names()
    assert "cuMemAllocFromPoolAsync" not in driver.names()  # there is more than that


def test_memory_of_open_sizes_grows_and_is_given_back_once():
    driver = Recorder()
    loaded = open_model(driver)
    run_open(loaded, 64)
    driver.calls.clear()
    run_open(loaded, 128)
    names = driver.names()
    for given, taken in (
        ("cuMemFreeAsync", "cuMemAllocFromPoolAsync"),
        ("cuMemFreeHost", "cuMemHostAlloc"),
    ):
        assert names.count(given) == names.count(taken) > 0
        assert names.index(given) < names.index(taken)
    driver.calls.clear()
    run_open(loaded, 180)  # half as much again was taken
    assert "cuMemAllocFromPoolAsync" not in driver.names()


def test_memory_that_is_not_there_is_asked_for_again():
    driver = Recorder()
    loaded = open_model(driver)
    run_open(loaded, 64)
    driver.fail["cuMemAllocFromPoolAsync"] = 2
    with pytest.raises(ResourceError, match="no memory left"):
        run_open(loaded, 1 << 20)
    del driver.fail["cuMemAllocFromPoolAsync"]
    run_open(loaded, 64)
    run_open(loaded, 1 << 20)


def test_more_elements_than_kernels_count():
    driver = Recorder()
    loaded = open_model(driver, replace(OPEN_PROGRAM, most_elements=100))
    run_open(loaded, 100)
    driver.calls.clear()
    with pytest.raises(ResourceError, match="101 elements, and the kernels count 100") as caught:
        run_open(loaded, 101)
    assert "-wide-index" in caught.value.hint
    assert not driver.calls
    run_open(loaded, 100)


def test_nothing_is_started_or_copied_for_no_elements():
    driver = Recorder()
    run_open(open_model(driver), 0)
    assert not {"cuLaunchKernel", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"} & {*driver.names()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernels": {"kernel_f": Start(("N", 1, 1, "N", 1, 1), False)}}, "cannot be started"),
        ({"kernels": {"kernel_f": Start(("N", 1, 1, 2048, 1, 1), False)}}, "cannot be started"),
        ({"kernels": {"kernel_f": Start(("M", 1, 1, 64, 1, 1), False)}}, "sizes that its step"),
        ({"kernels": {"kernel_f": Start((1, 1, 1, 64, 1, 1), False, ("M",))}}, "sizes that its"),
        ({"operations": plan_operations(PLAN, LAUNCHES)}, "not those of the call plan"),
    ],
)
def test_programs_of_open_sizes_that_do_not_fit_the_plan(change, message):
    with pytest.raises(ValueError, match=message):
        check_program(replace(OPEN_PROGRAM, **change), OPEN_PLAN)


def test_a_plan_of_open_sizes_has_kernels_and_copies():
    branch = GuardStep(SizeGuard(N, 1, "one"))
    with pytest.raises(ValueError, match="neither a kernel nor a copy"):
        check_program(OPEN_PROGRAM, replace(OPEN_PLAN, steps=(*OPEN_PLAN.steps, branch)))


def test_a_launch_has_its_dims_and_addresses():
    driver = Recorder()
    _, device = model(driver)
    function, *dims, shared, stream, args, extra = driver.of("cuLaunchKernel")[0]
    assert (dims, shared, extra) == ([3, 1, 1, 64, 1, 1], 0, 0)
    addresses, types = args
    assert types == (ctypes.c_void_p, ctypes.c_void_p)
    weight, _, _ = driver.of("cuMemcpyHtoD")[0]
    assert addresses[0] == weight
    assert addresses[1] % 256 == 0
    assert function != stream
    device.close()


def test_weights_go_up_once_and_those_nobody_reads_never():
    driver = Recorder()
    model(driver)
    uploads = driver.of("cuMemcpyHtoD")
    assert [size for _, _, size in uploads] == [16]


def test_everything_is_given_back_once():
    driver = Recorder()
    _, device = model(driver)
    driver.calls.clear()
    device.close()
    device.close()
    names = driver.names()
    assert names[:2] == ["cuCtxSetCurrent", "cuGraphExecDestroy"]
    assert names.count("cuMemFreeAsync") == 5  # workspace, input, two outputs, one weight
    assert names.count("cuMemFreeHost") == 3
    assert names[-3:] == ["cuModuleUnload", "cuStreamDestroy", "cuDevicePrimaryCtxRelease"]


def test_ptx_is_tried_where_the_machine_code_does_not_fit():
    driver = Recorder()
    load_data = driver.cuModuleLoadData
    images = []

    def picky(image):
        images.append(image)
        return (209, None) if image == b"cubin" else load_data(image)

    driver.cuModuleLoadData = picky
    CudaDevice([b"cubin", b"ptx"], driver)
    assert images == [b"cubin", b"ptx"]


@pytest.mark.parametrize(
    ("fail", "error", "message"),
    [
        ({"cuInit": RuntimeError("Failed to dlopen libcuda.so.1")}, WorkerLost, "no CUDA driver"),
        ({"cuInit": 100}, WorkerLost, "failed: 100"),
        ({"cuModuleLoadData": 209}, ArtifactError, "another GPU"),
        ({"cuModuleLoadData": 700}, WorkerLost, "failed: 700"),
        ({"cuMemAllocFromPoolAsync": 2}, ResourceError, "no memory left"),
        ({"cuGraphInstantiate": 999}, WorkerLost, "failed: 999"),
    ],
)
def test_failures(fail, error, message):
    with pytest.raises(error, match=message):
        model(Recorder(fail))


def test_without_a_driver_the_hint_names_emulation():
    absent = {"cuInit": RuntimeError("Failed to dlopen libcuda.so.1")}
    with pytest.raises(WorkerLost, match="compile with -emulate") as caught:
        device_name(Recorder(absent))
    assert caught.value.exit_code == 9


def test_names_the_device():
    assert device_name(Recorder()) == "NVIDIA Test"


def test_asks_for_the_compute_capability():
    assert device_capability(Recorder()) == 86


def test_without_the_binding(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(ToolchainError, match="binding of the CUDA driver is not installed"):
        device_name()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no program.json"),
        ({"program.json": b"{"}, "program.json is damaged"),
        ({"program.json": b'{"schema": 7}'}, "another schema"),
        ({"program.json": PROGRAM.to_json().encode()}, "no kernels.cubin"),
    ],
)
def test_damaged_units(files, message):
    with pytest.raises(ArtifactError, match=message):
        load(request_for(files=files))


def test_an_unknown_operation():
    text = PROGRAM.to_json().replace('"what": "in"', '"what": "sideways"')
    program = program_from_json(text.encode())
    with pytest.raises(ArtifactError, match="unknown operation 'sideways'"):
        LoadedModel(program, PLAN, request_for(), CudaDevice([b"cubin"], Recorder()))


def test_a_region_is_refused():
    request = LoadRequest("cuda_0", request_for().files, {}, (), (), 1, 0)
    with pytest.raises(ArtifactError, match="compiles whole models"):
        load(request)


def test_the_program_survives_as_text():
    again = program_from_json(PROGRAM.to_json().encode())
    assert again.to_json() == PROGRAM.to_json()
    assert again.operations == PROGRAM.operations
