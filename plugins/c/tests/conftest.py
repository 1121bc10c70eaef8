# SPDX-License-Identifier: Apache-2.0
"""Compile kernels with every warning an error, and load them."""

from __future__ import annotations

import pytest

from intarsia.target.target import Target
from intarsia_c.codegen import tir_codegen
from intarsia_c.plugin import register_target_kind
from intarsia_c.target import COptions, canonicalize
from intarsia_ir.tir.module import TensorModule
from intarsia_runtime.artifact.plan import CallPlan

from .calling import STRICT, Library

NO_PLAN = CallPlan((), (), (), (), 0, ())


@pytest.fixture(scope="session")
def make_target():
    kind = register_target_kind()[0]

    def make(**options):
        return Target(kind, canonicalize(COptions(**options)))

    return make


@pytest.fixture
def load_module(tmp_path, make_target):
    """``load(functions, plan, **options)``: the library of a module."""

    def load(functions=(), plan=NO_PLAN, *, opt_level=1, cflags=STRICT, **options):
        target = make_target(opt_level=opt_level, cflags=cflags, **options)
        unit = tir_codegen(TensorModule(tuple(functions), plan), target)
        path = tmp_path / f"lib{len(list(tmp_path.iterdir()))}.so"
        path.write_bytes(unit.files["lib.so"])
        return Library(path)

    return load
