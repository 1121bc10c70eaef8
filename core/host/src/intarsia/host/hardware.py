# SPDX-License-Identifier: Apache-2.0
"""Collects the hardware tags of all plugins and of the user; imports no plugin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from intarsia_runtime.errors import ModelError, PluginError

from ..target.hardware import HardwareTable, HardwareTag
from ..target.hardware_file import read_hardware
from .discovery import Found

FILES = "INTARSIA_HARDWARE"
"""Environment variable: the user's own hardware files, separated as in ``PATH``."""


def load_hardware(plugins: Iterable[Found], env: Mapping[str, str]) -> HardwareTable:
    """Return the tags of usable plugins and of the user's files.

    A plugin's file that cannot be read keeps nobody from using the others: the reason goes to
    ``problems`` of the table.

    Raises:
        ModelError: A file of the user is wrong.
    """
    tags: list[HardwareTag] = []
    problems: list[str] = []
    for plugin in plugins:
        for name in plugin.manifest.hardware if plugin.manifest else ():
            try:
                tags += _of_plugin(plugin, name)
            except PluginError as error:
                problems.append(f"{plugin.label}: {error.where or name}: {error.message}")
    for name in filter(None, env.get(FILES, "").split(os.pathsep)):
        tags += _of_user(Path(name))
    return HardwareTable(tags, problems)


def _of_plugin(plugin: Found, name: str) -> tuple[HardwareTag, ...]:
    if plugin.folder is None:
        raise PluginError("the plugin is not installed and has no folder", where=name)
    try:
        raw = plugin.folder.joinpath(*name.split("/")).read_bytes()
    except (OSError, KeyError, ValueError) as cause:
        raise PluginError(f"the file cannot be read: {cause}", where=name) from None
    return read_hardware(raw, file=name, owner=plugin.distribution, fault=PluginError)


def _of_user(path: Path) -> tuple[HardwareTag, ...]:
    try:
        raw = path.read_bytes()
    except OSError as cause:
        raise ModelError(f"the hardware file cannot be read: {cause}", where=str(path)) from None
    return read_hardware(raw, file=str(path), owner=str(path))
