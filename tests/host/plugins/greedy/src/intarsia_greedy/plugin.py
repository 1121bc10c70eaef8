# SPDX-License-Identifier: Apache-2.0
"""A plugin that implements every hook and answers nonsense, to show that only owners are asked."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.plugin import Role, TargetKind, hookimpl


@dataclass(frozen=True, kw_only=True)
class GreedyOptions:
    """None."""


@hookimpl(tryfirst=True)
def register_target_kind() -> list[TargetKind]:
    """The one honest answer, so that the plugin loads."""
    return [TargetKind("greedy", Role.ACCELERATOR, GreedyOptions)]


@hookimpl(tryfirst=True)
def annotate(target: object) -> object:
    """Nonsense."""
    return "everything"


@hookimpl(tryfirst=True)
def partition(regions: object, target: object) -> object:
    """Nonsense."""
    return (item for item in ())


@hookimpl(tryfirst=True)
def relay_codegen(region: object, target: object) -> object:
    """Nonsense."""
    return b"\x7fELF"


@hookimpl(tryfirst=True)
def lower_intrinsic(target: object) -> object:
    """Nonsense."""
    return {"exp": "expf"}


@hookimpl(tryfirst=True)
def register_executor_kind() -> object:
    """Nonsense."""
    return 7


@hookimpl(tryfirst=True)
def register_runtime_kind() -> object:
    """Nonsense."""
    return object()


@hookimpl(tryfirst=True)
def rewrite_relay(function: object, target: object) -> object:
    """No answer at all."""
    return None


@hookimpl(tryfirst=True)
def rewrite_tir(function: object, target: object) -> object:
    """Ends the process."""
    raise SystemExit(3)


@hookimpl(tryfirst=True)
def probe(target: object) -> object:
    """Fails."""
    raise ZeroDivisionError("no device")
