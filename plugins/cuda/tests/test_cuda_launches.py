# SPDX-License-Identifier: Apache-2.0
"""Kernels of the loop IR as launches, and what the emulated device says of broken ones."""

from __future__ import annotations

import ctypes
import tempfile

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_cuda.cpu_device import EmulatedDevice
from intarsia_cuda.device import Launch
from intarsia_cuda.emulate import compile_emulated
from intarsia_cuda.loader import LoadedModel
from intarsia_cuda.program import DeviceProgram, Start, plan_operations
from intarsia_cuda.source import print_source
from intarsia_cuda.spelling import spelling, target_function
from intarsia_cuda.target import CudaOptions
from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    CallTarget,
    IntImm,
    Load,
    TirVar,
    cast,
    const,
    intrinsic,
)
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import Allocate, Barrier, For, ForKind, Seq, Store, Thread
from intarsia_ir.tir.target_call import verify_target_calls
from intarsia_loops.gpu.grid import bound
from intarsia_runtime.abi import hosted_call
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    RegionStep,
    TensorSpec,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, PluginError, ToolchainError
from intarsia_runtime.loading import LoadRequest, NativeCall

F32 = DType.FLOAT32
OPTIONS = CudaOptions()


def at(buffer, *indices):
    return Load(buffer, tuple(indices), buffer.dtype, 1)


def execute(function, *arrays, options=OPTIONS):
    """Run every launch of a kernel on the emulated device."""
    source = print_source([function], options)
    names = [name for name, _ in source.kernels]
    device = EmulatedDevice(compile_emulated(source.text, names))
    for name, launch in source.kernels:
        addresses = tuple(arrays[n].ctypes.data for n in launch.params)
        device.record([Launch(name, Start(launch.dims, launch.waits), addresses)])()
    return source


def increment(extent, kind):
    source, target, i = Buffer("x", (extent,), F32), Buffer("out", (extent,), F32), TirVar("i")
    body = Store(target, (i,), at(source, i) + 1.0)
    return PrimFunc("f", (source, target), 1, For(i, IntImm(extent), kind, body))


@pytest.mark.parametrize("extent", [1, 31, 64, 1000])
def test_parallel_loops_become_blocks_of_threads(extent):
    x, out = np.arange(extent, dtype=np.float32), np.zeros(extent, np.float32)
    source = execute(increment(extent, ForKind.PARALLEL), x, out)
    np.testing.assert_array_equal(out, x + 1)
    (launch,) = source.launches["f"]
    assert launch.dims[0] * launch.threads >= extent


def test_loops_in_order_run_on_one_thread():
    x, out = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    source = execute(increment(10, ForKind.SERIAL), x, out)
    np.testing.assert_array_equal(out, x + 1)
    assert [launch.dims for launch in source.launches["f"]] == [(1, 1, 1, 1, 1, 1)]


def test_statements_in_sequence_are_launches_in_sequence():
    first = increment(40, ForKind.PARALLEL)
    x, middle = first.params
    out, i = Buffer("again", (40,), F32), TirVar("i")
    second = For(i, IntImm(40), ForKind.PARALLEL, Store(out, (i,), at(middle, 39 - i) * 2.0))
    body = Seq((first.body, Seq((second,)), Seq(())))
    function = PrimFunc("f", (x, out, middle), 1, body, 1)
    arrays = [np.arange(40, dtype=np.float32), np.zeros(40, np.float32), np.zeros(40, np.float32)]
    source = execute(function, *arrays)
    np.testing.assert_array_equal(arrays[1], (arrays[0][::-1] + 1) * 2)
    assert [launch.params for launch in source.launches["f"]] == [(0, 2), (1, 2)]


def test_agrees_with_the_interpreter():
    """A kernel with shared memory and barriers, by the oracle and by the emulated device."""
    source, target = Buffer("x", (2, 32), F32), Buffer("out", (2, 32), F32)
    shared = Buffer("shared", (32,), F32, MemoryScope.SHARED)
    block, thread = TirVar("block"), TirVar("thread")
    parts = Seq(
        (
            Store(shared, (thread,), at(source, block, thread) * 2.0),
            Barrier(),
            Store(target, (block, thread), at(shared, 31 - thread)),
        )
    )
    body = Allocate(shared, bound(Thread.THREAD_X, thread, 32, parts))
    function = PrimFunc("f", (source, target), 1, bound(Thread.BLOCK_X, block, 2, body))
    x = np.arange(64, dtype=np.float32).reshape(2, 32)
    want, got = np.zeros_like(x), np.zeros_like(x)
    run(function, x, want)
    execute(function, x, got)
    np.testing.assert_array_equal(got, want)


def test_positions_take_64_bits_where_32_are_too_few():
    small = print_source([increment(100, ForKind.PARALLEL)], OPTIONS).text
    large = print_source([increment(1 << 31, ForKind.PARALLEL)], OPTIONS).text
    assert "int64_t" not in small
    assert "const int64_t block" in large


def applied(function, dtype):
    """A kernel that applies a machine function to eight numbers."""
    x, target, i = Buffer("x", (8,), dtype), Buffer("out", (8,), dtype), TirVar("i")
    value = intrinsic(function, *([at(x, i)] * function.operands))
    body = Store(target, (i,), cast(value, dtype))
    name = f"{function.value}_{dtype.value}"
    return PrimFunc(name, (x, target), 1, For(i, IntImm(8), ForKind.PARALLEL, body))


def test_machine_functions_of_both_widths():
    """Every machine function has a spelling or a rule; the emulated ones are the C library's."""
    functions = [f for f in Intrinsic if not f.keeps_bits]
    kernels = [applied(f, dtype) for f in functions for dtype in (F32, DType.FLOAT64)]
    source = print_source(kernels, OPTIONS)
    names = [name for name, _ in source.kernels]
    device = EmulatedDevice(compile_emulated(source.text, names))
    for kernel, (name, launch) in zip(kernels, source.kernels, strict=True):
        kind = kernel.params[0].dtype
        data = np.linspace(0.1, 0.9, 8).astype(kind.value)
        data = data + 1 if "acosh" in name else data
        got, want = np.zeros_like(data), np.zeros_like(data)
        run(kernel, data, want)
        addresses = (data.ctypes.data, got.ctypes.data)
        device.record([Launch(name, Start(launch.dims, launch.waits), addresses)])()
        np.testing.assert_allclose(got, want, rtol=1e-6 if kind is F32 else 1e-14, err_msg=name)


OTHERS = sorted(
    name
    for name in spelling(index="int32_t").functions
    if target_function(name) is not None and not name.startswith("ix_")
)


def test_there_are_forty_functions_of_each_width():
    names = spelling(index="int32_t").functions
    assert len([name for name in names if not name.startswith("ix_")]) >= 80


def test_functions_by_cudas_own_name():
    """``call_target_intrinsic`` reaches what the loop IR has no name for."""
    assert len(OTHERS) == 34
    stores, params = [], [Buffer("x", (8,), F32), Buffer("d", (8,), DType.FLOAT64)]
    i = TirVar("i")
    for name in OTHERS:
        signature = target_function(name)
        source = params[0] if F32 in signature.operands else params[1]
        target = Buffer(f"out_{name}", (8,), source.dtype)
        params.append(target)
        args = (at(source, i),) * signature.arguments
        stores.append(Store(target, (i,), CallTarget("cuda", name, args, source.dtype, 1)))
    body = For(i, IntImm(8), ForKind.PARALLEL, Seq(tuple(stores)))
    kernel = PrimFunc("f", tuple(params), len(params) - 2, body)
    verify_target_calls(kernel, "cuda", target_function)
    arrays = [np.full(b.shape, 0.5, b.dtype.value) for b in params]
    execute(kernel, *arrays)
    found = {name: array[0] for name, array in zip(OTHERS, arrays[2:], strict=True)}
    assert found["exp2"] == pytest.approx(2**0.5)
    assert found["hypotf"] == pytest.approx(0.5**0.5, rel=1e-6)
    assert found["normcdf"] == pytest.approx(0.6914624612740131)
    assert target_function("f") is None


def test_a_parallel_loop_of_a_length_known_late():
    target, n, i = Buffer("out", (4, 4), F32), TirVar("n"), TirVar("i")
    inner = For(i, n + 1, ForKind.PARALLEL, Store(target, (n, i), const(1.0, F32)))
    function = PrimFunc("f", (target,), 1, For(n, IntImm(4), ForKind.SERIAL, inner))
    out = np.zeros((4, 4), np.float32)
    execute(function, out)
    np.testing.assert_array_equal(out, np.tril(np.ones((4, 4), np.float32)))


def test_threads_that_wait_for_ever():
    """Half of a warp waits at a barrier, half in a shuffle: a GPU would hang."""
    text = (
        '#include "intarsia_device.h"\n'
        'extern "C" __global__ void kernel_f(float *out)\n{\n'
        "    if (threadIdx.x < 4) {\n        __syncthreads();\n    } else {\n"
        "        out[0] = ix_shuffle_down(1.0F, 1);\n    }\n}\n"
    )
    device = EmulatedDevice(compile_emulated(text, ["kernel_f"]))
    out = np.zeros(1, np.float32)
    start = Start((1, 1, 1, 8, 1, 1), True)
    with pytest.raises(ArtifactError, match="wait for others that never come"):
        device.record([Launch("kernel_f", start, (out.ctypes.data,))])()


def test_a_library_that_is_none():
    with pytest.raises(ArtifactError, match="emulated"):
        EmulatedDevice(b"no library")


def test_a_kernel_that_is_not_there():
    device = EmulatedDevice(compile_emulated('#include "intarsia_device.h"\n', []))
    with pytest.raises(ArtifactError, match="exports no 'emulated_kernel_f'"):
        device.record([Launch("kernel_f", Start((1, 1, 1, 1, 1, 1), False), ())])


def test_an_emulated_kernel_has_its_lines():
    text = '#include "intarsia_device.h"\n__global__ void kernel_f(float *x) {\n  x[0] = 1;\n}\n'
    plain = compile_emulated(text, ["kernel_f"])
    first, second = (compile_emulated(text, ["kernel_f"], lineinfo=True) for _ in range(2))
    assert first == second
    assert (b".debug_line" in first, b".debug_line" in plain) == (True, False)
    assert b"kernels.cu\0" in first
    assert tempfile.gettempdir().encode() not in first


@pytest.mark.parametrize(
    ("cxx", "message"),
    [
        ("no-such-compiler", "is not installed, and -emulate needs one"),
        ("/", "did not run"),
        ("false", r"failed \(1\)"),
    ],
)
def test_compilers_that_do_not_compile(cxx, message):
    with pytest.raises(ToolchainError, match=message):
        compile_emulated("", [], cxx)


X, Y = TensorSpec("x", (4,), F32), TensorSpec("y", (4,), F32)
REGION = RegionStep(
    0, (Argument(ArgumentSource.INPUT, 0, (4,), F32), Argument(ArgumentSource.OUTPUT, 0, (4,), F32))
)
PLAN = CallPlan((X,), (Y,), (), ("acme_0",), 0, (REGION,))


def hosted(function, describe=None):
    native = hosted_call(function, (X, Y), lambda error: None)
    address = ctypes.cast(native, ctypes.c_void_p).value
    return NativeCall(address, 0, native, describe)


def model_of(region, plan=PLAN):
    program = DeviceProgram("sm_80", True, {}, {}, {}, plan_operations(PLAN, {}))
    request = LoadRequest("main", {}, {}, plan.inputs, plan.outputs, 1, 0, plan, (region,))
    device = EmulatedDevice(compile_emulated('#include "intarsia_device.h"\n', []))
    return LoadedModel(program, plan, request, device)


def double(x, y):
    y[...] = 2 * x


def fail(x, y):
    raise ValueError("no")


def test_a_region_alone():
    y = np.zeros(4, np.float32)
    model_of(hosted(double)).run(np.arange(4, dtype=np.float32), y)
    np.testing.assert_array_equal(y, [0, 2, 4, 6])


@pytest.mark.parametrize(
    ("describe", "message"), [(None, "gave no reason"), (lambda: "too hot", "too hot")]
)
def test_a_region_that_fails(describe, message):
    with pytest.raises(PluginError, match=message):
        model_of(hosted(fail, describe)).run(np.zeros(4, np.float32), np.zeros(4, np.float32))


def test_a_program_of_another_plan():
    other = replace(PLAN, steps=(CopyStep(*REGION.args),))
    with pytest.raises(ArtifactError, match="step 0 is no region"):
        model_of(hosted(double), other)


def test_a_kernel_that_the_plan_has_not():
    with pytest.raises(ArtifactError, match="no kernel 'f'"):
        model_of(hosted(double)).kernel("f")
