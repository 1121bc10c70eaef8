# SPDX-License-Identifier: Apache-2.0
"""The targets that the installed plugins can compile for and this machine can run."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from intarsia.build.build import build
from intarsia.build.stages import read_target
from intarsia.dtype import DType
from intarsia.errors import IntarsiaError
from intarsia.host.host import Host
from intarsia.ir.expr import Function, Var, call, constant
from intarsia.ir.module import IRModule
from intarsia.ir.types import TensorType
from intarsia.ops import OPERATORS
from intarsia.ops.nn import Matmul
from intarsia.partition.cost import Plan
from intarsia.target.kind import Role

WEIGHT = np.ones((64, 64), np.float32)


def installed_targets() -> tuple[str, ...]:
    """Every backend alone, and every accelerator with the backend its plugin's alias names."""
    host = Host()
    backends = [name for name in host.backends() if _runs(host, name)]
    found = list(backends)
    for row in host.kinds():
        if row.role != Role.ACCELERATOR.value:
            continue
        named = [spec for spec in host.aliases().values() if spec.split(",")[0] == row.name]
        candidates = [*named, *(f"{row.name}, {backend}" for backend in backends)]
        found += [spec for spec in candidates if _runs(host, spec)][:1]
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


def _runs(host: Host, spec: str) -> bool:
    """Whether what is compiled runs on this machine's processor.

    An accelerator must take a part of it: those that take no floats of this machine's processor
    are held to the operators by tests of their own.
    """
    if not _parses(host, spec) or read_target(host, spec, None).fallback.kind.main_loader:
        return False
    x = Var("x", TensorType((64, 64), DType.FLOAT32))
    body = call(OPERATORS["nn.relu"], call(Matmul, x, constant(WEIGHT), attrs=Matmul.Attrs()))
    try:
        module = IRModule({"main": Function((x,), body)})
        artifact = build(module, spec, host=host, plan=Plan.GREEDY)
        artifact.load(threads=1).close()
    except IntarsiaError:
        return False
    return "," not in spec or artifact.placement.offloaded > 0


def without_effort(spec: str) -> str:
    """Return a backend's target so that a compiler it calls takes little time over each case."""
    named = {item.name for item in fields(read_target(Host(), spec, None).fallback.options)}
    return f"{spec} -opt-level=0" if "," not in spec and {"cc", "opt_level"} <= named else spec


TARGETS = installed_targets()
EMULATED = emulated_targets()
COMPOSITES = tuple(target for target in TARGETS if "," in target)
