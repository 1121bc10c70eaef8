# SPDX-License-Identifier: Apache-2.0
"""Which plugins there are, which may be used, who owns what; imports a plugin when it is used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import importlib_metadata
from msgspec import Struct

from intarsia_runtime.errors import (
    DuplicateName,
    PluginError,
    TargetError,
    UsageError,
    did_you_mean,
)

from ..target.kind_table import unknown_kind
from .discovery import Found, State, find_plugins, name_key
from .manifest import ConfigRow, Manifest
from .registry import Registry
from .trial import survive

if TYPE_CHECKING:
    import click
    import pluggy

    from ..target.config_kind import ConfigKind
    from ..target.kind import TargetKind
    from .frontend import Frontend
    from .manifest import CommandRow, FrontendRow

ALLOW = "INTARSIA_PLUGINS"
"""Environment variable: the only plugins to use, comma-separated."""

DENY = "INTARSIA_DISABLE_PLUGINS"
"""Environment variable: plugins or distributions not to use, comma-separated."""


class LocalPlugin(Struct, frozen=True):
    """A plugin given as an object and not installed, for tests and notebooks.

    Attributes:
        manifest: What its ``plugin.toml`` would say.
        hooks: Module or object with the hook implementations.
        distribution: Named in messages.
        folder: Where the files lie that the manifest names, if it names any.
    """

    manifest: Manifest
    hooks: object
    distribution: str = "in-process"
    folder: Path | None = None


class PluginManager:
    """Discovery, settings, owners and lazy activation; one for each host.

    Args:
        env: Environment with the two settings.
        disabled: Plugins or distributions not to use.
        path: Searched instead of ``sys.path``.
        local: Plugins that are not installed.
        trace: Called with a line for every hook call.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        disabled: Iterable[str] = (),
        path: Sequence[str] | None = None,
        local: Sequence[LocalPlugin] = (),
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self._env = env
        self._trace = trace
        self.found = [_given(plugin) for plugin in local] + find_plugins(path)
        self._block(env, frozenset(disabled))
        self._lock = threading.RLock()
        self._hooks: pluggy.PluginManager | None = None
        self._kinds: Registry[TargetKind] = Registry("target kind")
        self._config: Mapping[str, Registry[ConfigKind]] = {
            "executor": Registry("executor"),
            "runtime": Registry("runtime"),
        }
        self._owners: dict[str, list[Found]] = {}
        self._aliases: dict[str, list[tuple[Found, str]]] = {}
        self._names: dict[str, list[Found]] = {}
        for plugin in self._usable():
            manifest = _manifest(plugin)
            self._names.setdefault(plugin.name, []).append(plugin)
            for kind in manifest.kinds:
                self._owners.setdefault(kind.name, []).append(plugin)
            for alias in manifest.aliases:
                self._aliases.setdefault(alias.name, []).append((plugin, alias.target))
        self._config_rows = {
            what: [(p, row) for p in self._usable() for row in _manifest(p).config_rows(what)]
            for what in self._config
        }
        self._attribute_rows = [(p, r) for p in self._usable() for r in _manifest(p).attributes]
        self._attributes: dict[tuple[str, str], object] = {}
        self._frontends: dict[str, tuple[Frontend, ...]] = {}
        self._commands: dict[str, tuple[click.Command, ...]] = {}
        self._note_conflicts()

    def _usable(self) -> list[Found]:
        usable = (State.DISCOVERED, State.LOADED)
        return [p for p in self.found if p.state in usable and p.manifest is not None]

    def _block(self, env: Mapping[str, str], disabled: frozenset[str]) -> None:
        allowed, denied = _listed(env, ALLOW), _listed(env, DENY)
        named = {name_key(name) for name in disabled}
        for plugin in self.found:
            names = {name_key(plugin.name), name_key(plugin.distribution)}
            if names & named:
                reason, remedy = "--no-plugin names it", "leave --no-plugin out"
            elif denied is not None and names & denied:
                reason, remedy = f"{DENY} names it", f"take it out of {DENY}"
            elif allowed is not None and not names & allowed:
                reason, remedy = f"{ALLOW} does not name it", f"add {plugin.name} to {ALLOW}"
            else:
                continue
            plugin.fail(State.BLOCKED, reason, remedy)

    def _note_conflicts(self) -> None:
        """Write a conflict into the reason of every plugin that has part in it."""
        claims = [("plugin", name, owners) for name, owners in self._names.items()]
        claims += [("target kind", name, owners) for name, owners in self._owners.items()]
        claims += [
            ("alias", name, [plugin for plugin, _ in rows]) for name, rows in self._aliases.items()
        ]
        for what, name, owners in claims:
            if len(owners) > 1:
                error = _conflict(what, name, owners)
                for plugin in owners:
                    plugin.reason, plugin.remedy = error.message, error.hint

        for name in self._aliases.keys() & self._owners.keys():
            kind = self._owners[name][0]
            for plugin, _ in self._aliases[name]:
                plugin.reason = (
                    f"its alias '{name}' is hidden: {kind.label} has a kind of that name"
                )
                plugin.remedy = f"write out what it stands for, or set {DENY}={kind.distribution}"

    def strange_settings(self) -> list[str]:
        """Say which names in the two settings are nobody's; ``[]`` if there are none."""
        names = sorted({name for p in self.found for name in (p.name, p.distribution)})
        known = {name_key(name) for name in names}
        notes: list[str] = []
        for setting in (ALLOW, DENY):
            for name in sorted((_listed(self._env, setting) or frozenset()) - known - {""}):
                hint = did_you_mean(name, names) or "no plugin or distribution is called that"
                notes.append(f"{setting} names '{name[:60]}', which is not installed: {hint}")
        return notes

    def kind_names(self) -> Collection[str]:
        """Names of the kinds of all usable plugins."""
        return self._owners.keys()

    def aliases(self) -> Mapping[str, str]:
        """Short names of all usable plugins; of a name with two owners, the first's meaning."""
        return {name: rows[0][1] for name, rows in self._aliases.items()}

    def check_alias(self, name: str) -> None:
        """Check that an alias has one owner only.

        Raises:
            DuplicateName: Two distributions give it.
        """
        rows = self._aliases.get(name, [])
        if len(rows) > 1:
            raise _conflict("alias", name, [plugin for plugin, _ in rows])

    def named(self, name: str) -> list[Found]:
        """Return the plugins of that name or distribution, whatever their state.

        Raises:
            UsageError: There is none.
        """
        keys = [(p, {name_key(p.name), name_key(p.distribution)}) for p in self.found]
        chosen = [plugin for plugin, names in keys if name_key(name) in names]
        if not chosen:
            names = sorted({p.name for p in self.found})
            raise UsageError(
                f"no plugin is called '{name}'",
                hint=did_you_mean(name, names) or f"installed: {', '.join(names) or 'none'}",
            )
        return chosen

    def owner(self, kind: str) -> Found:
        """Return the plugin that owns a kind; not yet activated.

        Raises:
            TargetError: Nobody has such a kind.
            DuplicateName: Two distributions claim the kind, or its plugin's name.
            PluginError: The kind's plugin is installed and cannot be used.
        """
        owners = self._owners.get(kind, [])
        if not owners:
            raise self._missing(kind)
        if len(owners) > 1:
            raise _conflict("target kind", kind, owners)
        namesakes = self._names[owners[0].name]
        if len(namesakes) > 1:
            raise _conflict("plugin", owners[0].name, namesakes)
        return owners[0]

    def _missing(self, kind: str) -> TargetError | PluginError:
        for plugin in self.found:
            kinds = (
                [row.name for row in plugin.manifest.kinds] if plugin.manifest else [plugin.name]
            )
            if kind in kinds and plugin.state is not State.DISCOVERED:
                return PluginError(
                    f"target kind '{kind}' belongs to {plugin.label}, "
                    f"which is {plugin.state.value}: {plugin.reason}",
                    hint=plugin.remedy,
                )
        return unknown_kind(kind, self._owners, self.aliases(), _remedy(kind))

    def kind(self, name: str) -> TargetKind:
        """Return a kind, activating its plugin at the first use.

        Raises:
            TargetError: Nobody has such a kind.
            DuplicateName: Two distributions claim it.
            PluginError: Its plugin is broken.
        """
        owner = self.owner(name)
        with self._lock:
            self._use(owner, f"target kind '{name}'")
            return self._kinds.get(name)

    def config_rows(self, what: str) -> list[tuple[Found, ConfigRow]]:
        """Kinds of ``executor`` or ``runtime`` of all usable plugins, from their manifests."""
        return self._config_rows[what]

    def config_kind(self, what: str, name: str) -> ConfigKind:
        """Return a plugin's kind of ``executor`` or ``runtime``, activating the plugin.

        Raises:
            UsageError: No plugin has it.
            DuplicateName: Two have it.
            PluginError: Its plugin is broken.
        """
        rows = self.config_rows(what)
        named = [(plugin, row) for plugin, row in rows if name in row.names]
        owners = [plugin for plugin, _ in named]
        if len(owners) > 1:
            raise _conflict(f"{what} kind", name, owners)
        if not owners:
            from ..target.config_kind import core_kinds

            known = [kind.name for kind in core_kinds(what)]
            known += [one for _, row in rows for one in row.names]
            raise UsageError(
                f"there is no {what} '{name[:60]}'",
                hint=did_you_mean(name, known) or f"one of {', '.join(known)}",
            )
        with self._lock:
            self._use(owners[0], f"{what} kind '{name}'")
            return self._config[what].get(named[0][1].name)

    def attribute_names(self, kind: str) -> Collection[str]:
        """Names of the columns in which usable plugins say something of a kind."""
        return {row.name for _, row in self._attribute_rows if row.kind == kind}

    def attribute(self, kind: str, name: str) -> object:
        """Return what a plugin says of a kind in one column, activating the plugin.

        Raises:
            DuplicateName: Two plugins do.
            PluginError: The plugin is broken.
        """
        owners = [p for p, row in self._attribute_rows if (row.kind, row.name) == (kind, name)]
        what = f"attribute '{name}' of target kind"
        if len(owners) > 1:
            raise _conflict(what, kind, owners)
        with self._lock:
            self._use(owners[0], f"{what} '{kind}'")
            return self._attributes[kind, name]

    def frontend_rows(self) -> list[tuple[Found, FrontendRow]]:
        """Model formats of all usable plugins, from their manifests."""
        return [(p, row) for p in self._usable() for row in _manifest(p).frontends]

    def frontend(self, name: str) -> Frontend:
        """Return the importer of a model format, activating its plugin.

        Raises:
            UsageError: No plugin has it.
            DuplicateName: Two have it.
            PluginError: Its plugin is broken.
        """
        rows = self.frontend_rows()
        owner = self._one_owner("frontend", name, [(p, row.name) for p, row in rows])
        with self._lock:
            self._use(owner, f"frontend '{name}'")
            if owner.name not in self._frontends:
                from .activation import frontends_of

                self._frontends[owner.name] = frontends_of(self.hooks(), owner)
            return next(one for one in self._frontends[owner.name] if one.name == name)

    def command_rows(self) -> list[tuple[Found, CommandRow]]:
        """Commands of all usable plugins, from their manifests."""
        return [(p, row) for p in self._usable() for row in _manifest(p).commands]

    def command(self, name: str) -> click.Command:
        """Return a plugin's command, activating the plugin.

        Raises:
            UsageError: No plugin has it.
            DuplicateName: Two have it.
            PluginError: Its plugin is broken.
        """
        rows = self.command_rows()
        owner = self._one_owner("command", name, [(p, row.name) for p, row in rows])
        with self._lock:
            self._use(owner, f"command '{name}'")
            if owner.name not in self._commands:
                from .activation import commands_of

                self._commands[owner.name] = commands_of(self.hooks(), owner)
            return next(one for one in self._commands[owner.name] if one.name == name)

    def _one_owner(self, what: str, name: str, rows: Sequence[tuple[Found, str]]) -> Found:
        owners = [plugin for plugin, given in rows if given == name]
        if len(owners) > 1:
            raise _conflict(what, name, owners)
        if not owners:
            known = [given for _, given in rows]
            raise UsageError(
                f"there is no {what} '{name[:60]}'",
                hint=did_you_mean(name, known) or f"one of {', '.join(known) or 'none'}",
            )
        return owners[0]

    def _use(self, owner: Found, what: str) -> None:
        """Activate a plugin, unless that is done or went wrong before."""
        if owner.state is State.BROKEN:
            raise PluginError(
                f"{what} belongs to {owner.label}, which is broken: {owner.reason}",
                hint=owner.remedy,
            )
        if owner.state is not State.LOADED:
            self._try_out(owner)
            self._activate(owner)

    def _labels(self) -> dict[str, str]:
        return {plugin.name: plugin.label for plugin in self.found}

    def _try_out(self, owner: Found) -> None:
        try:
            survive(owner, self._env)
        except PluginError as error:
            owner.fail(State.BROKEN, error.message, error.hint)
            raise

    def _activate(self, owner: Found) -> None:
        from .activation import activate, new_hooks  # imports pluggy, which listing must not

        if self._hooks is None:
            self._hooks = new_hooks()
            if self._trace is not None:
                from .tracing import trace_calls

                trace_calls(self._hooks, self._labels(), self._trace)
        owner.say = self._trace
        made = activate(self._hooks, owner)
        for kind in made.kinds:
            if self.attribute_names(kind.name):
                kind = replace(kind, attributes=_Attributes(self, kind.name))
            self._kinds.add(kind.name, kind, owner=owner.distribution)
        for row in made.attributes:
            self._attributes[row.kind, row.name] = row.value
        for what, kinds in (("executor", made.executors), ("runtime", made.runtimes)):
            for kind in kinds:
                self._config[what].add(kind.name, kind, owner=owner.distribution)

    def hooks(self) -> pluggy.PluginManager:
        """The hooks of the plugins activated so far.

        Raises:
            PluginError: None was activated.
        """
        if self._hooks is None:
            raise PluginError("no plugin is activated")
        return self._hooks


class _Attributes(Mapping[str, object]):
    """What plugins say of a kind; a plugin is activated when its word is asked for."""

    def __init__(self, manager: PluginManager, kind: str) -> None:
        self._manager, self._kind = manager, kind

    def __getitem__(self, name: str) -> object:
        if name not in self._manager.attribute_names(self._kind):
            raise KeyError(name)
        return self._manager.attribute(self._kind, name)

    def __contains__(self, name: object) -> bool:
        return name in self._manager.attribute_names(self._kind)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._manager.attribute_names(self._kind)))

    def __len__(self) -> int:
        return len(self._manager.attribute_names(self._kind))


def _remedy(kind: str) -> str:
    """How to get a kind or an alias that is released together with Intarsia; empty for any other.

    Intarsia has an extra of the same name for each of them, which is one plugin.
    """
    from packaging.requirements import Requirement  # only for the message

    try:
        texts = importlib_metadata.requires("intarsia") or []
    except importlib_metadata.PackageNotFoundError:
        return ""
    wanted = [Requirement(text) for text in texts]
    extra = {"extra": name_key(kind)}
    chosen = [one.name for one in wanted if one.marker and one.marker.evaluate(extra)]
    if len(chosen) == 1 and chosen[0].startswith("intarsia-"):
        return f"pip install {chosen[0]}"
    return ""


def _given(plugin: LocalPlugin) -> Found:
    version = "0"
    return Found(
        plugin.manifest.name,
        plugin.distribution,
        version,
        plugin.manifest,
        hooks=plugin.hooks,
        folder=plugin.folder,
    )


def _manifest(plugin: Found) -> Manifest:
    assert plugin.manifest is not None
    return plugin.manifest


def _listed(env: Mapping[str, str], name: str) -> frozenset[str] | None:
    text = env.get(name)
    if text is None or not text.strip():
        return None
    return frozenset(name_key(part.strip()) for part in text.split(","))


def _conflict(what: str, name: str, owners: Sequence[Found]) -> DuplicateName:
    both = " and ".join(sorted(f"'{plugin.distribution}'" for plugin in owners))
    settings = " or ".join(sorted(f"{DENY}={plugin.distribution}" for plugin in owners))
    return DuplicateName(f"{what} '{name}' is claimed by both {both}", hint=f"{settings} decides")
