# SPDX-License-Identifier: Apache-2.0
"""What this machine is: the hardware tag that fits it best, and what archspec says of its CPU.

archspec orders microarchitectures by what they can do: one is below another if the other runs all
its code. A tag fits only if its microarchitecture is not above this machine's, because a virtual
machine often has fewer features than the processor whose name it shows.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import archspec.cpu
from msgspec import Struct

from intarsia_ir.hardware.tags import HardwareTable, HardwareTag
from intarsia_runtime.errors import ModelError

ROOT = Path("/")

_MODELS = (
    "proc/device-tree/model",
    "sys/class/dmi/id/product_name",
    "sys/class/dmi/id/board_name",
)
_MARKS = re.compile(r"\((?:r|tm|c)\)|®|™", re.IGNORECASE)
_GENERATION = re.compile(r"^\d+(?:st|nd|rd|th) gen ", re.IGNORECASE)
_TAIL = re.compile(r"\s+(?:@ .*|cpu|processor|\d+-core.*|rev [\d.]+.*)$", re.IGNORECASE)


class MachineFacts(Struct, frozen=True):
    """What a machine says of itself.

    Attributes:
        os: As ``sys.platform`` has it.
        arch: As ``platform.machine()`` has it.
        models: Names of the device: a board's, a cloud instance's.
        cpu: Name of the processor.
        microarchitecture: Its name in archspec.
        features: What it can do, as archspec names it.
    """

    os: str
    arch: str
    models: tuple[str, ...]
    cpu: str
    microarchitecture: str
    features: frozenset[str]


class Detected(Struct, frozen=True):
    """The tag that fits a machine.

    Attributes:
        tag: The tag; ``None`` if none fits.
        reason: What it was found by, or why there is none.
    """

    tag: HardwareTag | None
    reason: str


def machine_facts(root: Path = ROOT) -> MachineFacts:
    """Ask this machine what it is.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    host = archspec.cpu.host()
    return MachineFacts(
        os=sys.platform,
        arch=platform.machine(),
        models=tuple(dict.fromkeys(_models(root))),
        cpu=_cpu_name(root),
        microarchitecture=str(host.name),
        features=frozenset(str(name) for name in host.features),
    )


def _models(root: Path) -> Iterator[str]:
    for name in _MODELS:
        text = _read(root / name).strip("\0 \n")
        if text:
            yield clean_name(text)


def _cpu_name(root: Path) -> str:
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("model name", "hardware") and value.strip():
            return clean_name(value)
    return clean_name(platform.processor())


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def clean_name(text: str) -> str:
    """Return a device's name as an alias would have it.

    ``Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz`` gives ``Intel Xeon Platinum 8370C``.
    """
    text = _GENERATION.sub("", " ".join(_MARKS.sub("", text).split()))
    while (shorter := _TAIL.sub("", text)) != text:
        text = shorter
    return text


def detect(facts: MachineFacts, table: HardwareTable) -> Detected:
    """Return the tag that says most about a machine and does not promise more than it has."""
    refused: list[str] = []
    names = [("device", name) for name in facts.models]
    names += [("processor", facts.cpu)] if facts.cpu else []
    for what, name in names:
        tag = table.find(name)
        if tag is None:
            continue
        known = table.resolve(tag.name).microarchitecture
        missing = missing_features(known, facts) if known else ()
        if not missing:
            return Detected(tag, f"{what} '{name}'")
        refused.append(f"{tag.name} has {' '.join(missing)}, this machine has not")
    why = f" ({'; '.join(refused)})" if refused else ""
    for name in lattice(facts.microarchitecture):
        for tag in table.tags:
            if tag.microarchitecture == name and tag.kind == "core":
                return Detected(tag, f"microarchitecture {facts.microarchitecture}{why}")
    return Detected(None, f"no tag describes this machine{why}")


def lattice(name: str) -> tuple[str, ...]:
    """Return a microarchitecture and those below it, the nearest first; empty if unknown."""
    if name not in archspec.cpu.TARGETS:
        return ()
    one = archspec.cpu.TARGETS[name]
    below = sorted(one.ancestors, key=_size, reverse=True)
    return tuple(str(each.name) for each in (one, *below))


def _size(one: archspec.cpu.Microarchitecture) -> int:
    return len(one.ancestors)


def missing_features(microarchitecture: str, facts: MachineFacts) -> tuple[str, ...]:
    """Return what code for a microarchitecture may use and a machine has not."""
    if microarchitecture not in archspec.cpu.TARGETS:
        return ()
    wanted = archspec.cpu.TARGETS[microarchitecture]
    return tuple(sorted(str(name) for name in wanted.features if name not in facts.features))


def not_run_by(needed: Collection[str], microarchitecture: str) -> tuple[str, ...]:
    """Return those features of an artifact's passport that a microarchitecture lacks.

    Args:
        needed: As the passport names them.
        microarchitecture: Name in archspec of the processor that shall run it.

    Raises:
        ModelError: archspec does not know the microarchitecture.
    """
    if microarchitecture not in archspec.cpu.TARGETS:
        raise ModelError(f"archspec knows no microarchitecture '{microarchitecture}'")
    one = archspec.cpu.TARGETS[microarchitecture]
    return tuple(name for name in needed if name not in one)
