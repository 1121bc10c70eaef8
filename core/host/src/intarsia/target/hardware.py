# SPDX-License-Identifier: Apache-2.0
"""Which hardware tag implies which target: those of all plugins and of the user, together.

Reads files alone, and imports no plugin.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia_ir.hardware.tag_file import read_hardware
from intarsia_ir.hardware.tags import HardwareTable, HardwareTag
from intarsia_runtime.errors import ModelError, PluginError

if TYPE_CHECKING:
    from ..host.discovery import Found

FILES = "INTARSIA_HARDWARE"
"""Environment variable: the user's own hardware files, separated as in ``PATH``."""


def load_hardware(plugins: Iterable[Found], own: Iterable[HardwareTag]) -> HardwareTable:
    """Return the tags of usable plugins, and the user's own.

    A plugin's file that cannot be read keeps nobody from using the others: the reason goes to
    ``problems`` of the table.
    """
    tags: list[HardwareTag] = []
    problems: list[str] = []
    for plugin in plugins:
        for name in plugin.manifest.hardware if plugin.manifest else ():
            try:
                tags += _of_plugin(plugin, name)
            except PluginError as error:
                problems.append(f"{plugin.label}: {error.where or name}: {error.message}")
    return HardwareTable([*tags, *own], problems)


def own_hardware(env: Mapping[str, str]) -> tuple[HardwareTag, ...]:
    """Return the tags of the user's files; ``()`` if the variable is unset or empty.

    Raises:
        ModelError: A file cannot be read, or is wrong; the message names :data:`FILES`.
    """
    names = filter(None, env.get(FILES, "").split(os.pathsep))
    return tuple(tag for name in names for tag in _of_user(Path(name)))


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
        raise ModelError(
            f"the hardware file cannot be read: {cause.strerror or cause}",
            hint=f"{FILES} holds names of TOML files, with '{os.pathsep}' between them",
            where=f"{FILES}, {path}",
        ) from None
    except ValueError as cause:  # a null byte in the name
        raise ModelError(f"{FILES}: {cause}") from None
    return read_hardware(raw, file=f"{FILES}, {path}", owner=str(path))
