# SPDX-License-Identifier: Apache-2.0
"""The targets that the installed plugins can compile for and this machine can run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import numpy as np

from intarsia.driver.artifact import Artifact
from intarsia.driver.build import build
from intarsia.driver.stages import read_target
from intarsia.host.host import Host
from intarsia.target.kind import Role
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.nn import Matmul
from intarsia_ir.partition.cost import Plan
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError

WEIGHT = np.ones((64, 64), np.float32)


def installed_targets() -> tuple[str, ...]:
    """Every backend alone, and every accelerator with the backend its plugin's alias names."""
    host = Host()
    backends = [name for name in host.backends() if _first_that_runs(host, [name])]
    found = list(backends)
    for row in host.kinds():
        if row.role != Role.ACCELERATOR.value:
            continue
        named = [spec for spec in host.aliases().values() if spec.split(",")[0] == row.name]
        candidates = [*named, *(f"{row.name}, {backend}" for backend in backends)]
        found += _first_that_runs(host, candidates)
    return tuple(found)


def emulated_targets() -> tuple[str, ...]:
    """Backends of devices that this machine's processor can stand in for."""
    host = Host()
    found: list[str] = []
    for name in host.backends():
        spec = f"{name} -emulate"
        if _parses(host, spec) and read_target(host, spec, None).fallback.kind.main_loader:
            found.append(spec)
    return tuple(found)


def _parses(host: Host, spec: str) -> bool:
    try:
        read_target(host, spec, None)
    except IntarsiaError:
        return False
    return True


def _first_that_runs(host: Host, candidates: Iterable[str]) -> list[str]:
    """The first target that can be compiled for, if this machine's processor runs the result.

    If it does not, another backend with the same accelerator would change nothing.
    """
    for spec in dict.fromkeys(candidates):
        artifact = _built(host, spec)
        if artifact is not None:
            return [spec] if _loads(artifact) else []
    return []


def _built(host: Host, spec: str) -> Artifact | None:
    """A small model, compiled; ``None`` if the target cannot be compiled for.

    An accelerator must take a part of it: those that take no floats of this machine's processor
    are held to the operators by tests of their own.
    """
    if not _parses(host, spec) or read_target(host, spec, None).fallback.kind.main_loader:
        return None
    x = Var("x", TensorType((64, 64), DType.FLOAT32))
    body = call(OPERATORS["nn.relu"], call(Matmul, x, constant(WEIGHT), attrs=Matmul.Attrs()))
    module = IRModule({"main": Function((x,), body)})
    part = 1.0 if "," in spec else None
    try:
        return build(module, spec, host=host, plan=Plan.GREEDY, require_offload=part)
    except IntarsiaError:
        return None


def _loads(artifact: Artifact) -> bool:
    try:
        artifact.load(threads=1).close()
    except IntarsiaError:
        return False
    return True


def without_effort(spec: str) -> str:
    """Return a backend's target so that a compiler it calls takes little time over each case."""
    named = {item.name for item in fields(read_target(Host(), spec, None).fallback.options)}
    return f"{spec} -opt-level=0" if "," not in spec and {"cc", "opt_level"} <= named else spec


def fallback_has_a_test(spec: str) -> bool:
    """Whether a target has accelerators, and its fallback is among ``TARGETS`` by itself."""
    host = Host()
    parts = read_target(host, spec, None)
    alone = [read_target(host, one, None).fallback for one in TARGETS if "," not in one]
    return bool(parts.accelerators) and parts.fallback in alone


TARGETS = installed_targets()
EMULATED = emulated_targets()
COMPOSITES = tuple(target for target in TARGETS if "," in target)
