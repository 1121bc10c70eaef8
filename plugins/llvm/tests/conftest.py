# SPDX-License-Identifier: Apache-2.0
"""Compile kernels and call them through the tvm-ffi ABI."""

from __future__ import annotations

import ctypes
import os

import pytest

from intarsia.artifact.plan import CallPlan
from intarsia.lower.kernels import TensorModule
from intarsia.target.target import Target
from intarsia_llvm.codegen import tir_codegen
from intarsia_llvm.plugin import register_target_kind
from intarsia_llvm.target import LlvmOptions, canonicalise

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
        return Target(kind, canonicalise(LlvmOptions(**options)))

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
