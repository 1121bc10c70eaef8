# SPDX-License-Identifier: Apache-2.0
"""The exported functions and the plain C face: plans, checks, regions, compilers, programs."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from intarsia_c.codegen import SOURCES_ONLY, c_sources, tir_codegen
from intarsia_c.plugin import lower_intrinsic, probe
from intarsia_c.target import COptions, canonicalize
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.stmt import For, ForKind, Store
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
from intarsia_runtime.errors import TargetError, ToolchainError

from .calling import STRICT, AnyValue, Tensor, described
from .conftest import NO_PLAN

F32 = DType.FLOAT32
SHAPE = (2, 8)
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


def adder():
    a, b, c = (Buffer(name, SHAPE, F32) for name in "abc")
    i, j = TirVar("i"), TirVar("j")
    value = Load(a, (i, j), F32, 1) + Load(b, (i, j), F32, 1)
    inner = For(j, IntImm(8), ForKind.VECTORIZED, Store(c, (i, j), value))
    return PrimFunc("adder", (a, b, c), 1, For(i, IntImm(2), ForKind.PARALLEL, inner))


def at(place, number):
    return Argument(place, number, SHAPE, F32)


def plan(*steps, regions=()):
    outputs = (TensorSpec("y", SHAPE, F32), TensorSpec("int", SHAPE, F32))
    return CallPlan((TensorSpec("x", SHAPE, F32),), outputs, ("layer.1/w",), regions, 64, steps)


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
MODULE = TensorModule((adder(),), plan(*STEPS))


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


def test_main_carries_out_the_plan(load_module):
    library = load_module(MODULE.functions, MODULE.plan)
    context = Context()
    x, y, z = arrays()
    assert library.call("main", x, y, z, context=context.address) == 0
    np.testing.assert_array_equal(y, 2 * x + context.weight)
    np.testing.assert_array_equal(z, context.weight)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.astype(np.float64), "'x' has the wrong element type; it must be float32"),
        (lambda x: x[:1], r"input 'x' has the wrong shape; it must be \(2, 8\)"),
        (lambda x: x.reshape(-1), "wrong shape"),
        (lambda x: np.zeros((2, 16), np.float32)[:, ::2], "not contiguous"),
        (lambda x: np.zeros(68, np.uint8)[1:65].view(np.float32).reshape(SHAPE), "not aligned"),
        (lambda x: 3, "input 'x' is not a tensor"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, make_target, change, said):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    unit = tir_codegen(MODULE, make_target(opt_level=0, cflags=STRICT))
    (tmp_path / "lib.so").write_bytes(unit.files["lib.so"])
    module = tvm_ffi.load_module(str(tmp_path / "lib.so"))
    x, y, z = arrays()
    with pytest.raises(Exception, match=said):
        module.get_function("main")(Context().address, change(x), y, z)
    with pytest.raises(ValueError, match="wrong number of arguments"):
        module.get_function("main")(Context().address, x, y)
    with pytest.raises(ValueError, match="adder: buffer 'b' has the wrong shape"):
        module.get_function("adder")(x, x[:1], y)
    assert not y.any()
    module.get_function("adder")(x, x, y)
    np.testing.assert_array_equal(y, 2 * x)


REGION = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p
)


def test_main_calls_regions_with_tensors(load_module):
    seen = []

    def region(handle, args, count, _result):
        values = ctypes.cast(args, ctypes.POINTER(AnyValue))
        for number in range(count):
            assert values[number].type == 7
            tensor = ctypes.cast(values[number].value, ctypes.POINTER(Tensor)).contents
            shape = tuple((ctypes.c_int64 * tensor.ndim).from_address(tensor.shape))
            seen.append((shape, list(tensor.device), tensor.code, tensor.bits, tensor.lanes))
        target = ctypes.cast(values[1].value, ctypes.POINTER(Tensor)).contents
        ctypes.cast(target.data, ctypes.POINTER(ctypes.c_float))[3] = 42.0
        return 0 if handle == 5 else 1

    callback = REGION(region)
    first = RegionStep(0, (at(ArgumentSource.INPUT, 0), at(ArgumentSource.OUTPUT, 0)))
    second = RegionStep(0, (at(ArgumentSource.CONSTANT, 0), at(ArgumentSource.WORKSPACE, 0)))
    mixed = plan(first, *STEPS[:1], second, STEPS[2], regions=("r",))
    library = load_module([adder()], mixed)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    x, y, z = arrays()
    assert library.call("main", x, y, z, context=Context(address, 5).address) == 0
    assert y[0, 3] == 42.0
    assert z.any()
    assert seen == [(SHAPE, [1, 0], 2, 32, 1)] * 4
    assert library.call("main", x, y, z, context=Context(address, 6).address) == -1


class Step(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p),
        ("a", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("c", ctypes.c_int64),
        ("d", ctypes.c_void_p),
    ]


def test_step_tables(load_module):
    calls = []

    def function(a, b, c, d):
        calls.append((a, b, c, d))
        return c

    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
    )
    callback = kind(function)
    address = ctypes.cast(callback, ctypes.c_void_p)
    steps = (Step * 3)(*(Step(address, 16 + n, 32, 0 if n < 1 else 7, 48) for n in range(3)))
    bindings = (ctypes.c_int64 * 2)(0, 1)
    table = (ctypes.c_int64 * 6)(1, ctypes.addressof(bindings), 3, ctypes.addressof(steps), -1, 0)
    tensor, held = described(np.zeros(4, np.float32))
    tensor.data, tensor.offset = 1000, 24
    args = (AnyValue * 2)(AnyValue(1, 0, 0), AnyValue(7, 0, ctypes.addressof(tensor)))
    walk = load_module().library.intarsia_run_steps
    assert walk(table, args, 2, None) == -1
    assert calls == [(16, 1024, 0, 48), (17, 32, 7, 48)]
    assert (table[4], table[5]) == (1, 7)
    bindings[1] = 0
    assert walk(table, args, 2, None) == -1
    assert held


PROGRAM = """
#include "model.h"
#include <stdio.h>

static const float weight[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

int main(void)
{
    static double workspace[(MODEL_WORKSPACE_SIZE + 7) / 8];
    float x[16], y[16], z[16];
    struct model_inputs inputs;
    struct model_outputs outputs;
    struct model_constants constants;
    for (int i = 0; i < 16; ++i) {
        x[i] = 10.0f;
    }
    inputs.x = x;
    outputs.y = y;
    outputs.int_1 = z;
    constants.layer_1_w = weight;
    if (model_run(&inputs, &outputs, &constants, workspace) != 0) {
        return 1;
    }
    printf("%g %g %g", (double)y[0], (double)y[15], (double)z[7]);
    return 0;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_program_of_ones_own_runs_the_model(tmp_path, compiler):
    """The sources alone, with every warning an error, in C and with the header in C++."""
    for name, text in c_sources(MODULE, COptions()).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "program.c").write_text(PROGRAM)
    argv = [compiler, "-std=c99", "-O2", *STRICT, "program.c", "model.c", "-o", "program", "-lm"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    run = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert run.stdout == "20 35 7"
    (tmp_path / "header.cpp").write_text('#include "model.h"\n')
    subprocess.run([compiler, *STRICT, "-c", "header.cpp"], cwd=tmp_path, check=True)


def test_names_in_the_header():
    text = c_sources(MODULE, COptions(prefix="Kws"))["model.h"]
    assert "int Kws_run(const struct Kws_inputs *inputs," in text
    assert "#define KWS_WORKSPACE_SIZE 64" in text
    assert "    float *int_1; /* float32[2, 8] */" in text
    assert "    const float *layer_1_w; /* float32[2, 8] */" in text
    nothing = c_sources(TensorModule((), NO_PLAN), COptions())["model.h"]
    assert "struct model_inputs {\n    char none;\n};" in nothing
    assert "constants" not in nothing
    step = RegionStep(0, (at(ArgumentSource.INPUT, 0), at(ArgumentSource.OUTPUT, 0)))
    cut = c_sources(TensorModule((), plan(step, regions=("r",))), COptions())["model.h"]
    assert "_run(" not in cut


def test_an_odd_tensor_name_is_quoted(load_module):
    spec = TensorSpec('a"\\\n??/é', SHAPE, F32)
    copy = CopyStep(at(ArgumentSource.INPUT, 0), at(ArgumentSource.OUTPUT, 0))
    library = load_module((), CallPlan((spec,), (spec,), (), (), 0, (copy,)))
    x, y, _ = arrays()
    assert library.call("main", x, y, context=Context().address) == 0
    np.testing.assert_array_equal(x, y)


def test_equal_input_gives_equal_bytes(make_target):
    first, second = (tir_codegen(MODULE, make_target()) for _ in range(2))
    assert dict(first.files) == dict(second.files)
    assert sorted(first.files) == ["lib.so", "model.c", "model.h", "model_entry.c"]


@pytest.mark.parametrize("options", [{"freestanding": True}, {"mtriple": "thumbv7em-none-eabi"}])
def test_for_another_machine_there_are_sources_only(make_target, options):
    unit = tir_codegen(MODULE, make_target(cc="/nowhere/cc", **options))
    assert sorted(unit.files) == ["model.c", "model.h", "model_entry.c"]
    assert unit.loader == SOURCES_ONLY


def test_failing_compilers(make_target, tmp_path):
    with pytest.raises(ToolchainError, match="'/nowhere/cc' is not installed") as missing:
        tir_codegen(MODULE, make_target(cc="/nowhere/cc"))
    assert missing.value.exit_code == 6
    with pytest.raises(ToolchainError, match=r"(?s)'cc' failed.*no-such-flag"):
        tir_codegen(MODULE, make_target(cflags=("--no-such-flag",)))
    (tmp_path / "text").write_text("no program")
    with pytest.raises(ToolchainError, match="did not run"):
        tir_codegen(MODULE, make_target(cc=str(tmp_path / "text")))
    with pytest.raises(ToolchainError, match="wrote no library"):
        tir_codegen(MODULE, make_target(cc="true"))


def test_features_of_the_processor_are_declared(make_target):
    assert tir_codegen(MODULE, make_target()).cpu_features == ()
    wide = tir_codegen(MODULE, make_target(cflags=("-mavx2",))).cpu_features
    assert {"avx", "avx2"} <= set(wide)


def test_options_are_checked():
    with pytest.raises(TargetError, match="'9x' cannot start a name"):
        canonicalize(COptions(prefix="9x"))
    with pytest.raises(TargetError, match="-cc is empty"):
        canonicalize(COptions(cc=""))


def test_probe_and_rules(make_target):
    assert probe(make_target()).usable
    gone = probe(make_target(cc="/nowhere/cc"))
    assert not gone.usable
    assert "not installed" in gone.detail
    assert {rule.value for rule in lower_intrinsic(make_target())} == {
        "erf",
        "exp",
        "exp10",
        "rsqrt",
        "sigmoid",
        "tanh",
    }
