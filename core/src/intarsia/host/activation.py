# SPDX-License-Identifier: Apache-2.0
"""Imports a plugin, registers its hooks, takes its kinds; undoes all of it if anything is wrong."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping
from typing import cast

import pluggy

from ..errors import IntarsiaError, PluginError
from ..target.kind import TargetKind
from ..target.options import option_rows
from . import hookspecs
from .discovery import Found, State
from .manifest import Manifest
from .markers import PROJECT
from .routing import ask, wrapped


def new_hooks() -> pluggy.PluginManager:
    """Return a plugin manager that knows the hooks and no plugin."""
    pm = pluggy.PluginManager(PROJECT)
    pm.add_hookspecs(hookspecs)
    return pm


def activate(pm: pluggy.PluginManager, plugin: Found) -> tuple[TargetKind, ...]:
    """Import and register a plugin; returns its kinds.

    Raises:
        PluginError: It cannot be imported, has a hook that does not exist, or registers other
            kinds than its manifest says. Nothing of it stays registered, and its state is
            ``broken``.
    """
    assert plugin.manifest is not None
    try:
        module = plugin.hooks or _imported(plugin, plugin.manifest)
        _register(pm, plugin, module)
        kinds = cast("tuple[TargetKind, ...]", ask(pm, "register_target_kind", plugin, {}))
        _check_kinds(plugin, plugin.manifest, kinds)
    except IntarsiaError as error:
        if pm.has_plugin(plugin.name):
            pm.unregister(name=plugin.name)
        remedy = error.hint or f"upgrade or uninstall {plugin.distribution}"
        plugin.fail(State.BROKEN, error.message, remedy)
        raise
    plugin.state = State.LOADED
    return kinds


def _imported(plugin: Found, manifest: Manifest) -> object:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout belongs to --json
            return importlib.import_module(manifest.hooks)
    except KeyboardInterrupt:
        raise
    except BaseException as cause:  # a plugin may raise anything, also SystemExit
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
            f"{plugin.label} has a hook that the host does not know or calls otherwise: {reason}",
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
