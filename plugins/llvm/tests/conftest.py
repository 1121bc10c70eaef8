# SPDX-License-Identifier: Apache-2.0
"""Compile kernels and call them through the tvm-ffi ABI."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest

from intarsia.target.target import Target
from intarsia_ir.tir.module import TensorModule
from intarsia_llvm.codegen import tir_codegen
from intarsia_llvm.lowering import lower_function as lower
from intarsia_llvm.plugin import register_target_kind, rewrite_relay
from intarsia_llvm.target import LlvmOptions, canonicalize
from intarsia_runtime.artifact.plan import CallPlan

NO_PLAN = CallPlan((), (), (), (), 0, ())


@pytest.fixture(scope="session", autouse=True)
def _thread_pool():
    """What the runtime does: libgomp in the process, so that parallel loops find it."""
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # waiting threads leave the cores to others
    ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)


@pytest.fixture(scope="session")
def make_target():
    kind = register_target_kind()[0]

    def make(**options):
        return Target(kind, canonicalize(LlvmOptions(**options)))

    return make


@pytest.fixture
def load_module(tmp_path, make_target):
    """Compile a module and load its library."""
    tvm_ffi = pytest.importorskip("tvm_ffi")

    def load(functions=(), plan=NO_PLAN, **options):
        unit = tir_codegen(TensorModule(tuple(functions), plan), make_target(**options))
        path = tmp_path / f"lib{len(list(tmp_path.iterdir()))}.so"
        path.write_bytes(unit.files["lib.so"])
        return tvm_ffi.load_module(str(path))

    return load


class Runner:
    """Compiles a function for a machine and runs it."""

    def __init__(self, load_module, make_target):
        self.load_module = load_module
        self.make_target = make_target

    def __call__(self, function, *inputs, rewrite=True, **options):
        target = self.make_target(**options)
        changed = rewrite_relay(function, target) if rewrite else function
        lowered = lower(changed, (), target=target)
        plan = lowered.module.plan
        workspace = aligned(plan.workspace_bytes)
        held = [aligned_copy(lowered.constants[name]) for name in plan.constants]
        context = np.array([a.ctypes.data for a in (workspace, *held)], np.int64)
        outputs = [np.zeros(spec.shape, spec.dtype.value) for spec in plan.outputs]
        module = self.load_module(lowered.module.functions, plan, **options)
        module.get_function("main")(int(context.ctypes.data), *inputs, *outputs)
        return outputs, changed, lowered


def aligned(size):
    block = np.zeros(size + 128, np.uint8)
    start = -block.ctypes.data % 64
    return block[start : start + max(1, size)]


def aligned_copy(array):
    block = aligned(array.nbytes)
    block[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return block


@pytest.fixture
def runner(load_module, make_target):
    return Runner(load_module, make_target)
