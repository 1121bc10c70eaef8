# SPDX-License-Identifier: Apache-2.0
"""A backend and an accelerator that compile nothing, and a host that has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import KindRow, Manifest
from intarsia.plugin import (
    SHARED_LIBRARY,
    CompiledUnit,
    Region,
    Role,
    Support,
    SupportRow,
    SupportTable,
    Target,
    TargetKind,
    hookimpl,
    op,
)
from intarsia_ir.graph.expr import Function
from intarsia_ir.tir.module import Lowered, TensorModule
from intarsia_ir.tir.space import Tuned
from intarsia_loops.lower import lower


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Nothing to set."""


def compile_main(module: TensorModule, target: Target) -> CompiledUnit:
    names = "\n".join(function.name for function in module.functions)
    return CompiledUnit(
        module.name, SHARED_LIBRARY, {"lib.so": names.encode()}, versions={"toycc": "3"}
    )


def accept(match: object) -> Support:
    return Support.yes()


class Backend:
    """A backend whose code generator is given."""

    def __init__(self, generate: Any = compile_main, device: int = 1, name: str = "toy") -> None:
        self.kind = TargetKind(name, Role.BACKEND, NoOptions, device_type=device)
        self.given = generate

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [self.kind]

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
    def tir_codegen(self, module: TensorModule, target: Target) -> CompiledUnit | None:
        return None if self.given is None else self.given(module, target)


class Accelerator:
    """Takes matrix products."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("fast", Role.ACCELERATOR, NoOptions)]

    @hookimpl
    def annotate(self, target: Target) -> SupportTable:
        return SupportTable((SupportRow("matmul", op("matmul"), accept),))

    @hookimpl
    def relay_codegen(self, region: Region, target: Target) -> CompiledUnit:
        constants = {f"{region.name}.scale": np.ones(3, np.float32)}
        return CompiledUnit(region.name, "fast", {"graph.json": b"{}"}, constants, ("fastbit",))


class Choosy(Accelerator):
    """Gives everything back."""

    @hookimpl
    def partition(self, regions: Sequence[Region], target: Target) -> Sequence[Region]:
        return []


def local(hooks: object, name: str, role: Role) -> LocalPlugin:
    manifest = Manifest(name, ">=2.0,<3", "", "", (KindRow(name, role, "words"),), (), ())
    return LocalPlugin(manifest, hooks, f"acme-{name}")


def host_of(backend: object | None = None, accelerator: object | None = None) -> Host:
    """A host with these plugins and no installed one."""
    plugins = [
        local(backend or Backend(), "toy", Role.BACKEND),
        local(Backend(name="plain"), "plain", Role.BACKEND),
        local(accelerator or Accelerator(), "fast", Role.ACCELERATOR),
    ]
    return Host(env={}, path=[str(Path(__file__).parent / "none")], local=plugins)
