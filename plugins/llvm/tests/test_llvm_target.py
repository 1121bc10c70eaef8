# SPDX-License-Identifier: Apache-2.0
"""Options, what they mean for code, and the linker."""

from __future__ import annotations

import platform

import pytest

from intarsia_ir.tir.module import TensorModule
from intarsia_llvm import link
from intarsia_llvm.link import find_linker, link_shared
from intarsia_llvm.optimize import compile_assembly, compile_object
from intarsia_llvm.processors import check_processor
from intarsia_llvm.target import (
    LlvmOptions,
    canonicalize,
    host_cpu,
    host_triple,
    machine,
    model_name,
)
from intarsia_runtime.errors import TargetError, ToolchainError

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="asks for this x86 machine")


@on_x86
def test_native_becomes_what_the_machine_is():
    options = canonicalize(LlvmOptions())
    assert options.mcpu == "x86-64"
    assert options.mattr
    assert canonicalize(options) == options


AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: {}\nmodel\t\t: {}\n\nprocessor: 1"


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (AMD.format(25, 1), "znver3"),
        (AMD.format(25, 0x11), "znver4"),
        (AMD.format(26, 2), "znver5"),
        (AMD.format(23, 0x31), None),
        (AMD.format("?", 1), None),
        (AMD.format(6, 0x8F).replace("AuthenticAMD", "GenuineIntel"), "sapphirerapids"),
        (AMD.format(6, 0x55).replace("AuthenticAMD", "GenuineIntel"), None),
        ("", None),
    ],
)
def test_the_kernel_names_common_processors(cpuinfo, name):
    assert model_name(cpuinfo) == name


@on_x86
def test_llvm_agrees_with_the_kernel_about_this_machine(monkeypatch):
    ours = host_cpu()
    monkeypatch.setattr("intarsia_llvm.target.model_name", lambda cpuinfo: None)
    host_cpu.cache_clear()
    try:
        assert host_cpu() == ours
    finally:
        host_cpu.cache_clear()


def test_features_decide_the_vectors():
    assert machine(LlvmOptions(mcpu="x86-64", mtriple="x86_64-linux-gnu")).lanes == 4
    assert machine(LlvmOptions(mcpu="haswell", mtriple="x86_64-linux-gnu")).lanes == 8
    wide = machine(LlvmOptions(mcpu="skylake-avx512", mtriple="x86_64-linux-gnu"))
    assert (wide.lanes, wide.registers) == (16, 32)
    assert "avx512f" in wide.cpu_features
    narrow = LlvmOptions(mcpu="skylake-avx512", mattr=("-avx512f",), mtriple="x86_64-linux-gnu")
    assert machine(narrow).lanes == 8
    assert "avx512f" not in machine(narrow).cpu_features
    dots = machine(LlvmOptions(mcpu="alderlake", mtriple="x86_64-linux-gnu"))
    assert (dots.lanes, dots.dot, "avx_vnni" in dots.cpu_features) == (8, True, True)
    assert not machine(LlvmOptions(mcpu="haswell", mtriple="x86_64-linux-gnu")).dot
    arm = machine(LlvmOptions(mtriple="aarch64-unknown-linux-gnu"))
    assert (arm.cpu, arm.lanes, arm.registers) == ("generic", 4, 32)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (LlvmOptions(mcpu="pentium-1000", mtriple="x86_64-linux-gnu"), "no x86 processor"),
        (LlvmOptions(mattr=("avx2",)), "neither"),
    ],
)
def test_wrong_options(options, said):
    with pytest.raises(TargetError, match=said):
        canonicalize(options)


@pytest.mark.parametrize(
    ("abi", "triple", "means"),
    [
        ("hard", "armv7-linux-gnueabi", "armv7-linux-gnueabihf"),
        ("hard", "thumbv7em-none-eabihf", "thumbv7em-none-eabihf"),
        ("soft", "armv7-unknown-linux-gnueabihf", "armv7-unknown-linux-gnueabi"),
        ("soft", "thumbv7em-none-eabi", "thumbv7em-none-eabi"),
    ],
)
def test_the_abi_of_floats_is_part_of_the_triple(abi, triple, means):
    options = canonicalize(LlvmOptions(mtriple=triple, mcpu="cortex-a7", mfloat_abi=abi))
    assert (options.mtriple, options.mfloat_abi) == (means, "")


@pytest.mark.parametrize("triple", ["", "aarch64-linux-gnu", "armv7-apple-ios"])
def test_other_machines_have_one_abi_of_floats(triple):
    with pytest.raises(TargetError, match="-mfloat-abi is for 32-bit Arm"):
        canonicalize(LlvmOptions(mtriple=triple, mcpu="generic", mfloat_abi="hard"))


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (LlvmOptions(mcpu="avx2", mtriple="x86_64-linux-gnu"), "-mattr=+avx2"),
        (LlvmOptions(mcpu="sha", mtriple="x86_64-linux-gnu"), "-mattr=+sha"),
        (LlvmOptions(mcpu="sve", mtriple="aarch64-linux-gnu"), "-mattr=+sve"),
    ],
)
def test_a_feature_is_no_processor(options, hint):
    with pytest.raises(TargetError) as caught:
        check_processor(options)
    assert f"is a feature of processors: {hint}" in caught.value.hint


def test_native_is_this_machine_only(monkeypatch):
    monkeypatch.setattr("intarsia_llvm.target.host_triple", lambda: "aarch64-unknown-linux-gnu")
    with pytest.raises(TargetError, match="native is this machine"):
        canonicalize(LlvmOptions(mtriple="x86_64-unknown-linux-gnu"))


def test_other_machines_compile(make_target):
    text = "define i32 @f() { ret i32 7 }"
    for triple in ("aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu"):
        model = machine(LlvmOptions(mtriple=triple))
        assert compile_object(text, model, 2).startswith(b"\x7fELF")


def test_llvm_says_what_it_refuses():
    model = machine(LlvmOptions(mcpu="x86-64", mtriple="x86_64-unknown-linux-gnu"))
    with pytest.raises(ToolchainError, match="refuses"):
        compile_object("define i32 @f() { ret i64 7 }", model, 2)
    with pytest.raises(ToolchainError, match="cannot generate code"):
        compile_object("", machine(LlvmOptions(mtriple="nothing-at-all")), 2)
    assert "ret" in compile_assembly("define i32 @f() { ret i32 7 }", model, 2)


def test_linker_errors(monkeypatch):
    with pytest.raises(ToolchainError, match="did not run"):
        link_shared([b""], host_triple(), linker=("/nonexistent/ld",))
    with pytest.raises(ToolchainError, match="failed"):
        link_shared([b"no object file"], host_triple())
    monkeypatch.setattr(link.shutil, "which", lambda name: None)
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="no linker") as error:
        find_linker(host_triple())
    assert "intarsia-llvm[linker]" in error.value.hint


@pytest.mark.parametrize("level", [1, 3])
def test_registers_are_not_spilled(level):
    """The register tile of the widest machine keeps its sums in registers, with few passes too."""
    from intarsia_ir.tir.buffer import Buffer
    from intarsia_ir.tir.func import PrimFunc
    from intarsia_llvm.codegen import llvm_text
    from intarsia_llvm.schedules.table import cpu_tiling
    from intarsia_loops.cpu.dense import dense_loops
    from intarsia_loops.cpu.loops import store
    from intarsia_loops.cpu.panel import flat_rows
    from intarsia_runtime.artifact.plan import CallPlan
    from intarsia_runtime.dtype import DType

    for cpu, register, count in (("skylake-avx512", "zmm", 28), ("haswell", "ymm", 12)):
        options = LlvmOptions(mcpu=cpu, mtriple="x86_64-unknown-linux-gnu")
        shape = cpu_tiling(machine(options))
        width = 2 * shape.lanes
        rows = shape.rows * 4
        a = Buffer("a", (rows, 100), DType.FLOAT32)
        b = Buffer("b", (1, 100, width), DType.FLOAT32)
        c = Buffer("c", (rows, width), DType.FLOAT32)
        body = dense_loops(
            shape, flat_rows(a), b, width, lambda value, at, c=c: store(c, at, value), [rows]
        )
        module = TensorModule((PrimFunc("k", (a, b, c), 1, body),), CallPlan((), (), (), (), 0, ()))
        text = compile_assembly(llvm_text(module, options), machine(options), level)
        lines = text.splitlines()
        fused = [line for line in lines if "vfmadd" in line and register in line]
        spills = [line for line in lines if register in line and "(%rsp)" in line]
        assert len(fused) == count
        assert spills == []


def test_a_feature_that_is_asked_for_is_needed():
    """Else code that uses it would be killed on a machine without it."""
    found = machine(LlvmOptions(mcpu="x86-64-v2", mattr=("+xop", "+avx512bf16")))
    assert found.cpu_features[-2:] == ("avx512_bf16", "xop")
    assert "fma" in found.cpu_features  # which AVX-512 includes
    less = machine(LlvmOptions(mcpu="x86-64-v3", mattr=("-sse4.2",)))
    assert {"sse4_2", "avx", "avx2"}.isdisjoint(less.cpu_features)


@pytest.mark.parametrize(
    ("cpu", "pairs", "byte_pairs"),
    [
        ("x86-64", True, False),
        ("x86-64-v2", True, True),
        ("sandybridge", False, False),
        ("haswell", True, True),
        ("skylake-avx512", True, True),
    ],
)
def test_pairs_of_products_are_those_of_the_vectors_that_a_processor_has(cpu, pairs, byte_pairs):
    found = machine(LlvmOptions(mcpu=cpu))
    assert (found.pairs, found.byte_pairs) == (pairs, byte_pairs)
