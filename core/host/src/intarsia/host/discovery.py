# SPDX-License-Identifier: Apache-2.0
"""Finds plugins through the metadata of installed distributions; imports none of them.

A plugin is an entry point of group ``intarsia.plugins`` whose value names a data file in a package:
``npu = "acme_npu:plugin.toml"``. The file is looked for where the distribution's files are (also
inside a wheel on ``sys.path``), then in the source tree of an editable install, then along
``sys.path``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import unquote, urlsplit

import importlib_metadata
from msgspec import Struct

from intarsia_runtime.errors import PluginError

from .manifest import Manifest, parse_manifest

GROUP = "intarsia.plugins"
"""Entry-point group of plugins."""

HOOK_API = "2.0"
_MAJOR = int(HOOK_API.partition(".")[0])
_USUAL_RANGE = f">={_MAJOR}.0,<{_MAJOR + 1}"  # to read any other range takes 20 ms of imports
"""Version of the hooks that this host calls; a manifest's ``api`` is a range of it."""

LOADERS = "intarsia.loaders"
"""Entry-point group of what loads units when an artifact runs."""

_VALUE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*:\s*([A-Za-z0-9_-]+\.toml)", re.ASCII)


class State(Enum):
    """What became of a plugin."""

    DISCOVERED = "discovered"  # its manifest is read; nothing is imported
    BLOCKED = "blocked"  # a setting keeps it from being used
    INCOMPATIBLE = "incompatible"  # made for another version of the hooks
    BROKEN = "broken"  # its manifest or its code has a mistake
    LOADED = "loaded"  # imported and registered


class DataPath(Protocol):
    """The part of a path that wheels inside a zip file have too."""

    @property
    def parent(self) -> DataPath:
        """The folder."""
        ...

    def joinpath(self, *parts: str) -> DataPath:
        """A path below this one."""
        ...

    def is_file(self) -> bool:
        """Whether it is there and a file."""
        ...

    def read_bytes(self) -> bytes:
        """Its content."""
        ...

    def read_text(self, encoding: str) -> str:
        """Its content, decoded."""
        ...


class Found(Struct):
    """A plugin as found: mutable, because its state changes when it is used.

    Attributes:
        name: Name of the entry point.
        distribution: Distribution it comes from.
        version: Of the distribution.
        manifest: What it says of itself; ``None`` if that cannot be read.
        state: What became of it.
        reason: Why it is not usable; empty if it is.
        remedy: What the user can do about that.
        hooks: The object with the hook implementations, for a plugin given as an object.
        folder: Where its manifest lies, also inside a wheel; ``None`` for a plugin given as an
            object.
        loaders: Names of the loaders that the distribution has.
        say: Called with a line for every call of a callable that it hands over.
    """

    name: str
    distribution: str
    version: str
    manifest: Manifest | None = None
    state: State = State.DISCOVERED
    reason: str = ""
    remedy: str = ""
    hooks: object = None
    folder: DataPath | None = None
    loaders: tuple[str, ...] = ()
    say: Callable[[str], None] | None = None

    @property
    def label(self) -> str:
        """Name, distribution and version, for messages."""
        return f"plugin '{self.name}' ({self.distribution} {self.version})"

    def fail(self, state: State, reason: str, remedy: str) -> None:
        """Record that it cannot be used, and why."""
        self.state, self.reason, self.remedy = state, reason, remedy


class _Distribution(Protocol):
    """The part of a distribution's metadata that is read."""

    def read_text(self, filename: str) -> str | None: ...

    def locate_file(self, path: str) -> object: ...


def find_plugins(path: Sequence[str] | None = None) -> list[Found]:
    """Return every plugin of every distribution, by name, then distribution.

    Of two copies of one distribution the first on the path counts, as it does for imports.

    Args:
        path: Searched instead of ``sys.path``.
    """
    where = list(sys.path if path is None else path)
    found: list[Found] = []
    seen: set[str] = set()
    for distribution in importlib_metadata.distributions(path=where):
        text = _entry_points_text(distribution)
        if GROUP not in text:
            continue
        name, version = _identity(distribution)
        key = name_key(name)
        if key in seen:
            continue
        seen.add(key)
        loaders = tuple(entry for entry, _ in _entries(text, LOADERS))
        for entry, value in _entries(text, GROUP):
            plugin = Found(entry, name, version, loaders=loaders)
            _read(plugin, value, distribution, where)
            found.append(plugin)
    return sorted(found, key=_order)


def repeated_distributions() -> dict[str, list[str]]:
    """Distributions with plugins that are installed more than once, and where; the first counts."""
    places: dict[str, list[str]] = {}
    for distribution in importlib_metadata.distributions(path=list(sys.path)):
        if GROUP in _entry_points_text(distribution):
            place = str(distribution.locate_file(""))
            known = places.setdefault(name_key(_identity(distribution)[0]), [])
            label = f"{_identity(distribution)[1]} in {place}"
            if label not in known:
                known.append(label)
    return {name: where for name, where in places.items() if len(where) > 1}


def name_key(name: str) -> str:
    """The form in which names of distributions and plugins compare (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _order(plugin: Found) -> tuple[str, str]:
    return plugin.name, plugin.distribution


def _entry_points_text(distribution: _Distribution) -> str:
    try:
        return distribution.read_text("entry_points.txt") or ""
    except (OSError, ValueError):  # unreadable metadata of a stranger is not ours to report
        return ""


def _identity(distribution: _Distribution) -> tuple[str, str]:
    """Name and version from the head of METADATA; parsing it as mail costs ten times more."""
    try:
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    except (OSError, ValueError):
        text = ""
    head = text.replace("\r\n", "\n").split("\n\n", 1)[0]
    fields = dict(re.findall(r"^(Name|Version):[ \t]*(\S+)", head, re.MULTILINE))
    return fields.get("Name", "unknown"), fields.get("Version", "unknown")


def _entries(text: str, group: str) -> Iterator[tuple[str, str]]:
    """Names and values of a group, in the order of the file."""
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def _read(plugin: Found, value: str, distribution: _Distribution, path: Sequence[str]) -> None:
    """Fill in the manifest, or the reason why there is none."""
    remedy = f"upgrade or uninstall {plugin.distribution}"
    match = _VALUE.fullmatch(value)
    if match is None:
        reason = f"its entry point is {value[:100]!r}, not 'package:plugin.toml'"
        plugin.fail(State.BROKEN, reason, remedy)
        return
    parts = (*match[1].split("."), match[2])
    try:
        for candidate in _candidates(distribution, parts, path):
            if candidate.is_file():
                plugin.manifest = parse_manifest(candidate.read_text(encoding="utf-8"))
                plugin.folder = candidate.parent
                break
        else:
            raise PluginError(f"{'/'.join(parts)} is not in the distribution")
        if plugin.manifest.name != plugin.name:
            raise PluginError(
                f"its entry point has another name than its manifest, '{plugin.manifest.name}'"
            )
        _check_api(plugin, plugin.manifest.api)
    except PluginError as error:
        plugin.fail(State.BROKEN, error.message, error.hint or remedy)
    except (OSError, ValueError, KeyError) as cause:
        plugin.fail(State.BROKEN, f"its manifest cannot be read: {cause}", remedy)


def _candidates(
    distribution: _Distribution, parts: tuple[str, ...], path: Sequence[str]
) -> Iterator[DataPath]:
    """Where the file can be, nearest first."""
    yield cast("DataPath", distribution.locate_file("/".join(parts)))
    root = _editable_root(distribution)
    if root is not None:
        yield root.joinpath("src", *parts)
        yield root.joinpath(*parts)
    for folder in path:
        yield Path(folder or ".").joinpath(*parts)


def _editable_root(distribution: _Distribution) -> Path | None:
    """The project folder of an editable install (PEP 610)."""
    text = distribution.read_text("direct_url.json")
    if not text:
        return None
    data: object = json.loads(text)
    known = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    url = urlsplit(str(known.get("url", "")))
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _check_api(plugin: Found, api: str) -> None:
    if api == _USUAL_RANGE:
        return
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        fits = SpecifierSet(api).contains(HOOK_API)
    except InvalidSpecifier:
        raise PluginError(f"'api' of plugin.toml is not a version range: {api[:60]!r}") from None
    if not fits:
        plugin.fail(
            State.INCOMPATIBLE,
            f"it needs hook API {api}; this intarsia has {HOOK_API}",
            f"install a version of {plugin.distribution} made for hook API {HOOK_API}",
        )
