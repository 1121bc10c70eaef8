# SPDX-License-Identifier: Apache-2.0
"""``intarsia check``: whether an artifact is whole, and may run here or for another target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
from msgspec import Struct

from intarsia_ir.graph.expr import Function, Var, call
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.unary import Negative
from intarsia_runtime.artifact.archive import open_artifact
from intarsia_runtime.artifact.machine import Machine, check_machine
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.artifact.unit import SHARED_LIBRARY
from intarsia_runtime.cpu import this_machine
from intarsia_runtime.discovery import has_loader
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError

from ..driver.build import build
from ..host.host import Host
from ..target.detect import not_run_by
from ..target.target import CompositeTarget
from .output import emit_json, table
from .session import Session
from .target_options import NameType


class CheckFinding(Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        what: ``content``, ``machine`` or ``plugin NAME``.
        ok: Whether it stands in nobody's way.
        detail: In words.
    """

    what: str
    ok: bool
    detail: str

    def to_json(self) -> dict[str, object]:
        """Return the row as the command line prints it."""
        return {"what": self.what, "ok": self.ok, "detail": self.detail}


@click.command("check")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--on", type=NameType("target"), metavar="TARGET",
              help="The machine to check for: a target or a hardware tag.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(session: Session, artifact: Path, on: str | None, as_json: bool) -> None:
    """Check every byte of ARTIFACT, and that the machine can run it; exit code 7 if not."""
    passport = open_artifact(artifact).passport
    findings = [CheckFinding("content", True, f"{len(passport.members)} members, digests agree")]
    if on is None:
        findings += [_machine(passport, this_machine()), *_plugins(passport)]
    else:
        host = session.host()
        findings.append(on_target(host, passport, host.target(on)))
    bad = [finding for finding in findings if not finding.ok]
    if as_json:
        rows = [finding.to_json() for finding in findings]
        emit_json({"artifact": str(artifact), "on": on, "ok": not bad, "checks": rows})
    else:
        words = {True: "ok", False: "NO"}
        table([(f.what, words[f.ok], f.detail) for f in findings], ("what", "verdict", "detail"))
    if bad:
        place = "this machine" if on is None else f"'{on}'"
        raise ArtifactError(
            f"{place} cannot run it: {bad[0].detail}",
            where=str(artifact),
            hint=f"compile the model {'on this machine' if on is None else f'for {on}'}",
        )


def on_target(host: Host, passport: Passport, target: CompositeTarget) -> CheckFinding:
    """Say whether what code for a target may use includes what an artifact needs.

    Of a hardware tag, more may be known of its processor than its compiler uses.

    Raises:
        IntarsiaError: As a build for the target, if its kind does not say what its code may use.
    """
    least = _least_machine(host, target)
    offered = least.cpu_features or frozenset[str]()
    lacking = tuple(name for name in passport.cpu_features if name not in offered)
    hardware = host.hardware_of(target)
    if lacking and hardware is not None and hardware.microarchitecture:
        lacking = not_run_by(lacking, hardware.microarchitecture)
    return _finding(passport, least.os, least.arch, lacking)


def _least_machine(host: Host, target: CompositeTarget) -> Machine:
    """Return what code for a target may use; compiles a kernel if its kind does not say."""
    for part in (target.fallback, target.host):
        machine = host.ask("machine", part.kind.name, target=part)
        if machine is not None:
            return cast("Machine", machine)
    x = Var("x", TensorType((1,), DType.FLOAT32))
    module = IRModule({"main": Function((x,), call(Negative, x))})
    least = build(module, target, host=host, records="none").passport
    return Machine(least.os, least.arch, frozenset(least.cpu_features))


def _finding(passport: Passport, os: str, arch: str, lacking: tuple[str, ...]) -> CheckFinding:
    if (passport.os, passport.arch) != (os, arch):
        return CheckFinding(
            "machine", False, f"it is for {passport.os}/{passport.arch}, not for {os}/{arch}"
        )
    if lacking:
        return CheckFinding("machine", False, f"it needs the CPU features {' '.join(lacking)}")
    needs = " ".join(passport.cpu_features) or "nothing"
    return CheckFinding("machine", True, f"{os}/{arch}; it needs {needs}")


def _machine(passport: Passport, machine: Machine) -> CheckFinding:
    try:
        check_machine(passport, machine)
    except ArtifactError as error:
        return CheckFinding("machine", False, error.message)
    return CheckFinding(
        "machine", True, f"{machine.os}/{machine.arch} with all CPU features it needs"
    )


def _plugins(passport: Passport) -> Iterator[CheckFinding]:
    """Look for what loads each unit; imports none of it."""
    loaders = {unit.loader: unit.plugin for unit in passport.units if unit.loader != SHARED_LIBRARY}
    for loader, plugin in loaders.items():
        there = has_loader(loader)
        detail = (
            f"loads units of {plugin}" if there else f"it needs {plugin}, which is not installed"
        )
        yield CheckFinding(f"loader {loader}", there, detail)
