# SPDX-License-Identifier: Apache-2.0
"""A model as an object and a header, for a program of one's own: on this machine.

``plugins/c/tests/mcu`` runs such objects on emulated Cortex-M boards.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia import Executor, Runtime
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.tir.module import CodegenContext, TensorModule
from intarsia_ir.tir.text import parse_func
from intarsia_llvm.codegen import tir_codegen
from intarsia_llvm.program import PROGRAM, package
from intarsia_llvm.target import LlvmOptions, canonicalize, is_bare, machine
from intarsia_runtime.artifact.plan import (
    Argument,
    ArgumentSource,
    CallPlan,
    CopyStep,
    KernelStep,
    TensorSpec,
)
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError, UnsupportedError

PLAIN = {"unpacked-api": True, "interface-api": "c"}
BOARD = {"mtriple": "thumbv7em-none-eabihf", "mcpu": "cortex-m4"}
RNG = np.random.default_rng(6)
WEIGHT = RNG.normal(size=(6, 5)).astype(np.float32)
F32 = DType.FLOAT32

PROGRAM_TEXT = """
#include "net.h"
#include <stdio.h>

int main(void)
{
    static float input[12];
    static float output[10];
    static uint64_t workspace[NET_WORKSPACE_SIZE / 8 + 1];
    struct net_inputs inputs = {input};
    struct net_outputs outputs = {output};
    if (fread(input, sizeof input, 1, stdin) != 1) {
        return 2;
    }
#ifdef MAPPED
    static uint64_t bytes[64];
    struct net_constants constants;
    FILE *file = fopen("parameters/net.bin", "rb");
    if (file == 0 || fread(bytes, 1, sizeof bytes, file) == 0) {
        return 3;
    }
    net_map_constants(bytes, &constants);
    const int status = net_run(&inputs, &outputs, &constants, workspace);
#else
    const int status = net_run(&inputs, &outputs, workspace);
#endif
    return status == 0 && fwrite(output, sizeof output, 1, stdout) == 1 ? 0 : 1;
}
"""


def net() -> IRModule:
    """``sigmoid(x . W)``."""
    x = Var("x", TensorType((2, 6), F32))
    product = call(Matmul, x, constant(WEIGHT), attrs=Matmul.Attrs())
    return IRModule.from_function(Function((x,), call(OPERATORS["sigmoid"], product)))


def build(target: str = "llvm", executor: dict[str, object] | None = None, **runtime: object):
    return intarsia.build(
        net(),
        target=target,
        executor=Executor("aot", PLAIN if executor is None else executor),
        runtime=Runtime("c", runtime),
        mod_name="net",
    )


def listed(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler for the program around it")
@pytest.mark.parametrize("linked", [True, False])
def test_a_program_calls_the_model(tmp_path: Path, linked: bool) -> None:
    folder = build(link_params=linked).save(f"{tmp_path}/net/")
    weights = set() if linked else {"parameters/net.bin"}
    assert listed(folder) == {
        "CMakeLists.txt", "include/net.h", "lib/net.o", "metadata.json", *weights,
    }  # fmt: skip
    (folder / "main.c").write_text(PROGRAM_TEXT)
    mapped = () if linked else ("-DMAPPED",)
    argv = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", *mapped, "-Iinclude", "main.c"]
    subprocess.run([*argv, "lib/net.o", "-o", "program", "-lm"], cwd=folder, check=True)
    x = RNG.normal(size=(2, 6)).astype(np.float32)
    argv = [str(folder / "program")]
    run = subprocess.run(argv, input=x.tobytes(), cwd=folder, capture_output=True, check=True)
    got = np.frombuffer(run.stdout, np.float32).reshape(2, 5)
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-x @ WEIGHT)), rtol=1e-5)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc to link the object with")
def test_a_parallel_loop_runs_on_the_calling_thread(tmp_path: Path) -> None:
    """Threads are a matter of the process that loads a library: an object brings none."""
    x = Var("x", TensorType((64, 1024), F32))
    module = IRModule.from_function(Function((x,), call(OPERATORS["tanh"], x)))
    executor, runtime = Executor("aot", PLAIN), Runtime("c")
    built = intarsia.build(module, "llvm", executor=executor, runtime=runtime, mod_name="net")
    folder = built.save(f"{tmp_path}/net/")
    command = ["cc", "-shared", "-Wl,--no-undefined", "-o", "net.so", "lib/net.o", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    given = RNG.normal(size=(64, 1024)).astype(np.float32)
    made = np.zeros_like(given)
    workspace = np.zeros(built.passport.plan.workspace_bytes + 1, np.int8)
    run = ctypes.CDLL(str(folder / "net.so")).net_run
    ends = [(ctypes.c_void_p * 1)(array.ctypes.data) for array in (given, made)]
    assert run(*ends, ctypes.c_void_p(workspace.ctypes.data)) == 0
    np.testing.assert_allclose(made, np.tanh(given), rtol=1e-6)


def test_the_header_is_that_of_the_sources(tmp_path: Path) -> None:
    pytest.importorskip("intarsia_c")
    texts: list[str] = []
    for target in ("llvm", "c"):
        folder = build(target).save(f"{tmp_path}/{target}/")
        header = (folder / "include" / "net.h").read_text()
        # Each packs weights for its own tiles, and needs a workspace of its own size.
        texts.append(re.sub(r"\d+", "N", header))
    assert texts[0] == texts[1]


def test_the_passport_names_the_machine() -> None:
    artifact = build("llvm -mtriple=thumbv7em-none-eabihf -mcpu=cortex-m4", link_params=True)
    assert artifact.passport.arch == "arm"
    with pytest.raises(ArtifactError, match=f"'{PROGRAM}', which this process cannot run|is for"):
        artifact.load()


def test_the_library_format_has_a_place_for_objects(tmp_path: Path) -> None:
    with tarfile.open(build(link_params=True).save(tmp_path / "net.tar")) as archive:
        assert "./codegen/host/lib/net.o" in archive.getnames()


def test_copies_are_steps_too() -> None:
    """A plan that only copies: from an input, and a weight."""
    spec = TensorSpec("x", (4,), F32)

    def at(place: ArgumentSource) -> Argument:
        return Argument(place, 0, (4,), F32)

    steps = (
        CopyStep(at(ArgumentSource.INPUT), at(ArgumentSource.WORKSPACE)),
        CopyStep(at(ArgumentSource.CONSTANT), at(ArgumentSource.OUTPUT)),
    )
    plan = CallPlan((spec,), (TensorSpec("y", (4,), F32),), ("w",), (), 16, steps)
    constants = {"w": np.arange(4, dtype=np.float32)}
    context = CodegenContext(
        "copies", PLAIN, {"link-params": True}, freestanding=True, constants=constants
    )
    unit = package(TensorModule((), plan, context=context), canonicalize(LlvmOptions()))
    assert unit.loader == PROGRAM
    assert constants["w"].tobytes() in unit.files["lib/copies.o"]
    first, second = (
        package(TensorModule((), plan, context=context), canonicalize(LlvmOptions(**BOARD)))
        for _ in range(2)
    )
    assert first.files == second.files
    assert first.files["lib/copies.o"][:5] == b"\x7fELF\x01"


@pytest.mark.parametrize(
    ("target", "executor", "runtime", "said"),
    [
        ("llvm", {}, {}, "plain functions only"),
        ("llvm", {"unpacked-api": True, "interface-api": "packed"}, {}, "plain functions only"),
        ("llvm", PLAIN, {"system-lib": True}, "no table of packed functions"),
        ("llvm -num-threads=2", PLAIN, {}, "runs on one thread"),
    ],
)
def test_what_an_object_does_not_give_is_refused(target, executor, runtime, said) -> None:
    with pytest.raises(UnsupportedError, match=said) as error:
        build(target, executor, **runtime)
    assert error.value.hint


def test_regions_are_refused() -> None:
    plan = CallPlan((), (), (), ("npu_0",), 0, ())
    module = TensorModule((), plan, context=CodegenContext("net", PLAIN, freestanding=True))
    with pytest.raises(UnsupportedError, match="cannot call npu_0"):
        package(module, canonicalize(LlvmOptions()))


def test_no_process_loads_code_for_a_board(make_target) -> None:
    module = TensorModule((), CallPlan((), (), (), (), 0, ()))
    with pytest.raises(UnsupportedError, match="no operating system") as error:
        tir_codegen(module, make_target(**BOARD))
    assert "--runtime c" in error.value.hint


def test_a_triple_of_three_words_means_its_abi() -> None:
    """LLVM reads the words by their places: without a vendor it would pass floats as integers."""
    assert machine(LlvmOptions(**BOARD)).triple == "thumbv7em-unknown-none-eabihf"
    assert is_bare("thumbv7em-none-eabi")
    assert is_bare("thumbv7em-unknown-none-eabi")
    assert not is_bare("aarch64-unknown-linux-gnu")


EXTREMES = """\
def k(x: {dtype}[8], y: {dtype}[2] out):
  y[0] = reduce_lanes[max](x[ramp(0, 1, 8)])
  y[1] = round(x[3]) + sin(x[4])
"""


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64], ids=str)
@pytest.mark.parametrize("triple", ["thumbv7m-none-eabi", "thumbv7em-none-eabihf"])
def test_nothing_is_called_that_libraries_of_boards_lack(dtype: DType, triple: str) -> None:
    function = parse_func(EXTREMES.format(dtype=dtype))
    given, made = TensorSpec("x", (8,), dtype), TensorSpec("y", (2,), dtype)
    args = (
        Argument(ArgumentSource.INPUT, 0, (8,), dtype),
        Argument(ArgumentSource.OUTPUT, 0, (2,), dtype),
    )
    plan = CallPlan((given,), (made,), (), (), 0, (KernelStep("k", args),))
    context = CodegenContext("net", PLAIN, freestanding=True)
    module = TensorModule((function,), plan, context=context)
    unit = package(module, canonicalize(LlvmOptions(mtriple=triple)))
    called = set(re.findall(rb"\0(__\w+|[a-z]+[fl]?)(?=\0)", unit.files["lib/net.o"]))
    assert any(name.startswith(b"__aeabi_d") for name in called)  # so the names are found
    assert not called & {b"fmaximum", b"fmaximumf", b"roundeven", b"roundevenf", b"__multi3"}
