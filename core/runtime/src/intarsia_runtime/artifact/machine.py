# SPDX-License-Identifier: Apache-2.0
"""What this machine is, in the words of a passport, and whether an artifact may run on it."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import ArtifactError

if TYPE_CHECKING:
    from .passport import Passport

CPUINFO = Path("/proc/cpuinfo")

_ARCHES = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "arm64": "aarch64",
    "armv7l": "arm",
    "armv8l": "arm",
}
_KEYS = {"x86_64": "flags", "aarch64": "Features", "arm": "Features", "riscv64": "isa"}
_KEYS_OF_ALL = frozenset(_KEYS.values())


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
    arch = _ARCHES.get(name, name)
    features = read_cpu_features(cpuinfo, arch)
    if features is not None and name == "armv8l":  # 32-bit code on a processor of Armv8
        features |= {"v8"}
    return Machine(sys.platform, arch, features)


def read_cpu_features(cpuinfo: Path = CPUINFO, arch: str = "") -> frozenset[str] | None:
    """Return what every processor of the machine has; ``None`` if the kernel does not say.

    Args:
        cpuinfo: The kernel's list of processors.
        arch: Instruction set whose features are meant, since an emulator may show the list of
            another machine; empty for any.
    """
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return None
    keys = {_KEYS[arch]} if arch in _KEYS else _KEYS_OF_ALL
    found: list[frozenset[str]] = []
    for line in dict.fromkeys(text.splitlines()):
        key, _, value = line.partition(":")
        key = key.strip()
        if key in keys:
            found.append(_extensions(value) if key == "isa" else frozenset(value.split()))
    return frozenset[str].intersection(*found) if found else None


def _extensions(isa: str) -> frozenset[str]:
    """Return the extensions in a RISC-V ISA string, ``rv64imafdc_zba_zbb``: ``i m a ... zbb``."""
    base, *others = isa.strip().lower().split("_")
    letters = base[4:].replace("g", "imafd") if base.startswith("rv") else ""
    return frozenset((*letters, *others))


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
