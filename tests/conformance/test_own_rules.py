# SPDX-License-Identifier: Apache-2.0
"""A third party's kind replaces rules of the code generator that it uses, for itself alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import KindRow, Manifest
from intarsia.plugin import (
    CompiledUnit,
    DType,
    Intrinsic,
    Region,
    Role,
    Target,
    TargetKind,
    TensorModule,
    hookimpl,
)
from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.tir.expr import PrimExpr, intrinsic
from intarsia_ir.tir.intrinsic import IntrinsicRule
from intarsia_ir.tir.module import Lowered
from intarsia_ir.tir.space import Tuned
from intarsia_loops.lower import lower

from .targets import TARGETS


def doubled_sine(x: PrimExpr) -> PrimExpr:
    """What nobody would take for a hyperbolic tangent."""
    return intrinsic(Intrinsic.SIN, x) * 2.0


class Acme:
    """A backend of its own, with another's code generator."""

    def __init__(self, kind: TargetKind) -> None:
        self._kind = replace(kind, name="acme")
        self._other = kind.name

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [self._kind]

    @hookimpl
    def canonicalize_target(self, target: Target) -> Target:
        other = replace(target, kind=replace(target.kind, name=self._other))
        return replace(target, options=Host().canonicalize(other).options)

    @hookimpl
    def lower(
        self,
        main: Function,
        regions: Sequence[Region],
        target: Target,
        alignment: int,
        tuned: Tuned | None,
        name: str,
    ) -> Lowered:
        return lower(main, regions, target=target, alignment=alignment, tuned=tuned, name=name)

    @hookimpl
    def tir_codegen(self, module: TensorModule, target: Target) -> CompiledUnit:
        made = Host().call("tir_codegen", self._other, module=module, target=target)
        assert isinstance(made, CompiledUnit)
        return made

    @hookimpl
    def lower_intrinsic(self, target: Target) -> Mapping[Intrinsic, IntrinsicRule]:
        return {Intrinsic.TANH: doubled_sine}


@pytest.mark.parametrize("target", [name for name in ("llvm", "c") if name in TARGETS])
def test_a_rule_of_ones_own_is_used(target: str) -> None:
    kind = Host().kind(target)
    manifest = Manifest("acme", ">=2.0,<3", "", "", (KindRow("acme", Role.BACKEND, "x"),), (), ())
    plugin = LocalPlugin(manifest, Acme(kind), "acme")
    host = Host(env={}, path=[str(Path(__file__).parent / "none")], local=[plugin])
    x = Var("x", TensorType((33,), DType.FLOAT32))
    module = IRModule({"main": Function((x,), call(OPERATORS["tanh"], x))})
    data = np.linspace(-3, 3, 33, dtype=np.float32)
    for spec, own, want in (("acme", host, 2 * np.sin(data)), (target, None, np.tanh(data))):
        with intarsia.build(module, spec, host=own).load(threads=1) as executable:
            (found,) = executable.run([data]).values()
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
