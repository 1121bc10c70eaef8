# SPDX-License-Identifier: Apache-2.0
"""Modules in parts: which kernels are compiled together, by how many processes, changes nothing."""

from __future__ import annotations

import subprocess
import tempfile
import time

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import TensorModule
from intarsia_llvm import codegen, compile_pool
from intarsia_llvm.codegen import tir_codegen
from intarsia_llvm.compile_pool import compile_objects
from intarsia_llvm.emit.module import emit_module, emit_parts
from intarsia_llvm.optimize import SCHEDULED
from intarsia_llvm.target import machine
from intarsia_loops.cpu.loops import load, parallel, serial, store, vectorized
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ToolchainError

NO_PLAN = CallPlan((), (), (), (), 0, ())
SIZE = 4096


def adds(number: int) -> PrimFunc:
    """A kernel that adds ``number`` to every element, shared between threads."""
    a = Buffer("a", (SIZE, 8), DType.INT32)

    def row(i):
        return serial(8, lambda j: store(a, (i, j), load(a, i, j) + number))

    return PrimFunc(f"add_{number}", (a,), 1, parallel(SIZE, row))


MODULE = TensorModule(tuple(adds(number) for number in range(1, 6)), NO_PLAN)


@pytest.fixture
def model(make_target):
    return machine(make_target().options)


def processors(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(compile_pool, "available_threads", lambda: count)


def test_kernels_are_in_parts_by_their_size_and_all_else_is_in_the_second(model) -> None:
    parts = list(emit_parts(MODULE, model, 0, 1))
    exported = parts.pop(1)
    assert len(parts) == 5
    for number, text in enumerate(parts, 1):
        kernels = [n for n in range(1, 6) if f"define hidden void @add_{n}(" in text]
        assert kernels == [number]
        assert "@__tvm_ffi_main" not in text
    assert "define hidden void @add" not in exported
    assert "@__tvm_ffi_main" in exported
    assert "declare hidden void @add_1(ptr)" in exported
    assert len(list(emit_parts(MODULE, model, 0, 3 * len(parts[0])))) == 3
    assert [emit_module(MODULE, model, 0)] == list(emit_parts(MODULE, model, 0, 1 << 30))


def adds_vectors(number: int) -> PrimFunc:
    """The same with vectors, so that LLVM has no loop to vectorize."""
    a = Buffer("a", (SIZE, 8), DType.INT32)

    def row(i):
        return vectorized(8, lambda j: store(a, (i, j), load(a, i, j) + number))

    return PrimFunc(f"add_{number}", (a,), 1, parallel(SIZE, row))


def test_kernels_that_llvm_vectorizes_have_parts_of_their_own(model) -> None:
    kernels = (adds(1), adds_vectors(2), adds(3), adds_vectors(4))
    module = TensorModule(kernels, NO_PLAN)
    size = len(next(emit_parts(TensorModule(kernels[:1], NO_PLAN), model, 0, 1)))
    parts = [text for text in emit_parts(module, model, 0, 1) if "define hidden void @add" in text]
    assert len(parts) == 4
    for text in parts:
        by_vectors = any(f"define hidden void @add_{number}(" in text for number in (2, 4))
        assert (SCHEDULED in text) is by_vectors
    (whole,) = emit_parts(module, model, 0, 4 * size)
    assert SCHEDULED not in whole


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_module_in_parts_runs_as_one(monkeypatch, load_module, count: int) -> None:
    monkeypatch.setattr(codegen, "PART_TEXT", 1)
    processors(monkeypatch, count)
    library = load_module(MODULE.functions)
    a = np.zeros((SIZE, 8), np.int32)
    for number in range(1, 6):
        library.get_function(f"add_{number}")(a)
    assert (a == 15).all()


def test_bytes_do_not_depend_on_the_processors(monkeypatch, make_target) -> None:
    monkeypatch.setattr(codegen, "PART_TEXT", 1)
    libraries = []
    for count in (1, 2, 3):
        processors(monkeypatch, count)
        libraries.append(tir_codegen(MODULE, make_target()).files["lib.so"])
    assert libraries[0] == libraries[1] == libraries[2]


def test_one_module_starts_no_process(monkeypatch, model) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    (found,) = compile_objects(iter(["define void @f() { ret void }"]), model, 2)
    assert found.startswith(b"\x7fELF")


def test_processes_for_what_is_expected_start_before_it_comes(monkeypatch, model) -> None:
    """No more than there are processors for; and none of them has to be given work."""
    started = []
    begin = subprocess.Popen

    def remember(*command, **settings):
        started.append(begin(*command, **settings))
        return started[-1]

    def texts():
        while len(started) < 2:
            time.sleep(0.01)
        yield "define void @f() { ret void }"

    monkeypatch.setattr(subprocess, "Popen", remember)
    processors(monkeypatch, 3)
    (found,) = compile_objects(texts(), model, 2, expected=9)
    assert found.startswith(b"\x7fELF")
    assert [process.poll() is not None for process in started] == [True, True]
    assert compile_objects([], model, 2, expected=9) == ()


def test_where_no_process_can_be_started_this_one_does_the_work(monkeypatch, model) -> None:
    def refuse(*_args, **_settings):
        raise BlockingIOError("Resource temporarily unavailable")

    texts = [f"define i32 @f{n}() {{ ret i32 {n} }}" for n in range(3)]
    processors(monkeypatch, 4)
    expected = compile_objects(texts, model, 2)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert compile_objects(texts, model, 2) == expected


@pytest.mark.parametrize("count", [1, 3])
def test_the_first_text_that_llvm_refuses_is_named(monkeypatch, model, count: int) -> None:
    good = "define i32 @f() { ret i32 7 }"
    texts = [good, good, "define i32 @f() { ret i64 7 }", good, "nonsense", good]
    processors(monkeypatch, count)
    with pytest.raises(ToolchainError, match="LLVM refuses the generated module") as error:
        compile_objects(texts, model, 2)
    assert "i64" in error.value.message


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os, sys; sys.stdin.buffer.readline(); os._exit(3)", "(status 3): it said nothing"),
        ("raise MemoryError('no room')", "(status 1): MemoryError: no room"),
        ("import time; print('what', flush=True); time.sleep(60)", "(status -9): it said nothing"),
        ("print('object 900')", "(status 0): it said nothing"),
        ("print('hello', flush=True); import os; os.abort()", "(status -6): it said nothing"),
    ],
)
def test_a_process_that_ends_early_is_an_error(monkeypatch, model, program, said) -> None:
    monkeypatch.setattr(compile_pool, "_CHILD", program)
    monkeypatch.setattr(compile_pool, "_GRACE_SECONDS", 0.5)
    with tempfile.TemporaryFile() as words, compile_pool._Process(model, 2, words) as process:
        with pytest.raises(ToolchainError, match="LLVM ended with its process") as error:
            process.compile("define void @f() { ret void }")
        assert said in error.value.message


def test_an_interruption_ends_the_processes(monkeypatch, model) -> None:
    started = []
    begin = compile_pool._Process

    def remember(*job):
        started.append(begin(*job))
        return started[-1]

    def texts():
        yield "define void @f() { ret void }"
        yield "define void @g() { ret void }"
        while len(started) < 2:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_pool, "_Process", remember)
    processors(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        compile_objects(texts(), model, 2)
    assert [process._child.poll() is not None for process in started] == [True, True]
