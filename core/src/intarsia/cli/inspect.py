# SPDX-License-Identifier: Apache-2.0
"""``intarsia inspect``: what an artifact says of itself. Imports no plugin, runs nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import click

from ..artifact.archive import read_passport
from ..artifact.passport import Passport
from ..artifact.plan import KernelStep, TensorSpec
from .output import emit_json, table
from .session import Session


@click.command("inspect")
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the whole passport as JSON.")
@click.pass_obj
def command(session: Session, artifact: Path, as_json: bool) -> None:
    """Show inputs, outputs, target, regions, versions and sizes of ARTIFACT."""
    passport = read_passport(artifact)
    if as_json:
        emit_json({"artifact": str(artifact), "passport": passport.to_json()})
        return
    for key, value in _facts(passport).items():
        if value:
            click.echo(f"{key + ':':14}{value}")
    click.echo("")
    rows = [("input", *_signature(spec)) for spec in passport.plan.inputs]
    rows += [("output", *_signature(spec)) for spec in passport.plan.outputs]
    table(rows, ("", "name", "dtype", "shape"))
    click.echo("")
    units = [(u.name, u.loader, u.plugin, _bytes(passport, u.name)) for u in passport.units]
    table(units, ("unit", "loader", "made by", "bytes"))


def _facts(passport: Passport) -> dict[str, object]:
    plan = passport.plan
    kernels = {step.function for step in plan.steps if isinstance(step, KernelStep)}
    weights = passport.members.get("params.safetensors")
    return {
        "name": passport.name,
        "target": passport.target,
        "placement": passport.placement.get("summary", ""),
        "machine": f"{passport.os}/{passport.arch}",
        "cpu features": " ".join(passport.cpu_features),
        "executor": _choice(passport.executor),
        "runtime": _choice(passport.runtime),
        "intarsia": passport.intarsia,
        "plugins": ", ".join(f"{name} {version}" for name, version in passport.plugins.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in passport.versions.items()),
        "steps": f"{len(plan.steps)} ({len(kernels)} kernels, {len(plan.regions)} regions)",
        "tuned": f"{len(_kernels(passport))} kernels by records" if passport.tuned else "",
        "workspace": f"{plan.workspace_bytes} bytes",
        "weights": f"{weights.bytes} bytes" if weights else "none",
    }


def _kernels(passport: Passport) -> Collection[object]:
    kernels = passport.tuned.get("kernels", ())
    return kernels if isinstance(kernels, Collection) else ()


def _bytes(passport: Passport, unit: str) -> int:
    folder = f"units/{unit}/"
    return sum(m.bytes for name, m in passport.members.items() if name.startswith(folder))


def _choice(choice: Mapping[str, object]) -> str:
    options = [f"{name}={value}" for name, value in choice.items() if name != "kind"]
    return " ".join([str(choice.get("kind", "")), *options])


def _signature(spec: TensorSpec) -> tuple[str, str, str]:
    return spec.name, spec.dtype.value, "x".join(str(size) for size in spec.shape) or "scalar"
