# SPDX-License-Identifier: Apache-2.0
"""Larger cases on a device: tiles, reductions, vectors; with the driver's optimizer."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import CallTarget, IntImm, Load, TirVar, cast, const, intrinsic
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.stmt import For, ForKind, Seq, Store
from intarsia_ir.tir.target_call import verify_target_calls
from intarsia_opencl.codegen import kernel_start
from intarsia_opencl.device import OpenclDevice
from intarsia_opencl.source import print_source
from intarsia_opencl.spelling import spelling, target_function
from intarsia_opencl.target import OpenclOptions
from intarsia_runtime.dtype import DType

from .running import Module, assert_close, lowered, reference

RNG = np.random.default_rng(11)


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def convolution(x, w, *, groups=1):
    attrs = {"strides": (2, 1), "padding": ((1, 1), (0, 2)), "dilation": (1, 2), "groups": groups}
    return "nn.conv", [x, w], attrs


PRODUCT = {"transpose_a": False, "transpose_b": False}
CASES = {
    "a product": ("matmul", [normal(70, 45), normal(45, 75)], PRODUCT),
    "a batch of small products": (
        "matmul",
        [normal(2, 3, 33, 40), normal(3, 40, 20)],
        PRODUCT,
    ),
    "a transposed product": (
        "matmul",
        [normal(40, 33), normal(70, 40)],
        {"transpose_a": True, "transpose_b": True},
    ),
    "a product in float64": (
        "matmul",
        [normal(33, 40, dtype=np.float64), normal(40, 35, dtype=np.float64)],
        PRODUCT,
    ),
    "a product of halves": (
        "matmul",
        [normal(65, 40, dtype=np.float16), normal(40, 66, dtype=np.float16)],
        PRODUCT,
    ),
    "a product in bfloat16": (
        "matmul",
        [normal(65, 40, dtype=ml_dtypes.bfloat16), normal(40, 66, dtype=ml_dtypes.bfloat16)],
        PRODUCT,
    ),
    "a convolution": convolution(normal(2, 9, 20, 21), normal(40, 9, 3, 3)),
    "a grouped convolution": convolution(
        normal(1, 16, 20, 21), normal(32, 8, 3, 3), groups=2
    ),
    "rows": ("sum", [normal(100, 513)], {"axes": (1,), "keepdims": False}),
    "columns": ("sum", [normal(40, 20000)], {"axes": (0,), "keepdims": False}),
    "one result": ("max", [normal(64, 1027)], {"axes": (0, 1), "keepdims": False}),
    "halves with one result": (
        "mean",
        [normal(5000, dtype=np.float16)],
        {"axes": (0,), "keepdims": True},
    ),
    "a softmax of rows": ("nn.softmax", [normal(37, 1000)], {"axis": 1}),
    "a vector": ("add", [normal(64, 4096), normal(4096)], {}),
    "bytes in vectors": ("maximum", [*RNG.integers(0, 255, (2, 64, 128), np.uint8)], {}),
}  # fmt: skip
TOLERANCES = {
    "a product of halves": 4e-3,
    "halves with one result": 4e-3,
    "a product in bfloat16": 3e-2,
    "a product in float64": 1e-12,
}


@pytest.fixture(scope="module")
def module(make_target, device):
    target = make_target()
    return Module(target, [lowered(target, *case) for case in CASES.values()], device)


@pytest.mark.parametrize("case", list(CASES))
def test_a_kernel_computes_what_the_reference_says(module, case):
    found = module.run(list(CASES).index(case), *CASES[case][1])
    for got, want in zip(found, reference(*CASES[case]), strict=True):
        assert_close(got, want, case, TOLERANCES.get(case, 2e-4))


@pytest.mark.parametrize(
    ("options", "items"),
    [
        ({}, 256),
        ({"max_work_group_size": 128}, 64),
        ({"max_work_group_size": 64}, 64),
        ({"local_memory": 8192}, 64),
        ({"max_work_group_size": 32}, 32),
    ],
)
def test_options_choose_the_groups_of_a_product(make_target, device, options, items):
    target = make_target(**options)
    name, inputs, attrs = CASES["a product"]
    module = Module(target, [lowered(target, name, inputs, attrs)], device)
    (launches,) = module.source.launches.values()
    assert [launch.threads for launch in launches] == [items]
    has_tiles = "tile_a" in module.source.text
    assert has_tiles == (items >= 64)
    (got,) = module.run(0, *inputs)
    assert_close(got, reference(name, inputs, attrs)[0], "product", 1e-4)


def test_small_groups_share_a_reduction(make_target, device):
    target = make_target(max_work_group_size=16)
    name, inputs, attrs = CASES["one result"]
    module = Module(target, [lowered(target, name, inputs, attrs)], device)
    (got,) = module.run(0, *inputs)
    np.testing.assert_array_equal(got, reference(name, inputs, attrs)[0])


def launched(function, device, *arrays):
    """Run every launch of a kernel on arrays, which are buffers of the device meanwhile."""
    source = print_source([function], OpenclOptions())
    program = OpenclDevice(device, source.text)
    buffers = [program.reserve(array.nbytes) for array in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        program.write(buffer, array)
    for launch in source.launches[function.name]:
        start = kernel_start(launch)
        program.launch(start, [buffers[n] for n in start.arguments])()
    for buffer, array in zip(buffers, arrays, strict=True):
        program.read(array, buffer)
    program.wait()


def at(buffer, *indices):
    return Load(buffer, tuple(indices), buffer.dtype, 1)


def test_every_machine_function_in_both_widths(device):
    """OpenCL allows functions of float32 up to 16 units in the last place, tgamma's."""
    i, stores, params = TirVar("i"), [], []
    for dtype in (DType.FLOAT32, DType.FLOAT64):
        x = Buffer("x", (8,), dtype)
        params.append(x)
        for function in [f for f in Intrinsic if not f.keeps_bits]:
            value = at(x, i) + 1.0 if function is Intrinsic.ACOSH else at(x, i)
            result = intrinsic(function, *([value] * function.operands))
            target = Buffer(f"{function.value}_{dtype.value}", (8,), dtype)
            params.append(target)
            stores.append(Store(target, (i,), cast(result, dtype)))
    outputs = [p for p in params if p.name != "x"]
    inputs = [p for p in params if p.name == "x"]
    body = For(i, IntImm(8), ForKind.PARALLEL, Seq(tuple(stores)))
    kernel = PrimFunc("f", (*inputs, *outputs), len(outputs), body)
    data = [np.linspace(0.1, 0.9, 8).astype(b.dtype.value) for b in inputs]
    got, want = ([np.zeros(8, b.dtype.value) for b in outputs] for _ in range(2))
    run(kernel, *data, *want)
    launched(kernel, device, *data, *got)
    for buffer, a, b in zip(outputs, got, want, strict=True):
        limit = 2e-6 if buffer.dtype is DType.FLOAT32 else 4e-15
        np.testing.assert_allclose(a, b, rtol=limit, atol=limit, err_msg=buffer.name)


OTHERS = sorted(n for n in spelling(False).functions if not n.startswith(("ix_", "native_")))


def test_functions_by_the_name_that_opencl_has_for_them(device):
    """``call_target_intrinsic`` reaches what the loop IR has no name for."""
    assert len(OTHERS) == 22
    i, x = TirVar("i"), Buffer("x", (8,), DType.FLOAT32)
    stores, params = [], [x]
    for name in OTHERS:
        target = Buffer(f"out_{name}", (8,), DType.FLOAT32)
        params.append(target)
        args = (at(x, i),) * target_function(name).arguments
        args = (const(0.0, x.dtype), const(1.0, x.dtype), args[0]) if "step" in name else args
        stores.append(Store(target, (i,), CallTarget("opencl", name, args, x.dtype, 1)))
    body = For(i, IntImm(8), ForKind.PARALLEL, Seq(tuple(stores)))
    kernel = PrimFunc("f", tuple(params), len(params) - 1, body)
    verify_target_calls(kernel, "opencl", target_function)
    arrays = [np.full(8, 0.5, np.float32) for _ in params]
    launched(kernel, device, *arrays)
    found = {name: array[0] for name, array in zip(OTHERS, arrays[1:], strict=True)}
    assert found["sinpi"] == pytest.approx(1)
    assert found["mad"] == pytest.approx(0.75)
    assert found["degrees"] == pytest.approx(28.64789)
    assert found["smoothstep"] == pytest.approx(0.5)
    assert found["fmod"] == 0
    assert target_function("f") is None


def test_tanh_is_one_where_it_is_one(make_target, device):
    """pocl's own is one unit in the last place off up to infinity."""
    x = np.array([-np.inf, -30, -9.2, 0, 9.2, 30, np.inf, np.nan], np.float32)
    module = Module(make_target(), [lowered(make_target(), "tanh", [x], {})], device)
    np.testing.assert_array_equal(module.run(0, x)[0], [-1, -1, -1, 0, 1, 1, 1, np.nan])


def test_rules_of_machine_functions_take_vectors(make_target, device):
    """Loops of recurrent layers are written in vectors."""
    inputs = [normal(3, 2, 5), normal(2, 5), normal(5, 5)]
    attrs = {"reverse": False, "activation": "tanh"}
    module = Module(make_target(), [lowered(make_target(), "nn.rnn", inputs, attrs)], device)
    for got, want in zip(module.run(0, *inputs), reference("nn.rnn", inputs, attrs), strict=True):
        assert_close(got, want, "nn.rnn")
