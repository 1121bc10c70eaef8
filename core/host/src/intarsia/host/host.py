# SPDX-License-Identifier: Apache-2.0
"""The host: installed plugins, their kinds and targets, and calls of their hooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from ..target.kind import Role
from ..target.universal import Tag
from .discovery import Found, State
from .manager import LocalPlugin, PluginManager

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from intarsia_ir.hardware.tags import Hardware, HardwareTable, HardwareTag

    from ..target.config_kind import ConfigKind
    from ..target.kind import Memory, TargetKind
    from ..target.kind_table import Origin
    from ..target.read import TargetSpec
    from ..target.target import CompositeTarget, Target
    from .examine import PluginFinding
    from .frontend import Frontend


class PluginInfo(Struct, frozen=True):
    """A plugin as listed.

    Attributes:
        name: Its name.
        distribution: Distribution it comes from.
        version: Of the distribution.
        api: Range of hook API versions it works with; empty if unknown.
        summary: One line of its own.
        kinds: Names of its target kinds.
        aliases: Short names it gives.
        state: ``discovered``, ``blocked``, ``incompatible``, ``broken`` or ``loaded``.
        reason: Why it cannot be used, or whom it is in conflict with; else empty.
        remedy: What to do about that.
        executors: Names of its kinds of executor, other names included.
        runtimes: Names of its kinds of runtime, other names included.
        hardware: Its files of hardware tags.
        attributes: What it says of kinds of target: ``column of kind``.
        loaders: Names of its loaders.
        frontends: Model formats that it imports.
        commands: Commands that it adds.
    """

    name: str
    distribution: str
    version: str
    api: str
    summary: str
    kinds: tuple[str, ...]
    aliases: tuple[str, ...]
    state: str
    reason: str
    remedy: str
    executors: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    loaders: tuple[str, ...] = ()
    frontends: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


class FrontendInfo(Struct, frozen=True):
    """A model format as its plugin's manifest declares it."""

    name: str
    suffixes: tuple[str, ...]
    plugin: str
    distribution: str


class CommandInfo(Struct, frozen=True):
    """A command of a plugin as its manifest declares it."""

    name: str
    summary: str
    plugin: str
    distribution: str


class KindInfo(Struct, frozen=True):
    """A target kind as its plugin's manifest declares it."""

    name: str
    role: str
    summary: str
    plugin: str
    distribution: str


class Host:
    """The plugins of a process: found at once, each imported when one of its kinds is first used.

    Args:
        env: Environment with ``INTARSIA_PLUGINS`` and ``INTARSIA_DISABLE_PLUGINS``. Default: that
            of the process.
        disabled: More plugins or distributions that are not used.
        path: Folders to search for distributions, instead of ``sys.path``.
        local: Plugins that are not installed.
        trace: Called with a line for every hook call: plugin, hook, time.

    Raises:
        UsageError: An environment variable has an invalid value.
        ModelError: A file of ``INTARSIA_HARDWARE`` is missing or invalid.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        disabled: Iterable[str] = (),
        path: Sequence[str] | None = None,
        local: Sequence[LocalPlugin] = (),
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self._env = os.environ if env is None else env
        self._manager = PluginManager(self._env, disabled, path, local, trace)
        self._hardware: HardwareTable | None = None
        self._own_hardware = _read_settings(self._env)

    def plugins(self) -> tuple[PluginInfo, ...]:
        """All plugins found, whatever their state."""
        return tuple(_info(plugin) for plugin in self._manager.found)

    def plugin(self, name: str) -> tuple[PluginInfo, ...]:
        """The plugins with this name or distribution; several in case of a conflict.

        Raises:
            UsageError: There is none.
        """
        return tuple(_info(plugin) for plugin in self._manager.named(name))

    def strange_settings(self) -> list[str]:
        """Unknown names in ``INTARSIA_PLUGINS`` and ``INTARSIA_DISABLE_PLUGINS``, as messages."""
        return self._manager.strange_settings()

    def examine(self, names: Sequence[str] = ()) -> tuple[PluginFinding, ...]:
        """Try plugins in child processes and return faults; see :mod:`intarsia.host.examine`.

        Args:
            names: Plugins or distributions; all if empty.

        Raises:
            UsageError: There is no plugin of such a name.
        """
        from .examine import examine
        from .time_limit import time_limit_of

        chosen = [plugin for name in names for plugin in self._manager.named(name)]
        return examine(chosen or self._manager.found, time_limit_of(os.environ))

    def owner(self, kind: str) -> PluginInfo:
        """The plugin that owns a kind; raises as :meth:`kind` does, but imports nothing."""
        return _info(self._manager.owner(kind))

    def kinds(self) -> tuple[KindInfo, ...]:
        """The kinds of all usable plugins, from their manifests; imports nothing."""
        names = set(self._manager.kind_names())
        rows = [
            KindInfo(row.name, row.role.value, row.summary, plugin.name, plugin.distribution)
            for plugin in self._manager.found
            if plugin.manifest is not None
            for row in plugin.manifest.kinds
            if row.name in names and plugin.state.value in ("discovered", "loaded")
        ]
        return tuple(sorted(rows, key=_by_name))

    def aliases(self) -> Mapping[str, str]:
        """Alias to the target string that it means."""
        return self._manager.aliases()

    def names(self) -> Collection[str]:
        """Names of all kinds."""
        return self._manager.kind_names()

    def alias_table(self) -> Mapping[str, str]:
        """The aliases, for the parser: a lookup refuses an alias with several owners."""
        return _CheckedAliases(self._manager)

    def backends(self) -> Sequence[str]:
        """Names of the kinds that compile any graph."""
        return [row.name for row in self.kinds() if row.role == Role.BACKEND.value]

    def kind(self, name: str) -> TargetKind:
        """A kind by name; imports its plugin at the first use.

        Raises:
            TargetError: Nobody has such a kind.
            DuplicateName: Two distributions claim it; the message says which setting decides.
            PluginError: Its plugin is blocked, incompatible or broken.
        """
        return self._manager.kind(name)

    def config_names(self, what: str) -> Mapping[str, str]:
        """Kinds of ``executor`` or ``runtime`` and their summaries; imports no plugin."""
        from ..target.config_kind import core_kinds  # plugins and targets are read without

        own = {kind.name: kind.summary for kind in core_kinds(what)}
        return own | {row.name: row.summary for _, row in self._manager.config_rows(what)}

    def config_kind(self, what: str, name: str) -> ConfigKind:
        """A kind of ``executor`` or ``runtime`` by name or alias; imports a plugin's at first use.

        Raises:
            UsageError: Nobody has it.
            DuplicateName: Two plugins have it.
            PluginError: Its plugin is broken.
        """
        from ..target.config_kind import core_kinds

        for kind in core_kinds(what):
            if name == kind.name or name in kind.aliases:
                return kind
        return self._manager.config_kind(what, name)

    def tag(self, name: str) -> Tag | None:
        """The hardware tag that a name means; ``None`` if there is none.

        Raises:
            TargetError: The name has the form of a tag, and there is none of that name.
            DuplicateName: Several tags have the name.
            PluginError: The tag's entry, or that of a parent, is wrong.
        """
        table = self.hardware()
        if "/" in name or table.find(name) is not None:
            found = table.resolve(name)
            return Tag(found.name, found.target, found.keys)
        return None

    def hardware(self) -> HardwareTable:
        """All hardware tags; reads the plugins' files at the first use, imports nothing."""
        if self._hardware is None:
            from ..target.hardware import load_hardware  # most commands name no hardware

            usable = [p for p in self._manager.found if p.state in (State.DISCOVERED, State.LOADED)]
            self._hardware = load_hardware(usable, self._own_hardware)
        return self._hardware

    def hardware_of(self, target: CompositeTarget) -> Hardware | None:
        """The hardware that a target names; ``None`` if it names none.

        Its ``type`` is the name under which measurements of the target are kept.
        """
        for one in (target.fallback, target.host, *target.accelerators):
            if one.hardware:
                return self.hardware().resolve(one.hardware)
        return None

    def target(
        self,
        spec: TargetSpec,
        target_host: str | Mapping[str, object] | Target | None = None,
        *,
        origin: Origin | None = None,
    ) -> CompositeTarget:
        """Parse ``spec`` to a canonical composite; see :mod:`intarsia.target.parse`.

        Args:
            spec: String, JSON text, name of a ``.json`` file, dict, a target, or a
                list of them.
            target_host: The host; must equal the one that ``spec`` names, if it names one.
            origin: The source of the target, and options that are set besides.

        Raises:
            TargetError: It is wrong; the message points at the position.
            PluginError: The plugin of one of its kinds cannot be used.
        """
        from ..target.read import read_spec  # listing does without the parser

        return read_spec(spec, self, target_host, origin)

    def memory_of(self, target: CompositeTarget) -> tuple[Memory, ...]:
        """The levels of memory of a target's device, outermost first.

        They are those of the fallback's kind; a level that the hardware tag describes replaces its
        namesake.
        """
        from intarsia_ir.hardware.tags import merge_memory

        hardware = self.hardware_of(target)
        return merge_memory(target.fallback.kind.memory, hardware.memory if hardware else ())

    def frontends(self) -> tuple[FrontendInfo, ...]:
        """The model formats of all usable plugins, from their manifests; imports nothing."""
        return tuple(
            FrontendInfo(row.name, row.suffixes, plugin.name, plugin.distribution)
            for plugin, row in self._manager.frontend_rows()
        )

    def frontend_for(self, model: Path | bytes) -> Frontend:
        """The importer of a model: by the suffix of its name, or else by its first bytes.

        Bytes, and a file with an unknown suffix, are passed to ``sniff`` of every format.

        Args:
            model: A file, or the model's bytes.

        Raises:
            UnsupportedError: No installed format is the model's.
            ModelError: The file cannot be read.
            DuplicateName: Two plugins have the suffix.
            PluginError: A plugin cannot be used, or failed.
        """
        from .formats import frontend_for  # most commands import no model

        return frontend_for(self._manager, model)

    def commands(self) -> tuple[CommandInfo, ...]:
        """The commands that plugins add, from their manifests; imports nothing."""
        return tuple(
            CommandInfo(row.name, row.summary, plugin.name, plugin.distribution)
            for plugin, row in self._manager.command_rows()
        )

    def command(self, name: str) -> click.Command:
        """A plugin's command, guarded.

        Raises:
            UsageError: No plugin has it.
            DuplicateName: Two have it.
            PluginError: Its plugin is broken.
        """
        return self._manager.command(name)

    def has_hook(self, kind: str, hook: str) -> bool:
        """Whether the owner of a kind implements a hook; imports the plugin at the first use.

        Raises:
            PluginError: The plugin cannot be used, or there is no such hook.
        """
        from .routing import implements

        self._manager.kind(kind)
        return implements(self._manager.hooks(), hook, self._manager.owner(kind).name)

    def fingerprint(self, kind: str) -> str:
        """A digest of everything that decides the behavior of a kind's plugin; empty if unknown.

        It changes with the plugin's files, its version, this Python, and what is installed beside.

        Raises:
            PluginError: The plugin cannot be used.
        """
        from hashlib import sha256

        from .fingerprint import fingerprint

        owner = self._manager.owner(kind)
        if owner.hooks is not None and owner.folder is None:
            return ""
        return sha256(fingerprint(owner).encode(errors="surrogateescape")).hexdigest()

    def canonicalize(self, target: Target) -> Target:
        """The target with the options that its plugin fills in; hook ``canonicalize_target``.

        Raises:
            TargetError: Its options do not go together.
            PluginError: The plugin failed.
        """
        answer = self.ask("canonicalize_target", target.kind.name, target=target)
        return target if answer is None else cast("Target", answer)

    def environment_versions(self, targets: Iterable[Target]) -> dict[str, str]:
        """Kind to version of the vendor component that a build depends on, if the plugin has one.

        Raises:
            PluginError: A plugin failed.
        """
        versions = {
            part.kind.name: self.ask("environment_version", part.kind.name, target=part)
            for part in targets
        }
        return {kind: str(version) for kind, version in versions.items() if version is not None}

    def call(self, hook: str, /, kind: str, **arguments: object) -> object:
        """Call a hook of the plugin that owns a kind, and return its checked answer.

        Args:
            hook: A hook of :mod:`intarsia.host.hookspecs`.
            kind: Name of the kind.
            arguments: The hook's arguments, by name.

        Raises:
            PluginError: The plugin cannot be used, lacks the hook, failed, or answered nonsense.
            IntarsiaError: An error that the plugin raised on purpose, with the plugin named.
        """
        from .routing import ask

        self._manager.kind(kind)
        return ask(self._manager.hooks(), hook, self._manager.owner(kind), arguments)

    def ask(self, hook: str, /, kind: str, **arguments: object) -> object:
        """As :meth:`call`; ``None`` if the plugin lacks the hook, or has no answer.

        Raises:
            PluginError: The plugin cannot be used, failed, or answered nonsense.
            IntarsiaError: An error that the plugin raised on purpose, with the plugin named.
        """
        return self.call(hook, kind, **arguments) if self.has_hook(kind, hook) else None


class _CheckedAliases(Mapping[str, str]):
    """The alias table; a lookup refuses an alias with two owners."""

    def __init__(self, manager: PluginManager) -> None:
        self._manager = manager
        self._table = manager.aliases()

    def __getitem__(self, name: str) -> str:
        self._manager.check_alias(name)
        return self._table[name]

    def __contains__(self, name: object) -> bool:
        return name in self._table

    def __iter__(self):  # noqa: ANN204
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _by_name(row: KindInfo) -> tuple[str, str]:
    return row.name, row.distribution


def _info(plugin: Found) -> PluginInfo:
    manifest = plugin.manifest
    return PluginInfo(
        name=plugin.name,
        distribution=plugin.distribution,
        version=plugin.version,
        api=manifest.api if manifest else "",
        summary=manifest.summary if manifest else "",
        kinds=tuple(row.name for row in manifest.kinds) if manifest else (),
        aliases=tuple(row.name for row in manifest.aliases) if manifest else (),
        state=plugin.state.value,
        reason=plugin.reason,
        remedy=plugin.remedy,
        executors=tuple(n for row in manifest.executors for n in row.names) if manifest else (),
        runtimes=tuple(n for row in manifest.runtimes for n in row.names) if manifest else (),
        hardware=manifest.hardware if manifest else (),
        attributes=tuple(f"{r.name} of {r.kind}" for r in manifest.attributes) if manifest else (),
        loaders=plugin.loaders,
        frontends=tuple(row.name for row in manifest.frontends) if manifest else (),
        commands=tuple(row.name for row in manifest.commands) if manifest else (),
    )


def _read_settings(env: Mapping[str, str]) -> tuple[HardwareTag, ...]:
    """Return the user's hardware tags; every other setting of the host is checked at once.

    A wrong value is an error of what the user does next, not of the command that reads it first.
    """
    from .trial import skips_trials, time_limit_of

    time_limit_of(env)
    skips_trials(env)
    if not env.get("INTARSIA_HARDWARE"):
        return ()
    from ..target.hardware import own_hardware  # few have files of their own

    return own_hardware(env)
