# SPDX-License-Identifier: Apache-2.0
"""The plugin that is checked: found as a user's command would find it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import cast
from urllib.parse import unquote, urlsplit

from intarsia.host.discovery import Found, State, find_plugins, name_key
from intarsia.host.host import Host
from intarsia.host.manifest import KindRow, Manifest
from intarsia.target.kind import Role
from intarsia.target.target import CompositeTarget, Target
from intarsia_ir.ops import OPERATORS
from intarsia_ir.regions.support import SupportTable
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError, UsageError

from .cases import some_cases
from .cases.case import Case


class Willing(Host):
    """A host that keeps every region: what ``annotate`` accepts must work, wanted or not."""

    def has_hook(self, kind: str, hook: str) -> bool:
        """Whether a hook is there; ``partition`` never is."""
        return hook != "partition" and super().has_hook(kind, hook)


@dataclass(frozen=True)
class Subject:
    """A plugin and the target it is checked with.

    Attributes:
        found: As discovery found it.
        chosen: Target the user asked for; empty for the default.
        tolerances: Element type to relative error, where the plugin's own is larger.
        limit: Most cases of each operator; 0 for all.
        compile_only: Why what is compiled cannot run on this machine; empty if it can.
        contexts: Options beside which options are tried that change nothing alone.
    """

    found: Found
    chosen: str = ""
    tolerances: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    limit: int = 0
    compile_only: str = ""
    contexts: Sequence[str] = ()

    def cases(self) -> Mapping[str, tuple[Case, ...]]:
        """The cases of each operator that it is checked with."""
        return some_cases(self.limit)

    @property
    def name(self) -> str:
        """Name of the plugin."""
        return self.found.name

    @property
    def manifest(self) -> Manifest:
        """The manifest of a plugin that can be used."""
        if self.found.manifest is None or self.found.state not in (State.DISCOVERED, State.LOADED):
            raise UsageError(
                f"{self.found.label} is {self.found.state.value}: {self.found.reason}",
                hint=self.found.remedy,
            )
        return self.found.manifest

    @property
    def kinds(self) -> tuple[KindRow, ...]:
        """Its target kinds."""
        return self.manifest.kinds

    @property
    def main_kind(self) -> KindRow:
        """The kind that the chosen target uses; the first one by default."""
        names = self.chosen.replace(",", " ").split()
        for kind in self.kinds:
            if kind.name in names:
                return kind
        return self.kinds[0]

    @property
    def is_accelerator(self) -> bool:
        """Whether its main kind takes parts of a graph only."""
        return self.main_kind.role is Role.ACCELERATOR

    @property
    def package(self) -> str:
        """Name of the top-level package with the hooks."""
        return self.manifest.hooks.partition(".")[0]

    def host(self) -> Host:
        """A host that has imported nothing yet."""
        return Willing()

    @property
    def shared(self) -> Host:
        """A host for checks that need none of their own: looking for plugins takes its time."""
        return _shared_host(self.name)

    def target_text(self, options: str = "") -> str:
        """The target, with ``options`` for the main kind."""
        kind = self.main_kind
        if self.chosen:
            parts = [part.strip() for part in self.chosen.split(",")]
            at = next(i for i, part in enumerate(parts) if part.split()[0] == kind.name)
            parts[at] = f"{parts[at]} {options}".strip()
            return ", ".join(parts)
        own = f"{kind.name} {options}".strip()
        return own if kind.role is Role.BACKEND else f"{own}, {self._backend()}"

    @property
    def settled(self) -> str:
        """The target for other processes, which need not look for a backend that runs.

        It is what the user chose where the manifest does not give a kind.
        """
        try:
            return self.target_text()
        except IntarsiaError:
            return self.chosen

    def composite(self, host: Host, options: str = "") -> CompositeTarget:
        """The target, parsed."""
        return host.target(self.target_text(options))

    def own_target(self, host: Host, options: str = "") -> Target:
        """The part of the target that is this plugin's."""
        return self.own_part(self.composite(host, options))

    def own_part(self, target: CompositeTarget) -> Target:
        """The part of a composite that is this plugin's."""
        return next(part for part in target.targets if part.kind.name == self.main_kind.name)

    def table(self, host: Host, options: str = "") -> SupportTable:
        """What the plugin says it takes."""
        own = self.own_target(host, options)
        return cast("SupportTable", host.call("annotate", own.kind.name, target=own))

    @property
    def own_table(self) -> SupportTable:
        """:meth:`table` of the shared host."""
        return _shared_table(self.name, self.chosen)

    def distribution(self) -> metadata.Distribution:
        """The distribution that provides the plugin."""
        return metadata.distribution(self.found.distribution)

    def source(self) -> Path | None:
        """Folder of the package's files, if it is a folder."""
        return next(iter(_roots(self.package)), None)

    def _backend(self) -> str:
        return _first_backend(frozenset(kind.name for kind in self.kinds))


def source_folder(distribution: metadata.Distribution) -> Path | None:
    """The project folder of an editable install (PEP 610), ``None`` for another."""
    text = distribution.read_text("direct_url.json")
    facts: dict[str, object] = json.loads(text) if text else {}
    if not cast("dict[str, object]", facts.get("dir_info", {})).get("editable"):
        return None
    return Path(unquote(urlsplit(str(facts["url"])).path))


def _roots(package: str) -> list[Path]:
    spec = find_spec(package)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return [Path(place) for place in places]


@cache
def _first_backend(but: frozenset[str]) -> str:
    """The first installed backend that runs here and is none of those."""
    for name in Host().backends():
        if name not in but and _runs_here(name):
            return name
    raise UsageError(
        "no backend is installed to run what the accelerator leaves",
        hint="pip install 'intarsia[llvm]', or name a target with --intarsia-target",
    )


def _runs_here(backend: str) -> bool:
    """Whether a backend's code runs in this process: some write source for other machines."""
    from intarsia.driver.build import build
    from intarsia_ir.graph.expr import Function, Var, call
    from intarsia_ir.graph.module import IRModule
    from intarsia_ir.graph.types import TensorType

    x = Var("x", TensorType((1,), DType.FLOAT32))
    module = IRModule.from_function(Function((x,), call(OPERATORS["negative"], x)))
    try:
        build(module, backend).load(threads=1).close()
    except IntarsiaError:
        return False
    return True


@cache
def _shared_host(_plugin: str) -> Host:
    return Willing()


@cache
def _shared_table(plugin: str, target: str) -> SupportTable:
    return open_subject(plugin, target).table(_shared_host(plugin))


@cache
def _all_found() -> tuple[Found, ...]:
    return tuple(find_plugins())


def open_subject(
    name: str,
    target: str = "",
    tolerances: Mapping[str, float] = MappingProxyType({}),
    limit: int = 0,
    compile_only: str = "",
    contexts: Sequence[str] = (),
) -> Subject:
    """Return the installed plugin called ``name``, or of that distribution.

    The other arguments are fields of :class:`Subject`.

    Raises:
        UsageError: It is not installed, or neither an accelerator nor a backend.
    """
    if not name:
        raise UsageError(
            "the kit needs the name of a plugin",
            hint='--intarsia-plugin NAME, or plugin = "NAME" in the class',
        )
    for found in _all_found():
        if name_key(name) in (name_key(found.name), name_key(found.distribution)):
            if found.manifest is not None and not found.manifest.kinds:
                raise UsageError(
                    f"the plugin '{found.name}' has no target kind to check",
                    hint="the kit checks accelerators and backends",
                )
            return Subject(found, target, tolerances, limit, compile_only, contexts)
    installed = ", ".join(sorted({found.name for found in _all_found()})) or "none"
    raise UsageError(f"no plugin is called '{name}'", hint=f"installed: {installed}")
