# SPDX-License-Identifier: Apache-2.0
"""Code for RISC-V and Cortex-M, linked by the extra that needs no system compiler, and emulated.

There is no C library for the emulated program: it is a kernel, and a few lines that call it.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.tir.module import TensorModule
from intarsia_ir.tir.text import parse_func
from intarsia_llvm.codegen import llvm_text
from intarsia_llvm.link import link_shared
from intarsia_llvm.optimize import compile_object
from intarsia_llvm.target import LlvmOptions, canonicalize, host_triple, machine
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.dtype import DType

TRIPLE = "riscv64-linux-gnu"
FEATURES = ("+m", "+a", "+f", "+d", "+c")
ZIG = (sys.executable, "-m", "ziglang")
MACHINE_FIELD, RISCV, ARM = slice(18, 20), 243, 40  # in an ELF header
KERNEL = """\
def k(x: float32[40], y: float32[40] out):
  for o in serial(5):
    for i in vectorized(8):
      y[(o * 8) + i] = tanh(x[(o * 8) + i])
"""
PROGRAM = """\
typedef struct { int type, pad; void *value; } Any;
typedef struct {
    void *data; int device, number, rank; unsigned char code, bits; unsigned short lanes;
    long *shape, *strides, offset;
} Tensor;
int __tvm_ffi_k(void *self, const Any *args, int count, Any *result);
static const float x[40] = {%(given)s}, wanted[40] = {%(wanted)s};
static float y[40];
static long shape[1] = {40}, strides[1] = {1};
static Tensor tensors[2] = {
    {(void *)x, 1, 0, 1, 2, 32, 1, shape, strides, 0}, {y, 1, 0, 1, 2, 32, 1, shape, strides, 0}};
void _start(void)
{
    __asm__ volatile(".option push; .option norelax; la gp, __global_pointer$; .option pop");
    Any args[2] = {{7, 0, &tensors[0]}, {7, 0, &tensors[1]}}, result = {0, 0, 0};
    long wrong = __tvm_ffi_k(0, args, 2, &result) ? 99 : 0;
    for (int i = 0; i < 40; i++) {
        float apart = y[i] - wanted[i];
        wrong += !(apart < 1e-6f && apart > -1e-6f);
    }
    register long code __asm__("a0") = wrong;
    register long number __asm__("a7") = 93;
    __asm__ volatile("ecall" : : "r"(code), "r"(number));
    for (;;) { }
}
"""

zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None,
    reason="ziglang is not installed (the extra intarsia-llvm[linker])",
)


def object_code(*, triple: str, features: tuple[str, ...] = ()) -> bytes:
    """The kernel as an object file."""
    options = canonicalize(LlvmOptions(mtriple=triple, mattr=features))
    model = machine(options)
    module = TensorModule((parse_func(KERNEL),), CallPlan((), (), (), (), 0, ()))
    return compile_object(llvm_text(module, options), model, 3)


@pytest.mark.parametrize(
    ("triple", "features", "bits", "number"),
    [
        (TRIPLE, FEATURES, 64, RISCV),
        ("thumbv7em-none-eabihf", (), 32, ARM),
        ("thumbv6m-none-eabi", (), 32, ARM),
    ],
)
def test_objects_are_for_the_machine(
    triple: str, features: tuple[str, ...], bits: int, number: int
) -> None:
    code = object_code(triple=triple, features=features)
    assert code[:5] == b"\x7fELF" + bytes([bits // 32])
    assert int.from_bytes(code[MACHINE_FIELD], "little") == number


@zig
def test_libraries_are_linked_without_a_system_compiler() -> None:
    x = Var("x", TensorType((2, 3), DType.FLOAT32))
    module = IRModule.from_function(Function((x,), call(OPERATORS["tanh"], x)))
    assert intarsia.build(module, f"llvm -mtriple={TRIPLE}").passport.arch == "riscv64"
    linked = link_shared(
        [object_code(triple="aarch64-linux-gnu")], "aarch64-linux-gnu", linker=(*ZIG, "ld.lld")
    )
    assert int.from_bytes(linked[MACHINE_FIELD], "little") == 183


@zig
def test_this_machines_libraries_are_too(tmp_path: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    triple = host_triple()
    library = link_shared([object_code(triple=triple)], triple, linker=(*ZIG, "ld.lld"))
    (tmp_path / "lib.so").write_bytes(library)
    x = np.linspace(-3, 3, 40, dtype=np.float32)
    got = np.zeros_like(x)
    tvm_ffi.load_module(str(tmp_path / "lib.so")).get_function("k")(x, got)
    np.testing.assert_allclose(got, np.tanh(x), rtol=1e-6)


@zig
def test_an_emulated_machine_computes_the_same(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-riscv64") or shutil.which("qemu-riscv64-static")
    if emulator is None:
        pytest.skip("qemu-riscv64 is not installed (Debian's qemu-user)")
    x = np.linspace(-3, 3, 40, dtype=np.float32)
    texts = {
        "given": ", ".join(f"{value!r}f" for value in x.tolist()),
        "wanted": ", ".join(f"{value!r}f" for value in np.tanh(x).tolist()),
    }
    (tmp_path / "k.o").write_bytes(object_code(triple=TRIPLE, features=FEATURES))
    (tmp_path / "start.c").write_text(PROGRAM % texts)
    flags = ("-target", "riscv64-freestanding-none", "-mcpu=baseline_rv64", "-nostdlib", "-static")
    command = [*ZIG, "cc", *flags, "-fno-sanitize=all", "-O1", "-o", "run", "start.c", "k.o"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-2000:]
    ran = subprocess.run([emulator, str(tmp_path / "run")], timeout=60, check=False)
    assert ran.returncode == 0, "elements that differ, or 99 for an error"
