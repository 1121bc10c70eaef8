# SPDX-License-Identifier: Apache-2.0
"""Imports a plugin, registers its hooks, takes its kinds; undoes all of it if anything is wrong."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, cast

import pluggy
from msgspec import Struct

from intarsia_runtime.errors import IntarsiaError, PluginError
from intarsia_runtime.guarded import Foreign, is_plugins_own

from ..target.kind import TargetKind
from ..target.options import option_rows
from . import hookspecs
from .discovery import Found, State
from .guard import quiet_stdout, undisturbed
from .hookspecs import PROJECT
from .manifest import Manifest
from .routing import ask, implements, wrapped
from .time_limit import time_limit, time_limit_of

if TYPE_CHECKING:
    import click

    from ..target.config_kind import ConfigKind
    from ..target.kind_attribute import KindAttributeValue
    from .frontend import Frontend


def new_hooks() -> pluggy.PluginManager:
    """Return a plugin manager that knows the hooks and no plugin."""
    pm = pluggy.PluginManager(PROJECT)
    pm.add_hookspecs(hookspecs)
    return pm


class Activated(Struct, frozen=True):
    """What a plugin registered, once it is used: kinds, and attributes of kinds."""

    kinds: tuple[TargetKind, ...]
    executors: tuple[ConfigKind, ...]
    runtimes: tuple[ConfigKind, ...]
    attributes: tuple[KindAttributeValue, ...] = ()


def activate(pm: pluggy.PluginManager, plugin: Found, *, restore: bool = True) -> Activated:
    """Import and register a plugin; returns its kinds.

    Args:
        pm: The hooks.
        plugin: The plugin.
        restore: Whether to put back what its import changes of the process.

    Raises:
        PluginError: It cannot be imported, has a hook that does not exist, or registers other
            kinds than its manifest says. Nothing of it stays registered, and its state is
            ``broken``.
        UsageError: The limit of time that the user has set is none.
    """
    assert plugin.manifest is not None
    seconds = time_limit_of(os.environ)
    try:
        module = plugin.hooks or _imported(
            plugin, plugin.manifest, undisturbed if restore else nullcontext, seconds
        )
        _register(pm, plugin, module)
        kinds = _target_kinds(pm, plugin, plugin.manifest)
        executors = _config_kinds(pm, plugin, "executor", plugin.manifest)
        runtimes = _config_kinds(pm, plugin, "runtime", plugin.manifest)
        attributes = _attributes(pm, plugin, plugin.manifest)
    except IntarsiaError as error:
        if pm.has_plugin(plugin.name):
            pm.unregister(name=plugin.name)
        remedy = error.hint or f"upgrade or uninstall {plugin.distribution}"
        plugin.fail(State.BROKEN, error.message, remedy)
        raise
    plugin.state = State.LOADED
    return Activated(kinds, executors, runtimes, attributes)


def _target_kinds(
    pm: pluggy.PluginManager, plugin: Found, manifest: Manifest
) -> tuple[TargetKind, ...]:
    if not manifest.kinds and not implements(pm, "register_target_kind", plugin.name):
        return ()
    kinds = cast("tuple[TargetKind, ...]", ask(pm, "register_target_kind", plugin, {}))
    _check_kinds(plugin, manifest, kinds)
    return kinds


def _config_kinds(
    pm: pluggy.PluginManager, plugin: Found, what: str, manifest: Manifest
) -> tuple[ConfigKind, ...]:
    """Ask for kinds of executor or runtime, if the manifest declares any, and check them."""
    hook = f"register_{what}_kind"
    promised = sorted("/".join(row.names) for row in manifest.config_rows(what))
    if not promised:
        return ()
    from ..target.config_kind import core_kinds  # few plugins have such a kind

    kinds = cast("tuple[ConfigKind, ...]", ask(pm, hook, plugin, {}))
    given = sorted("/".join((kind.name, *kind.aliases)) for kind in kinds)
    _check_promise(plugin, f"{what} kinds", promised, given)
    taken = {name for kind in core_kinds(what) for name in (kind.name, *kind.aliases)}
    for kind in kinds:
        clash = taken & {kind.name, *kind.aliases}
        if clash:
            raise PluginError(
                f"{plugin.label} registers an {what} '{clash.pop()}', which the host already has",
                hint=f"upgrade {plugin.distribution}",
            )
        try:
            option_rows(kind.options)
        except PluginError as error:
            raise wrapped(error, plugin, f"{what} kind '{kind.name}'") from error
    return kinds


def _attributes(
    pm: pluggy.PluginManager, plugin: Found, manifest: Manifest
) -> tuple[KindAttributeValue, ...]:
    """Ask for attributes of kinds, if the manifest declares any, and check them."""
    if not manifest.attributes:
        return ()
    values = cast("tuple[KindAttributeValue, ...]", ask(pm, "register_kind_attribute", plugin, {}))
    promised = sorted(f"{row.name} of {row.kind}" for row in manifest.attributes)
    given = sorted(f"{value.name} of {value.kind}" for value in values)
    _check_promise(plugin, "attributes", promised, given)
    for value in values:
        if not value.is_typed:
            raise PluginError(
                f"{plugin.label} gives attribute '{value.name}' of '{value.kind}' "
                f"as {type(value.value).__name__}, not {value.type.__name__}",
                hint=f"upgrade {plugin.distribution}",
            )
    return values


def frontends_of(pm: pluggy.PluginManager, plugin: Found) -> tuple[Frontend, ...]:
    """Ask a plugin in use for its model formats, and check them against its manifest.

    Raises:
        PluginError: It failed, or gives other formats than its manifest declares.
    """
    assert plugin.manifest is not None
    made = cast("tuple[Frontend, ...]", ask(pm, "register_frontend", plugin, {}))
    promised = sorted(f"{row.name} ({' '.join(row.suffixes)})" for row in plugin.manifest.frontends)
    given = sorted(f"{one.name} ({' '.join(one.suffixes)})" for one in made)
    _check_promise(plugin, "frontends", promised, given)
    return made


def commands_of(pm: pluggy.PluginManager, plugin: Found) -> tuple[click.Command, ...]:
    """Ask a plugin in use for its commands, and check them against its manifest.

    What a command calls is guarded: its errors name the plugin.

    Raises:
        PluginError: It failed, or gives other commands than its manifest declares.
    """
    assert plugin.manifest is not None
    made = cast("tuple[click.Command, ...]", ask(pm, "register_commands", plugin, {}))
    promised = sorted(row.name for row in plugin.manifest.commands)
    _check_promise(plugin, "commands", promised, sorted(str(one.name) for one in made))
    for command in made:
        _guard_command(command, plugin, str(command.name))
    return made


def _guard_command(command: click.Command, plugin: Found, name: str) -> None:
    """Guard what a command and its subcommands call; they take as long as they take."""
    if command.callback is not None:
        command.callback = _guarded_callback(command.callback, plugin, f"command '{name}'")
    inner = cast("Mapping[str, click.Command]", getattr(command, "commands", {}))
    for word, one in inner.items():
        _guard_command(one, plugin, f"{name} {word}")


def _guarded_callback(call: Foreign, plugin: Found, doing: str) -> Foreign:
    """Let errors name the plugin, but for those by which a command ends: usage, exit, abort."""
    import click

    ends = (click.ClickException, click.exceptions.Exit, click.Abort)

    @functools.wraps(call)
    def run(*arguments: object, **named: object) -> object:
        try:
            return call(*arguments, **named)
        except ends:
            raise
        except BaseException as cause:
            if not is_plugins_own(cause):
                raise
            raise wrapped(cause, plugin, doing) from cause

    return run


def _check_promise(plugin: Found, what: str, promised: list[str], given: list[str]) -> None:
    if promised != given:
        raise PluginError(
            f"{plugin.label} registers the {what} {', '.join(given) or 'none'}, "
            f"but its manifest declares {', '.join(promised) or 'none'}",
            hint=f"upgrade {plugin.distribution}",
        )


def _imported(
    plugin: Found,
    manifest: Manifest,
    kept: Callable[[], AbstractContextManager[None]],
    seconds: float,
) -> object:
    try:
        with quiet_stdout(), kept(), time_limit(seconds):
            return importlib.import_module(manifest.hooks)
    except BaseException as cause:  # a plugin may raise anything, also SystemExit
        if isinstance(cause, KeyboardInterrupt) and not is_plugins_own(cause):
            raise
        error = wrapped(cause, plugin, f"import of {manifest.hooks}")
        if isinstance(error, PluginError):
            raise error from cause
        raise PluginError(str(error)) from cause


def _register(pm: pluggy.PluginManager, plugin: Found, module: object) -> None:
    try:
        pm.register(module, name=plugin.name)
        pm.check_pending()
    except (pluggy.PluginValidationError, ValueError) as cause:
        reason = str(cause).replace("\n", " ").strip()
        raise PluginError(
            f"{plugin.label} has an unknown hook, or one with other arguments: {reason}",
            hint=f"upgrade {plugin.distribution}",
        ) from cause


def _check_kinds(plugin: Found, manifest: Manifest, kinds: tuple[TargetKind, ...]) -> None:
    promised = {row.name: row.role for row in manifest.kinds}
    given = {kind.name: kind.role for kind in kinds}
    if promised != given or len(kinds) != len(given):
        raise PluginError(
            f"{plugin.label} registers the kinds {_listed(given)}, "
            f"but its manifest declares {_listed(promised)}",
            hint=f"upgrade {plugin.distribution}",
        )
    for kind in kinds:
        try:
            option_rows(kind.options)
        except PluginError as error:
            raise wrapped(error, plugin, f"target kind '{kind.name}'") from error


def _listed(kinds: Mapping[str, object]) -> str:
    return ", ".join(sorted(kinds)) or "none"
