# SPDX-License-Identifier: Apache-2.0
"""The exported functions: the call plan, checks of arguments, regions, step tables."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.stmt import For, ForKind, Store
from intarsia_llvm import compile_pool
from intarsia_llvm.codegen import tir_codegen
from intarsia_llvm.emit import module as emitted
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    KernelStep,
    RegionStep,
    TensorSpec,
)
from intarsia_runtime.dtype import DType

F32 = DType.FLOAT32
SHAPE = (2, 8)


def adder():
    a, b, c = (Buffer(name, SHAPE, F32) for name in "abc")
    i, j = TirVar("i"), TirVar("j")
    value = Load(a, (i, j), F32, 1) + Load(b, (i, j), F32, 1)
    inner = For(j, IntImm(8), ForKind.VECTORIZED, Store(c, (i, j), value))
    return PrimFunc("adder", (a, b, c), 1, For(i, IntImm(2), ForKind.PARALLEL, inner))


def at(place, number):
    return Argument(place, number, SHAPE, F32)


def plan(*steps, regions=()):
    spec = TensorSpec("x", SHAPE, F32)
    return CallPlan(
        (spec,),
        (TensorSpec("y", SHAPE, F32), TensorSpec("z", SHAPE, F32)),
        ("w",),
        regions,
        64,
        steps,
    )


STEPS = (
    KernelStep(
        "adder",
        (
            at(ArgumentSource.INPUT, 0),
            at(ArgumentSource.CONSTANT, 0),
            at(ArgumentSource.WORKSPACE, 0),
        ),
    ),
    KernelStep(
        "adder",
        (
            at(ArgumentSource.WORKSPACE, 0),
            at(ArgumentSource.INPUT, 0),
            at(ArgumentSource.OUTPUT, 0),
        ),
    ),
    CopyStep(at(ArgumentSource.CONSTANT, 0), at(ArgumentSource.OUTPUT, 1)),
)


class Context:
    """The array of pointers that ``main`` gets, and what it points to."""

    def __init__(self, *more):
        self.workspace = np.zeros(64, np.uint8)
        self.weight = np.arange(16, dtype=np.float32).reshape(SHAPE)
        self.table = np.array(
            [self.workspace.ctypes.data, self.weight.ctypes.data, *more], np.int64
        )
        self.address = int(self.table.ctypes.data)


def arrays():
    x = np.full(SHAPE, 10, np.float32)
    return x, np.zeros_like(x), np.zeros_like(x)


@pytest.fixture
def main(load_module):
    return load_module([adder()], plan(*STEPS)).get_function("main")


def test_main_carries_out_the_plan(main):
    context = Context()
    x, y, z = arrays()
    main(context.address, x, y, z)
    np.testing.assert_array_equal(y, 2 * x + context.weight)
    np.testing.assert_array_equal(z, context.weight)


def test_a_long_main_is_compiled_without_optimizing_it(load_module, monkeypatch):
    monkeypatch.setattr(emitted, "_LONG", 1)
    texts: list[str] = []
    compiled = compile_pool.compile_object
    monkeypatch.setattr(
        compile_pool,
        "compile_object",
        lambda text, *more: texts.append(text) or compiled(text, *more),
    )
    test_main_carries_out_the_plan(
        load_module([adder()], plan(*STEPS)).get_function("main"),
    )
    exported = [line for line in texts[0].splitlines() if "@__tvm_ffi_main(" in line]
    assert exported[0].endswith("noinline optnone #0 {")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda x: x.astype(np.float64),
            "'x' has the wrong element type; it must be float32",
        ),
        (lambda x: x[:1], r"input 'x' has the wrong shape; it must be \(2, 8\)"),
        (lambda x: x.reshape(-1), "wrong shape"),
        (lambda x: np.zeros((2, 16), np.float32)[:, ::2], "not contiguous"),
        (lambda x: np.zeros(68, np.uint8)[1:65].view(np.float32).reshape(SHAPE), "not aligned"),
        (lambda x: 3, "input 'x' is not a tensor"),
    ],
)
def test_main_refuses_what_does_not_fit(main, change, said):
    x, y, z = arrays()
    with pytest.raises(Exception, match=said):
        main(Context().address, change(x), y, z)
    assert not y.any()


def test_main_counts_its_arguments(main):
    x, y, _ = arrays()
    with pytest.raises(ValueError, match="wrong number of arguments"):
        main(Context().address, x, y)


def test_kernels_are_functions_too(load_module):
    x, y, _ = arrays()
    adder_alone = load_module([adder()]).get_function("adder")
    adder_alone(x, x, y)
    np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(ValueError, match="adder: buffer 'b' has the wrong shape"):
        adder_alone(x, x[:1], y)


REGION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
)


class AnyValue(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("pad", ctypes.c_int32), ("value", ctypes.c_void_p)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]


def test_main_calls_regions_with_tensors(load_module):
    seen = []

    def region(handle, args, count, _result):
        values = ctypes.cast(args, ctypes.POINTER(AnyValue))
        for number in range(count):
            assert values[number].type == 7
            tensor = ctypes.cast(values[number].value, ctypes.POINTER(Tensor)).contents
            shape = tuple(tensor.shape[: tensor.ndim])
            seen.append((shape, list(tensor.device), list(tensor.dtype), tensor.offset))
        target = ctypes.cast(values[1].value, ctypes.POINTER(Tensor)).contents
        ctypes.cast(target.data, ctypes.POINTER(ctypes.c_float))[3] = 42.0
        return 0 if handle == 5 else 1

    callback = REGION(region)
    step = RegionStep(0, (at(ArgumentSource.INPUT, 0), at(ArgumentSource.OUTPUT, 0)))
    function = load_module([], plan(step, regions=("r",))).get_function("main")
    address = ctypes.cast(callback, ctypes.c_void_p).value
    x, y, z = arrays()
    function(Context(address, 5).address, x, y, z)
    assert y[0, 3] == 42.0
    assert seen == [(SHAPE, [1, 0], [2, 32, 1, 0], 0)] * 2


class Step(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_int64),
        ("d", ctypes.c_void_p),
    ]


class Table(ctypes.Structure):
    _fields_ = [
        ("bindings_count", ctypes.c_int64),
        ("bindings", ctypes.c_void_p),
        ("steps_count", ctypes.c_int64),
        ("steps", ctypes.c_void_p),
        ("failed_step", ctypes.c_int64),
        ("status", ctypes.c_int64),
    ]


def test_step_tables(tmp_path, make_target):
    unit = tir_codegen(TensorModule((), CallPlan((), (), (), (), 0, ())), make_target())
    (tmp_path / "lib.so").write_bytes(unit.files["lib.so"])
    library = ctypes.CDLL(str(tmp_path / "lib.so"))
    calls = []

    def function(a, b, c, d):
        calls.append((a, b, c, d))
        return c

    callback = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )(function)
    address = ctypes.cast(callback, ctypes.c_void_p)
    steps = (Step * 3)(*(Step(address, 16 + n, 32, 0 if n < 1 else 7, 48) for n in range(3)))
    bindings = (ctypes.c_int64 * 2)(0, 1)
    table = Table(1, ctypes.addressof(bindings), 3, ctypes.addressof(steps), -1, 0)
    tensor = Tensor(1000, (1, 0), 0, (2, 32, 1, 0), None, None, 24)
    args = (AnyValue * 2)(AnyValue(1, 0, 0), AnyValue(7, 0, ctypes.addressof(tensor)))
    assert library.intarsia_run_steps(ctypes.byref(table), args, 2, None) == -1
    assert calls == [(16, 1024, 0, 48), (17, 32, 7, 48)]
    assert (table.failed_step, table.status) == (1, 7)
    bindings[1] = 0
    assert library.intarsia_run_steps(ctypes.byref(table), args, 2, None) == -1
    library.intarsia_set_threads(1)


def test_a_failing_region_is_an_error_of_main(tmp_path, make_target):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    step = RegionStep(0, (at(ArgumentSource.INPUT, 0), at(ArgumentSource.OUTPUT, 0)))
    unit = tir_codegen(TensorModule((), plan(step, regions=("r",))), make_target())
    (tmp_path / "lib.so").write_bytes(unit.files["lib.so"])
    library = ctypes.CDLL(str(tmp_path / "lib.so"))
    bindings = (ctypes.c_int64 * 2)(0, 0)
    absolute = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p)  # abs(x) is not 0
    steps = (Step * 1)(Step(absolute, 3, 0, 0, 0))
    table = Table(0, ctypes.addressof(bindings), 1, ctypes.addressof(steps), -1, 0)
    walk = ctypes.cast(library.intarsia_run_steps, ctypes.c_void_p).value
    main = tvm_ffi.load_module(str(tmp_path / "lib.so")).get_function("main")
    with pytest.raises(ValueError, match="a step of a region failed"):
        main(Context(walk, ctypes.addressof(table)).address, *arrays())
    assert (table.failed_step, table.status) == (0, 3)


def test_equal_input_gives_equal_bytes(make_target):
    module = TensorModule((adder(),), plan(*STEPS))
    first, second = (tir_codegen(module, make_target()).files["lib.so"] for _ in range(2))
    assert first == second
