# SPDX-License-Identifier: Apache-2.0
"""``intarsia hardware``: devices by name, what this machine is, and profiles of machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from intarsia_ir.hardware.tags import KINDS

from .output import echo, emit_json, table
from .session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intarsia_ir.hardware.tags import Hardware, HardwareTable, HardwareTag

    from ..host.host import Host
    from ..target.kind import Memory
    from ..target.target import CompositeTarget

_SHOWN = 8


@click.group("hardware")
def command() -> None:
    """Name devices instead of options: a tag such as raspberrypi/4b implies a target."""


@command.command("list")
@click.option("--vendor", default=None, help="Only devices of this vendor.")
@click.option("--kind", type=click.Choice(KINDS), default=None, help="Only this kind of device.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("words", nargs=-1)
@click.pass_obj
def list_hardware(
    session: Session, vendor: str | None, kind: str | None, as_json: bool, words: tuple[str, ...]
) -> None:
    """List the devices of all plugins whose names or summaries have all WORDS."""
    found = session.host().hardware()
    tags = [
        tag
        for tag in found.tags
        if (vendor is None or tag.vendor == vendor.lower())
        and (kind is None or tag.kind == kind)
        and all(word.lower() in _searched(tag) for word in words)
    ]
    _warn(found)
    if as_json:
        emit_json({"hardware": [_row(found, tag) for tag in tags]})
        return
    if not tags:
        echo("no device fits" if found.tags else "no plugin describes any device")
        return
    table([(t.name, t.kind, _said(t), _short(_target(found, t))) for t in tags],
          ("name", "kind", "device", "target"))  # fmt: skip
    echo("hardware show NAME prints the whole target, with its -mtriple")


def _warn(found: HardwareTable) -> None:
    for problem in found.problems:
        echo(f"warning: {problem}", err=True)


def _searched(tag: HardwareTag) -> str:
    return " ".join((tag.name, tag.summary, *tag.aliases)).lower()


def _target(found: HardwareTable, tag: HardwareTag) -> str:
    from intarsia_runtime.errors import IntarsiaError

    try:
        return found.resolve(tag.name).target
    except IntarsiaError as error:  # one broken entry must not hide the others
        return f"error: {error.message}"


def _said(tag: HardwareTag) -> str:
    return f"{tag.summary} (unverified)" if tag.unverified else tag.summary


def _short(target: str) -> str:
    return " ".join(word for word in target.split(" ") if not word.startswith("-mtriple="))


def _row(found: HardwareTable, tag: HardwareTag) -> dict[str, object]:
    return {
        "name": tag.name,
        "vendor": tag.vendor,
        "kind": tag.kind,
        "summary": tag.summary,
        "aliases": list(tag.aliases),
        "parents": list(tag.parents),
        "target": _target(found, tag),
        "types": list(tag.types),
        "source": tag.source,
        "unverified": tag.unverified,
        "distribution": tag.owner,
    }


@command.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def show(session: Session, name: str, as_json: bool) -> None:
    """Show the facts about the device NAME: a tag or any of its aliases."""
    found = session.host().hardware()
    one = found.resolve(name)
    memory = [
        {
            "name": level.name,
            "size": level.size,
            "alignment": level.alignment,
            "shared_by": level.shared_by,
        }
        for level in one.memory
    ]
    if as_json:
        more: dict[str, object] = {
            "type": one.type,
            "lineage": list(one.lineage),
            "keys": list(one.keys),
            "memory": memory,
            "microarchitecture": one.microarchitecture,
            "host": one.host,
            "cores": one.cores,
            "threads": one.threads,
            "gpus": one.gpus,
            "die": one.tag.die,
            "notes": one.tag.notes,
        }
        emit_json({"hardware": {**_row(found, one.tag), **more}})
        return
    rows = [
        ("summary", one.tag.summary),
        ("kind", one.tag.kind),
        ("target", one.target),
        ("host", _driver(one)),
        ("based on", " -> ".join(one.lineage[1:])),
        ("tuning records", one.type),
        ("aliases", ", ".join(one.tag.aliases)),
        ("sizes", ", ".join(one.tag.types)),
        ("parts", _names(found.parts(one.tag))),
        ("used in", _names(found.children(one.tag))),
        ("keys", ", ".join(one.keys)),
        ("memory", ", ".join(map(_level, one.memory))),
        ("cores", str(one.cores or "")),
        ("threads", str(one.threads or "")),
        ("GPUs", str(one.gpus or "")),
        ("microarchitecture", one.microarchitecture),
        ("die", one.tag.die),
        ("notes", one.tag.notes),
        ("source", one.tag.source),
        ("unverified", one.tag.unverified),
        ("from", one.tag.owner),
    ]
    echo(one.name)
    echo("\n".join(f"  {label:<18}{text}" for label, text in rows if text))


def _driver(one: Hardware) -> str:
    """What drives a device, where that is not the device itself."""
    if one.host:
        return one.host
    card = one.tag.kind == "gpu"
    return "the machine it is plugged into: this one, unless a host is named behind" if card else ""


def _names(tags: Sequence[HardwareTag]) -> str:
    shown = ", ".join(tag.name for tag in tags[:_SHOWN])
    more = len(tags) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _level(level: Memory) -> str:
    shared = f" for {level.shared_by} cores" if level.shared_by > 1 else ""
    return f"{level.name} {_size(level.size)}{shared}"


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count % 1024 or not count:
            return f"{count} {unit}"
        count //= 1024
    return f"{count} GiB"


@command.command("detect")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def detect_hardware(session: Session, as_json: bool) -> None:
    """Find the tag that fits this machine best."""
    from ..target.detect import detect, machine_facts

    facts = machine_facts()
    found = session.host().hardware()
    _warn(found)
    result = detect(facts, found)
    name = result.tag.name if result.tag else None
    if as_json:
        machine = {
            "os": facts.os,
            "arch": facts.arch,
            "models": list(facts.models),
            "cpu": facts.cpu,
            "microarchitecture": facts.microarchitecture,
            "features": sorted(facts.features),
        }
        emit_json({"tag": name, "reason": result.reason, "machine": machine})
        return
    echo(name or "no tag describes this machine")
    for label, text in (
        ("found by", result.reason),
        ("device", ", ".join(facts.models)),
        ("processor", facts.cpu),
        ("microarchitecture", facts.microarchitecture),
        ("features", " ".join(sorted(facts.features))),
    ):
        if text:
            echo(f"  {label:<18}{text}")


@command.command("export")
@click.argument("name", required=False)
@click.option("--target", "text", default=None, help="Target of the profile, instead of a tag's.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File; default: stdout.")
@click.pass_obj
def export(session: Session, name: str | None, text: str | None, output: Path | None) -> None:
    """Write a profile for builds on another machine: --target @profile.json.

    It describes this machine with all features it really has, or the device NAME.
    """
    from intarsia_ir.writing.new_file import atomic_write

    from ..target.profile import profile_json

    host = session.host()
    target, tag = _profiled(host, name, text)
    written = json.dumps(profile_json(target, tag), indent=2) + "\n"
    if output is None:
        echo(written, nl=False)
        return
    with atomic_write(output) as file:
        file.write(written.encode())
    echo(f"wrote {output}: {target}", err=True)


def _profiled(host: Host, name: str | None, text: str | None) -> tuple[CompositeTarget, str]:
    """The target of a profile, and the name of the hardware it is for."""
    from intarsia_runtime.errors import UnsupportedError

    from ..target.detect import detect, machine_facts

    found = host.hardware()
    if name is not None:
        one = found.resolve(name)
        return host.target(text or one.name), one.name
    tag = detect(machine_facts(), found).tag
    if text is None and tag is None:
        raise UnsupportedError("no tag describes this machine", hint="name a target: --target TEXT")
    if text is None and tag is not None:
        # A kind for the CPU by its defaults is this very machine, feature by feature; what compiles
        # for a device has such a kind as its host by default.
        made = host.target(tag.name)
        text = str(made.fallback) if made.fallback != made.host else made.fallback.kind.name
    return host.target(text or ""), tag.name if tag else ""


@command.command("check")
@click.argument("artifact", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--on", "name", required=True, help="Hardware tag of the device.")
@click.pass_obj
def check(session: Session, artifact: Path, name: str) -> None:
    """Check that a device has the CPU features of ARTIFACT; exit code 7 if not."""
    from intarsia_runtime.artifact.archive import read_passport
    from intarsia_runtime.errors import ArtifactError

    from .check import on_target

    host = session.host()
    one = host.hardware().resolve(name)
    finding = on_target(host, read_passport(artifact), host.target(one.name))
    if not finding.ok:
        why = f"'{one.name}' cannot run it: {finding.detail}"
        hint = f"compile the model with --target '{one.name}'"
        raise ArtifactError(why, where=str(artifact), hint=hint)
    echo(f"{one.name} has all that {artifact} needs")
