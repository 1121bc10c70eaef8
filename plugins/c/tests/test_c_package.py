# SPDX-License-Identifier: Apache-2.0
"""Runtime ``c``: sources that become part of a program, without a warning and without a heap."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys

import numpy as np
import pytest

import intarsia
from intarsia import Executor, Runtime
from intarsia_c.package import name_after_model, package
from intarsia_c.target import COptions, this_machine
from intarsia_ir.tir.module import CodegenContext, TensorModule
from intarsia_loops.codegen.c_interface import identifier
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
from intarsia_runtime.errors import UnsupportedError

from .calling import STRICT, AnyValue, described, exact_session
from .made_models import quantized, saved, separable
from .test_c_main import MODULE, SHAPE, at, plan

PLAIN = {"unpacked-api": True, "interface-api": "c"}
CFLAGS = ("-std=c99", "-O1", *STRICT)


def compilers():
    found = [[name] for name in ("gcc", "clang") if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        found.append([sys.executable, "-m", "ziglang", "cc"])
    return found


MAIN = """
#include "{name}.h"
#include <stdio.h>

int main(void)
{{
    static float input[{count}];
    static float output[{results}];
    static uint64_t workspace[{name_upper}_WORKSPACE_SIZE / 8 + 1];
    struct {name}_inputs inputs;
    struct {name}_outputs outputs;
    inputs.x = input;
    outputs.y = output;
    if (fread(input, sizeof input, 1, stdin) != 1) {{
        return 2;
    }}
    if ({name}_run(&inputs, &outputs, workspace) != 0) {{
        return 1;
    }}
    return fwrite(output, sizeof output, 1, stdout) == 1 ? 0 : 3;
}}
"""


def build_folder(folder, path, executor=None, **runtime):
    artifact = intarsia.build(
        path, target="c", executor=Executor("aot", executor or PLAIN),
        runtime=Runtime("c", runtime), mod_name=path.stem,
    )  # fmt: skip
    return artifact.save(f"{folder}/"), artifact


@pytest.mark.parametrize("make", [separable, quantized])
@pytest.mark.parametrize("compiler", compilers(), ids=lambda argv: argv[-1])
def test_a_program_around_the_folder(tmp_path, make, compiler):
    """The struct of the model, weights in the code, memory that the program gives: no heap."""
    path, x = saved(tmp_path, make)
    executor = PLAIN | {"workspace-byte-alignment": 8, "constant-byte-alignment": 16}
    folder, artifact = build_folder(tmp_path / "out", path, executor, link_params=True)
    name = path.stem
    count, results = (
        s[0].bytes // 4 for s in (artifact.passport.plan.inputs, artifact.passport.plan.outputs)
    )
    text = MAIN.format(name=name, name_upper=name.upper(), count=count, results=results)
    (folder / "main.c").write_text(text)
    argv = [
        *compiler,
        *CFLAGS,
        "-Iinclude",
        "main.c",
        *sorted(f"src/{f.name}" for f in (folder / "src").iterdir()),
    ]
    subprocess.run([*argv, "-o", "program", "-lm"], cwd=folder, check=True)
    run = subprocess.run([folder / "program"], input=x.tobytes(), capture_output=True, check=True)
    session = exact_session(str(path))
    (want,) = session.run(None, {"x": x})
    got = np.frombuffer(run.stdout, np.float32).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not shutil.which("nm"), reason="binutils are not installed: nm lists symbols")
def test_nothing_is_needed_but_the_mathematics(tmp_path):
    path, _ = saved(tmp_path, quantized)
    folder, _ = build_folder(tmp_path / "out", path, {}, link_params=True, system_lib=True)
    argv = ["cc", *CFLAGS, "-ffreestanding", "-Iinclude", "-c", "-o", "model.o", "src/quantized.c"]
    subprocess.run(argv, cwd=folder, check=True)
    listed = subprocess.run(
        ["nm", "-u", "model.o"], cwd=folder, capture_output=True, text=True, check=True
    )
    needed = {line.split()[-1] for line in listed.stdout.splitlines()}
    # A compiler may turn loops into calls of mem*, which every freestanding one brings along.
    assert needed - {"memset", "memcpy", "memmove"} <= {"quantized_parameters", "rintf"}
    includes = [
        line
        for line in (folder / "src" / "quantized.c").read_text().splitlines()
        if "#include <" in line
    ]
    # Compilers for x86 bring their intrinsics along.
    intrinsics = ["#include <immintrin.h>"] if this_machine() == "x86_64" else []
    assert includes == ["#include <math.h>", *intrinsics]


PACKED_NAMES = ("kws_packed", "kws_packed_adder")


class Row(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("call", ctypes.c_void_p)]


def packed_library(folder, *, linked, unpacked=False):
    weight = np.arange(16, dtype=np.float32).reshape(SHAPE)
    context = CodegenContext(
        "kws",
        {
            "kind": "aot",
            "unpacked-api": unpacked,
            "interface-api": "packed",
            "workspace-byte-alignment": 32,
            "constant-byte-alignment": 64,
        },
        {"kind": "c", "system-lib": True, "link-params": linked},
        freestanding=True,
        constants={"layer.1/w": weight},
    )
    unit = package(TensorModule(MODULE.functions, MODULE.plan, "main", context), COptions())
    for name, content in unit.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    sources = sorted(name for name in unit.files if name.endswith(".c"))
    argv = ["cc", *CFLAGS, "-fPIC", "-Iinclude", "-shared", "-o", "kws.so", *sources]
    subprocess.run(argv, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kws.so")), weight, unit


def call(function, *arrays, first=()):
    held = [described(array) for array in arrays]
    values = [AnyValue(1, 0, address) for address in first]
    values += [AnyValue(7, 0, ctypes.addressof(tensor)) for tensor, _ in held]
    return function(None, (AnyValue * len(values))(*values), len(values), None)


@pytest.mark.parametrize("linked", [True, False])
def test_packed_functions(tmp_path, linked):
    library, weight, unit = packed_library(tmp_path, linked=linked)
    x, y, z = (np.full(SHAPE, n, np.float32) for n in (10, 0, 0))
    first = ()
    if not linked:
        constants = (ctypes.c_void_p * 1)()
        blob = np.frombuffer(unit.files["parameters/kws.bin"], np.uint8).copy()
        library.kws_map_constants(ctypes.c_void_p(blob.ctypes.data), constants)
        first = (ctypes.addressof(constants),)
    assert call(library.kws_packed, x, y, z, first=first) == 0
    np.testing.assert_array_equal(y, 2 * x + weight)
    np.testing.assert_array_equal(z, weight)
    assert call(library.kws_packed, x, y[:1], z, first=first) == -1
    library.kws_last_error.restype = ctypes.c_char_p
    assert library.kws_last_error() == b"output 'y' has the wrong shape; it must be (2, 8)"
    table = (Row * 3).in_dll(library, "kws_system_lib")
    assert tuple(row.name for row in table) == (*(n.encode() for n in PACKED_NAMES), None)
    assert call(library.kws_packed_adder, x, x, y) == 0
    np.testing.assert_array_equal(y, 2 * x)


def test_unpacked_kernels_have_no_packed_functions(tmp_path):
    library, _, _ = packed_library(tmp_path, linked=True, unpacked=True)
    assert library.kws_packed
    with pytest.raises(AttributeError):
        _ = library.kws_packed_adder


ODD = {
    "float": np.array([1.5, -0.0, np.nan, np.inf, 1e-45, -1e38], np.float32),
    "double": np.array([np.pi, -np.inf, 5e-324]),
    "half": np.array([1.5, np.nan, 6e-8], np.float16),
    "byte": np.array([-128, 127, 0], np.int8),
    "bool": np.array([True, False]),
    "int": np.array([-(2**31), 2**31 - 1], np.int32),
    "long": np.array([-(2**63), 2**63 - 1], np.int64),
    "ubyte": np.arange(40, dtype=np.uint8),
    "none": np.zeros(0, np.float32),
}


@pytest.mark.parametrize("key", ODD)
def test_weights_are_exact(tmp_path, key):
    """Each element type through its C array, bit by bit, by way of a copy to an output."""
    array = ODD[key]
    spec = TensorSpec("y", array.shape, DType(array.dtype.name))
    step = CopyStep(
        Argument(ArgumentSource.CONSTANT, 0, spec.shape, spec.dtype),
        Argument(ArgumentSource.OUTPUT, 0, spec.shape, spec.dtype),
    )
    context = CodegenContext(
        "kws", {"interface-api": "c", "unpacked-api": True, "constant-byte-alignment": 64},
        {"link-params": True}, freestanding=True, constants={key: array},
    )  # fmt: skip
    module = TensorModule((), CallPlan((), (spec,), (key,), (), 0, (step,)), "main", context)
    for name, content in package(module, COptions()).files.items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    argv = [
        "cc",
        *CFLAGS,
        "-fPIC",
        "-Iinclude",
        "-shared",
        "-o",
        "kws.so",
        "src/kws.c",
        "src/kws_parameters.c",
    ]
    subprocess.run(argv, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "kws.so"))
    got = np.zeros_like(array)
    outputs = (ctypes.c_void_p * 1)(got.ctypes.data)
    assert library.kws_run(None, outputs, None) == 0
    assert got.tobytes() == array.tobytes()
    address = ctypes.c_void_p.in_dll(library, "kws_parameters").value
    assert key == "none" or address % 64 == 0


def test_regions_are_refused():
    step = RegionStep(0, (at(ArgumentSource.INPUT, 0), at(ArgumentSource.OUTPUT, 0)))
    module = TensorModule(
        (), plan(step, regions=("npu_0",)), "main", CodegenContext(freestanding=True)
    )
    with pytest.raises(
        UnsupportedError, match="cannot call npu_0: the accelerator gives no C sources"
    ) as error:
        package(module, COptions())
    assert "runtime 'cpp'" in error.value.hint


REGION = b"""
#include "npu_0.h"
#include "intarsia_packed.h"
int32_t npu_0_call(void *handle, const struct intarsia_value *args, int32_t n,
                   struct intarsia_value *result)
{
    const struct intarsia_tensor *const from = args[0].value.pointer;
    const struct intarsia_tensor *const to = args[1].value.pointer;
    const float *const x = from->data;
    float *const y = to->data;
    (void)result;
    for (int64_t i = 0; i < from->shape[0] * from->shape[1]; ++i) {
        y[i] = x[i] * *(const float *)handle;
    }
    return n == 2 ? 0 : 1;
}
"""


@pytest.mark.parametrize("executor", [PLAIN, {"interface-api": "packed"}])
def test_regions_with_sources_are_called(tmp_path, executor):
    """The region is given its own pointer; weights and workspace are the host's as ever."""
    sources = {"npu_0": {"npu_0.c": REGION, "npu_0.h": b"#include <stdint.h>\n"}}
    context = CodegenContext(
        "kws", executor, {"link-params": True}, freestanding=True, sources=sources,
        constants={"layer.1/w": np.arange(16, dtype=np.float32).reshape(SHAPE)},
    )  # fmt: skip
    steps = (
        KernelStep(
            "adder",
            (
                at(ArgumentSource.INPUT, 0),
                at(ArgumentSource.CONSTANT, 0),
                at(ArgumentSource.WORKSPACE, 0),
            ),
        ),
        RegionStep(0, (at(ArgumentSource.WORKSPACE, 0), at(ArgumentSource.OUTPUT, 0))),
        CopyStep(at(ArgumentSource.CONSTANT, 0), at(ArgumentSource.OUTPUT, 1)),
    )
    module = TensorModule(MODULE.functions, plan(*steps, regions=("npu_0",)), "main", context)
    for name, content in package(module, COptions()).files.items():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    assert "src/kws_npu_0.c)" in (tmp_path / "CMakeLists.txt").read_text()
    made = [str(path.relative_to(tmp_path)) for path in sorted((tmp_path / "src").iterdir())]
    argv = ["cc", *CFLAGS, "-fPIC", "-Iinclude", "-shared", "-o", "kws.so", *made]
    subprocess.run(argv, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "kws.so"))
    x, factor = np.ones(SHAPE, np.float32), ctypes.c_float(3.0)
    y, copied = np.zeros(SHAPE, np.float32), np.zeros(SHAPE, np.float32)
    workspace = np.zeros(16, np.float32)
    inputs = (ctypes.c_void_p * 1)(x.ctypes.data)
    outputs = (ctypes.c_void_p * 2)(y.ctypes.data, copied.ctypes.data)
    regions = (ctypes.c_void_p * 1)(ctypes.addressof(factor))
    if executor is PLAIN:
        memory = ctypes.c_void_p(workspace.ctypes.data)
        assert library.kws_run(inputs, outputs, regions, memory) == 0
    else:
        held = [described(array) for array in (x, y, copied)]
        tensors = [AnyValue(7, 0, ctypes.addressof(tensor)) for tensor, _ in held]
        values = (AnyValue * 4)(AnyValue(4, 0, ctypes.addressof(regions)), *tensors)
        assert library.kws_packed(None, values, 4, None) == 0
    np.testing.assert_array_equal(y, 3 * (1 + np.arange(16).reshape(SHAPE)))
    np.testing.assert_array_equal(copied, np.arange(16).reshape(SHAPE))


def test_names_of_a_region_are_named_after_the_model():
    text = (
        '#include "npu_1.h"\nint npu_1_call(int n[NPU_1_SIZE], int npu_10, int an_npu_1, x.npu_1);'
    )
    assert name_after_model(text, "npu_1", "net") == (
        '#include "net_npu_1.h"\n'
        "int net_npu_1_call(int n[NET_NPU_1_SIZE], int npu_10, int an_npu_1, x.net_npu_1);"
    )


def test_names():
    assert [identifier(n) for n in ("kws", "a-b.c", "1x", "_x")] == [
        "kws",
        "a_b_c",
        "model_1x",
        "model__x",
    ]
    steps = (
        KernelStep(
            "adder",
            (
                at(ArgumentSource.INPUT, 0),
                at(ArgumentSource.INPUT, 0),
                at(ArgumentSource.OUTPUT, 0),
            ),
        ),
    )
    module = TensorModule(
        MODULE.functions,
        plan(*steps),
        "main",
        CodegenContext(
            "my model",
            {"interface-api": "c"},
            freestanding=True,
            constants={"layer.1/w": np.zeros(16, np.float32)},
        ),
    )
    assert "include/my_model.h" in package(module, COptions()).files
    assert "include/Kws.h" in package(module, COptions(prefix="Kws")).files


def test_the_tar_is_the_same_twice_and_builds(tmp_path):
    path, _ = saved(tmp_path, separable)
    artifacts = [build_folder(tmp_path / f"out{n}", path, link_params=True)[1] for n in range(2)]
    first, second = (a.save(tmp_path / f"{n}.tar") for n, a in enumerate(artifacts))
    assert first.read_bytes() == second.read_bytes()
    (tmp_path / "tar").mkdir()
    subprocess.run(["tar", "-xf", str(first)], cwd=tmp_path / "tar", check=True)
    host = tmp_path / "tar" / "codegen" / "host"
    argv = ["cc", *CFLAGS, "-Iinclude", "-c", "-o", "model.o", "src/separable.c"]
    subprocess.run(argv, cwd=host, check=True)
    graph = (tmp_path / "tar" / "src" / "separable.txt").read_text()
    assert graph.startswith('set CompositeTarget "c"')


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_cmake_builds_the_folder(tmp_path):
    path, _ = saved(tmp_path, separable)
    folder, _ = build_folder(tmp_path / "out", path, link_params=True)
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", folder, "-B", build], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
    assert (build / "libseparable.a").exists()
