# SPDX-License-Identifier: Apache-2.0
"""Which machines get a library, and what a library may call."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import intarsia
from intarsia.host.host import Host
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_llvm import codegen
from intarsia_llvm.link import link, link_shared, undefined_symbols
from intarsia_llvm.optimize import compile_object
from intarsia_llvm.target import LlvmOptions, host_triple, machine
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TargetError, ToolchainError, UnsupportedError

CALLS = """\
declare extern_weak void @maybe()
declare float @fmodf(float, float)
declare void @absent_one()
@weak = global ptr @maybe
define float @f(float %x) {
  call void @absent_one()
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
    model = machine(LlvmOptions())
    code = compile_object(CALLS, model, 1)
    assert undefined_symbols(link_shared([code], host_triple())) == {"absent_one", "fmodf"}
    with pytest.raises(ToolchainError, match="calls absent_one, which no system library") as error:
        link([code], model)
    assert "-mattr" in error.value.hint


def test_a_library_names_the_system_libraries_that_it_calls(tmp_path: Path) -> None:
    model = machine(LlvmOptions())
    text = CALLS.replace("  call void @absent_one()\n", "")
    linked = link([compile_object(text, model, 1)], model)
    assert b"\0libm.so.6\0" in linked.files["lib.so"]
    assert b"\0libc.so.6\0" not in linked.files["lib.so"]
    (tmp_path / "lib.so").write_bytes(linked.files["lib.so"])
    function = ctypes.CDLL(str(tmp_path / "lib.so")).f
    function.restype, function.argtypes = ctypes.c_float, (ctypes.c_float,)
    assert function(5.5) == 1.5


def test_a_risc_v_machine_passes_floats_in_registers() -> None:
    model = machine(LlvmOptions(mtriple="riscv64-linux-gnu"))
    code = compile_object("define double @f(double %x) { ret double %x }", model, 1)
    flags = int.from_bytes(code[48:52], "little")  # e_flags
    assert flags & 0x7 == 0x5, "compressed instructions, double-float ABI"
    assert model.cpu_features == ("m", "a", "f", "d", "c")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-mtriple=riscv64-linux-gnu -mcpu=sifive-e31", "RV64 target requires an RV64 CPU"),
        ("-mtriple=riscv64-linux-gnu -mattr=+zcmp", "'zcmp' extension is incompatible with"),
    ],
)
def test_what_llvm_would_end_the_process_for_is_an_error(options: str, said: str) -> None:
    with pytest.raises(TargetError, match=said) as error:
        Host(env={"INTARSIA_PLUGINS": "llvm"}).target(f"llvm {options}")
    assert "--values mcpu" in error.value.hint
