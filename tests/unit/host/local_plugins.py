# SPDX-License-Identifier: Apache-2.0
"""Plugins as objects, and a host that has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from intarsia.host.host import Host
from intarsia.host.manager import LocalPlugin
from intarsia.host.manifest import AliasRow, KindRow, Manifest
from intarsia.plugin import Role, SupportTable, Target, TargetKind, hookimpl, option


@dataclass(frozen=True, kw_only=True)
class Options:
    """One option."""

    level: int = option(1, doc="effort")


class Npu:
    """A well-behaved accelerator."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("npu", Role.ACCELERATOR, Options)]

    @hookimpl
    def annotate(self, target: Target) -> SupportTable:
        return SupportTable(())


class Loops:
    """A backend."""

    @hookimpl
    def register_target_kind(self) -> list[TargetKind]:
        return [TargetKind("loops", Role.BACKEND, Options)]


def local(
    hooks: object,
    name: str = "npu",
    role: Role = Role.ACCELERATOR,
    *,
    aliases: tuple[AliasRow, ...] = (),
    distribution: str = "",
) -> LocalPlugin:
    """Wrap an object with hooks as a plugin with one kind of its name."""
    manifest = Manifest(
        name, ">=2.0,<3", "made by a test", "", (KindRow(name, role, "words"),), aliases, ()
    )
    return LocalPlugin(manifest, hooks, distribution or f"acme-{name}")


def host_of(*plugins: LocalPlugin, disabled: tuple[str, ...] = (), **env: str) -> Host:
    """A host with these plugins and no installed one."""
    return Host(
        env=env, disabled=disabled, path=[str(Path(__file__).parent / "none")], local=plugins
    )


LOOPS = local(Loops(), "loops", Role.BACKEND)
NPU = local(Npu(), aliases=(AliasRow("npu-auto", "npu, loops"),))
