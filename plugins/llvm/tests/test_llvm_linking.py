# SPDX-License-Identifier: Apache-2.0
"""Which machines get a library, and what a library may call."""

from __future__ import annotations

import pytest

import intarsia
from intarsia.dtype import DType
from intarsia.errors import ToolchainError, UnsupportedError
from intarsia.ir.expr import Function, Var, call
from intarsia.ir.module import IRModule
from intarsia.ir.types import TensorType
from intarsia.ops import OPERATORS
from intarsia_llvm import codegen
from intarsia_llvm.link import check_symbols, link_shared, undefined_symbols
from intarsia_llvm.optimise import compile_object
from intarsia_llvm.target import LlvmOptions, host_triple, machine

CALLS = """\
declare extern_weak void @maybe()
declare float @fmodf(float, float)
declare void @absent_one()
define float @f(float %x) {
  call void @absent_one()
  call void @maybe()
  %y = call float @fmodf(float %x, float 2.0)
  ret float %y
}
"""


def tanh() -> IRModule:
    x = Var("x", TensorType((2, 3), DType.FLOAT32))
    return IRModule.from_function(Function((x,), call(OPERATORS["tanh"], x)))


@pytest.mark.parametrize(
    "options",
    [
        "-mtriple=wasm32-unknown-unknown",
        "-mtriple=x86_64-apple-darwin -mcpu=x86-64",
        "-mtriple=x86_64-pc-windows-msvc -mcpu=x86-64",
        "-mtriple=x86_64-unknown-linux-gnux32 -mcpu=x86-64",
        "-mtriple=armv7-unknown-linux-gnueabihf",
    ],
)
def test_a_machine_without_libraries_is_refused_before_llvm_compiles(
    options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codegen, "compile_objects", lambda *_, **__: pytest.fail("compiled"))
    with pytest.raises(UnsupportedError, match="64-bit Linux on x86_64, aarch64") as error:
        intarsia.build(tanh(), f"llvm {options}")
    assert error.value.exit_code == 4
    assert "--runtime c" in error.value.hint


def test_a_library_that_calls_what_no_system_has_is_refused() -> None:
    triple = host_triple()
    library = link_shared([compile_object(CALLS, machine(LlvmOptions()), 1)], triple)
    assert undefined_symbols(library) == {"absent_one", "fmodf"}
    with pytest.raises(ToolchainError, match="calls absent_one, which no system library") as error:
        check_symbols(library, triple)
    assert "-mattr" in error.value.hint


def test_a_risc_v_machine_passes_floats_in_registers() -> None:
    model = machine(LlvmOptions(mtriple="riscv64-linux-gnu"))
    code = compile_object("define double @f(double %x) { ret double %x }", model, 1)
    flags = int.from_bytes(code[48:52], "little")  # e_flags
    assert flags & 0x7 == 0x5, "compressed instructions, double-float ABI"
    assert model.cpu_features == ("m", "a", "f", "d", "c")
