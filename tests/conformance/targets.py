# SPDX-License-Identifier: Apache-2.0
"""The targets that the installed plugins can compile for and this machine can run."""

from __future__ import annotations

from intarsia.build.stages import read_target
from intarsia.errors import IntarsiaError
from intarsia.host.host import Host
from intarsia.target.kind import Role


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
    """Whether what is compiled runs on this machine's processor."""
    return _parses(host, spec) and not read_target(host, spec, None).fallback.kind.main_loader


TARGETS = installed_targets()
EMULATED = emulated_targets()
COMPOSITES = tuple(target for target in TARGETS if "," in target)
