# SPDX-License-Identifier: Apache-2.0
"""``intarsia inspect``: what an artifact says of itself. Imports no plugin, runs nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import cast

import click

from intarsia_runtime.artifact.archive import read_passport
from intarsia_runtime.artifact.members import part_unit
from intarsia_runtime.artifact.passport import Passport, UnitEntry
from intarsia_runtime.artifact.plan import CallPlan, KernelStep, all_steps
from intarsia_runtime.artifact.signature import ValueSpec
from intarsia_runtime.artifact.size_bounds import bounds_of

from .output import echo, emit_json, table
from .session import Session


@click.command("inspect")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--signed-by", type=click.Path(path_type=Path), metavar="PUBKEY",
              help="Public key of OpenSSH that must have signed it.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the whole passport as JSON.")
@click.pass_obj
def command(session: Session, artifact: Path, signed_by: Path | None, as_json: bool) -> None:
    """Show inputs, outputs, target, regions, versions and sizes of ARTIFACT.

    No code of it runs.
    """
    passport = read_passport(artifact, signed_by=signed_by)
    if as_json:
        emit_json({"artifact": str(artifact), "passport": passport.to_json()})
        return
    for key, value in _facts(passport).items():
        if value:
            echo(f"{key + ':':14}{value}")
    echo("")
    rows = [("input", *_signature(spec)) for spec in passport.signature.inputs]
    rows += [("output", *_signature(spec)) for spec in passport.signature.outputs]
    table(rows, ("", "name", "dtype", "shape"))
    echo("")
    units = [(n, u.loader, u.plugin, _bytes(passport, n)) for n, u in _units(passport).items()]
    table(units, ("unit", "loader", "made by", "bytes"))


def _units(passport: Passport) -> dict[str, UnitEntry]:
    """Return every unit by its name in the artifact, those of parts after its own."""
    found = {unit.name: unit for unit in passport.units}
    for part in passport.parts:
        inner = _units(part.passport)  # parts nest two deep at most
        found |= {part_unit(part.name, name): unit for name, unit in inner.items()}
    return found


def _plans(passport: Passport) -> list[CallPlan]:
    return [passport.plan, *(plan for part in passport.parts for plan in _plans(part.passport))]


def _facts(passport: Passport) -> dict[str, object]:
    plans = _plans(passport)
    steps = [step for plan in plans for step in all_steps(plan.steps)]
    kernels = sum(
        len({s.function for s in all_steps(plan.steps) if isinstance(s, KernelStep)})
        for plan in plans
    )
    regions = sum(len(plan.regions) for plan in plans)
    weights = passport.members.get("params.safetensors")
    return {
        "name": passport.name,
        "target": passport.target,
        "placement": passport.placement.get("summary", ""),
        "machine": f"{passport.os}/{passport.arch}",
        "cpu features": " ".join(passport.cpu_features),
        "sizes": "; ".join([*map(str, passport.sizes), *_ranges(plans)]),
        "executor": _choice(passport.executor),
        "runtime": _choice(passport.runtime),
        "intarsia": passport.intarsia,
        "plugins": ", ".join(f"{name} {version}" for name, version in passport.plugins.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in passport.versions.items()),
        "steps": f"{len(steps)} ({kernels} kernels, {regions} regions)",
        "tuned": f"{len(_kernels(passport))} kernels by records" if passport.tuned else "",
        "workspace": _workspace(plans),
        "weights": f"{weights.bytes} bytes" if weights else "none",
    }


def _ranges(plans: Sequence[CallPlan]) -> list[str]:
    """Say between which numbers open sizes may be, once for each of them."""
    found = {name: bounds for plan in plans for name, bounds in bounds_of(plan).items()}
    return [f"{name} {bounds}" for name, bounds in found.items()]


def _workspace(plans: Sequence[CallPlan]) -> str:
    """How much memory intermediate tensors take, as far as sizes are known."""
    known = f"{sum(plan.workspace_bytes for plan in plans)} bytes"
    slots = sum(len(plan.open.slots) for plan in plans if plan.open is not None)
    return f"{slots} slots, as large as the run's sizes need" if slots else known


def _kernels(passport: Passport) -> Collection[object]:
    kernels = passport.tuned.get("kernels", ())
    return cast("Collection[object]", kernels) if isinstance(kernels, Collection) else ()


def _bytes(passport: Passport, unit: str) -> int:
    folder = f"units/{unit}/"
    return sum(m.bytes for name, m in passport.members.items() if name.startswith(folder))


def _choice(choice: Mapping[str, object]) -> str:
    options = [f"{name}={value}" for name, value in choice.items() if name != "kind"]
    return " ".join([str(choice.get("kind", "")), *options])


def _signature(spec: ValueSpec) -> tuple[str, str, str]:
    if spec.shape is None:
        return spec.name, spec.kind, ""
    return spec.name, spec.kind, "x".join(str(size) for size in spec.shape) or "scalar"
