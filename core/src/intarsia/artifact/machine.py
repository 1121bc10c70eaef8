# SPDX-License-Identifier: Apache-2.0
"""What this machine is, in the words of a passport, and whether an artifact may run on it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from msgspec import Struct

from ..errors import ArtifactError
from .passport import Passport

CPUINFO = Path("/proc/cpuinfo")

_ARCHES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


class Machine(Struct, frozen=True):
    """A machine that may run artifacts.

    Attributes:
        os: As ``sys.platform`` names it.
        arch: ``x86_64``, ``aarch64``...
        cpu_features: As the Linux kernel names them; ``None`` when they cannot be told.
    """

    os: str
    arch: str
    cpu_features: frozenset[str] | None


def detect_machine(cpuinfo: Path = CPUINFO) -> Machine:
    """Describe the machine this process runs on."""
    name = platform.machine().lower()
    return Machine(sys.platform, _ARCHES.get(name, name), read_cpu_features(cpuinfo))


def read_cpu_features(cpuinfo: Path = CPUINFO) -> frozenset[str] | None:
    """Return what every processor of the machine has; ``None`` if the kernel does not say."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return None
    found: list[frozenset[str]] = []
    for line in dict.fromkeys(text.splitlines()):
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            found.append(frozenset(value.split()))
    return frozenset.intersection(*found) if found else None


def check_machine(passport: Passport, machine: Machine) -> None:
    """Refuse an artifact whose code this machine cannot run.

    Raises:
        ArtifactError: Other operating system or instruction set, or a CPU feature is missing.
    """
    if (passport.os, passport.arch) != (machine.os, machine.arch):
        raise ArtifactError(
            f"the artifact is for {passport.os}/{passport.arch}, "
            f"this machine is {machine.os}/{machine.arch}",
            hint="compile the model for this machine",
        )
    if machine.cpu_features is None:
        return
    missing = [name for name in passport.cpu_features if name not in machine.cpu_features]
    if missing:
        raise ArtifactError(
            f"the artifact needs the CPU features {' '.join(passport.cpu_features)}; "
            f"this machine has no {' '.join(missing)}",
            hint="compile the model on this machine, or for an older CPU with -mcpu",
        )
