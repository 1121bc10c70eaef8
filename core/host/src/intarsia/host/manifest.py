# SPDX-License-Identifier: Apache-2.0
"""``plugin.toml``: what a plugin says of itself as data, read without importing it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from intarsia_runtime.errors import PluginError

from ..target.kind import Role
from ..target.kind_table import COMPOSITE

SCHEMA = 1
"""Version of the file format that this host reads."""

MAX_LENGTH = 65_536
"""Longest manifest, in characters."""

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_COMMAND = re.compile(f"(?:plugins )?{_NAME.pattern}")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_SUFFIX = re.compile(r"(?:\.[A-Za-z0-9][A-Za-z0-9_-]*){1,2}")
_FILE = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_-]*/){0,3}[A-Za-z0-9_][A-Za-z0-9_-]*\.toml")
_TOP = (
    *("schema", "name", "api", "summary", "hooks"),
    *("target-kind", "executor-kind", "runtime-kind", "kind-attribute", "alias", "hardware"),
    *("frontend", "command"),
)
_ROLES = {role.value: role for role in Role}


class KindRow(Struct, frozen=True):
    """A ``[[target-kind]]``: name, role and one line on it."""

    name: str
    role: Role
    summary: str


class ConfigRow(Struct, frozen=True):
    """An ``[[executor-kind]]`` or ``[[runtime-kind]]``: names and one line on it."""

    name: str
    summary: str
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All that users may call it."""
        return self.name, *self.aliases


class AttributeRow(Struct, frozen=True):
    """A ``[[kind-attribute]]``: a column, and a kind of target that has a value in it."""

    name: str
    kind: str
    summary: str


class FrontendRow(Struct, frozen=True):
    """A ``[[frontend]]``: a model format and the ends of its files' names, with the dot."""

    name: str
    suffixes: tuple[str, ...]


class CommandRow(Struct, frozen=True):
    """A ``[[command]]`` of ``intarsia``, or of ``intarsia plugins``, with a line for ``--help``."""

    name: str
    summary: str


class AliasRow(Struct, frozen=True):
    """An ``[[alias]]``: a short name and the target string it stands for."""

    name: str
    target: str


class Manifest(Struct, frozen=True):
    """A whole ``plugin.toml``.

    Attributes:
        name: The plugin's name, also that of its entry point.
        api: Range of hook API versions it works with, e.g. ``>=2.0,<3``.
        summary: One line.
        hooks: Module with the hook implementations; imported when one of the kinds is used.
        kinds: Target kinds it owns.
        aliases: Short names it gives.
        hardware: Files with hardware tags, beside the manifest.
        executors: Kinds of executor it adds.
        runtimes: Kinds of runtime it adds.
        attributes: What it says of kinds of target, its own and others'.
        frontends: Model formats that it imports.
        commands: Commands that it adds to ``intarsia``.
    """

    name: str
    api: str
    summary: str
    hooks: str
    kinds: tuple[KindRow, ...]
    aliases: tuple[AliasRow, ...]
    hardware: tuple[str, ...]
    executors: tuple[ConfigRow, ...] = ()
    runtimes: tuple[ConfigRow, ...] = ()
    attributes: tuple[AttributeRow, ...] = ()
    frontends: tuple[FrontendRow, ...] = ()
    commands: tuple[CommandRow, ...] = ()

    def config_rows(self, what: str) -> tuple[ConfigRow, ...]:
        """The kinds of ``executor`` or ``runtime`` that the plugin adds."""
        return self.executors if what == "executor" else self.runtimes


def parse_manifest(text: str) -> Manifest:
    """Return what a manifest says.

    Raises:
        PluginError: It breaks a rule of the format; the message says which and where.
    """
    if len(text) > MAX_LENGTH:
        raise PluginError(f"plugin.toml has {len(text)} characters; at most {MAX_LENGTH} are read")
    try:
        data: Mapping[str, object] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as cause:
        raise PluginError(f"plugin.toml does not parse: {cause}") from None
    if data.get("schema") != SCHEMA or isinstance(data.get("schema"), bool):
        raise PluginError(
            f"plugin.toml has schema {data.get('schema')!r}; this host reads {SCHEMA}",
            hint="install a version of the plugin made for this version of intarsia",
        )
    _only(data, _TOP, "plugin.toml")
    kinds = tuple(_kind(row, where) for row, where in _rows(data, "target-kind"))
    aliases = tuple(_alias(row, where) for row, where in _rows(data, "alias"))
    executors = tuple(_config(row, where) for row, where in _rows(data, "executor-kind"))
    runtimes = tuple(_config(row, where) for row, where in _rows(data, "runtime-kind"))
    attributes = tuple(_attribute(row, where) for row, where in _rows(data, "kind-attribute"))
    frontends = tuple(_frontend(row, where) for row, where in _rows(data, "frontend"))
    commands = tuple(_command(row, where) for row, where in _rows(data, "command"))
    suffixes = [suffix for row in frontends for suffix in row.suffixes]
    added = ([row.name for row in frontends], suffixes, [row.name for row in commands])
    columns = [f"{row.name} of {row.kind}" for row in attributes]
    targets = [row.name for row in (*kinds, *aliases)]
    configs = ([name for row in rows for name in row.names] for rows in (executors, runtimes))
    for names in (targets, columns, *configs, *added):
        for name in names:
            if names.count(name) > 1:
                raise PluginError(f"plugin.toml gives the name '{name}' twice")
    return Manifest(
        name=_text(data, "name", "plugin.toml", _NAME),
        api=_text(data, "api", "plugin.toml"),
        summary=_text(data, "summary", "plugin.toml"),
        hooks=_text(data, "hooks", "plugin.toml", _MODULE),
        kinds=kinds,
        aliases=aliases,
        hardware=tuple(_hardware(row, where) for row, where in _rows(data, "hardware")),
        executors=executors,
        runtimes=runtimes,
        attributes=attributes,
        frontends=frontends,
        commands=commands,
    )


def _only(row: Mapping[str, object], keys: tuple[str, ...], where: str) -> None:
    for key in row:
        if key not in keys:
            raise PluginError(
                f"{where} has an unknown key '{key}'", hint=f"known: {', '.join(keys)}"
            )


def _rows(data: Mapping[str, object], key: str) -> list[tuple[Mapping[str, object], str]]:
    value = data.get(key, [])
    rows = cast("list[object]", value) if isinstance(value, list) else [value]
    found: list[tuple[Mapping[str, object], str]] = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or not isinstance(value, list):
            raise PluginError(f"'{key}' in plugin.toml is not a list of tables", hint=f"[[{key}]]")
        found.append((cast("Mapping[str, object]", row), f"[[{key}]] {number + 1}"))
    return found


def _text(
    row: Mapping[str, object], key: str, where: str, rule: re.Pattern[str] | None = None
) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise PluginError(f"{where} has no text '{key}'", hint=f'{key} = "..."')
    if len(value) > 500 or not value.isprintable():
        raise PluginError(f"'{key}' of {where} is too long or is not one line")
    if rule is not None and not rule.fullmatch(value):
        raise PluginError(f"'{key}' of {where} is not well-formed: {value[:60]!r}")
    return value


def _kind(row: Mapping[str, object], where: str) -> KindRow:
    _only(row, ("name", "role", "summary"), where)
    name = _text(row, "name", where, _NAME)
    role = _text(row, "role", where)
    if role not in _ROLES:
        raise PluginError(f"'role' of {where} is {role!r}", hint=f"one of {', '.join(_ROLES)}")
    if name == COMPOSITE:
        raise PluginError(f"{where}: '{COMPOSITE}' is reserved by the host and cannot be a kind")
    return KindRow(name, _ROLES[role], _text(row, "summary", where))


def _frontend(row: Mapping[str, object], where: str) -> FrontendRow:
    _only(row, ("name", "suffixes"), where)
    given = row.get("suffixes")
    suffixes = cast("list[object]", given) if isinstance(given, list) else []
    found = [one for one in suffixes if isinstance(one, str) and _SUFFIX.fullmatch(one)]
    if not found or len(found) != len(suffixes):
        raise PluginError(
            f"'suffixes' of {where} is not a list of ends of names", hint='suffixes = [".onnx"]'
        )
    return FrontendRow(_text(row, "name", where, _NAME), tuple(found))


def _command(row: Mapping[str, object], where: str) -> CommandRow:
    _only(row, ("name", "summary"), where)
    return CommandRow(_text(row, "name", where, _COMMAND), _text(row, "summary", where))


def _config(row: Mapping[str, object], where: str) -> ConfigRow:
    _only(row, ("name", "summary", "aliases"), where)
    given = row.get("aliases", [])
    aliases = cast("list[object]", given) if isinstance(given, list) else [None]
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in aliases):
        raise PluginError(f"'aliases' of {where} is not a list of names", hint='aliases = ["..."]')
    return ConfigRow(
        _text(row, "name", where, _NAME),
        _text(row, "summary", where),
        tuple(cast("list[str]", aliases)),
    )


def _attribute(row: Mapping[str, object], where: str) -> AttributeRow:
    _only(row, ("name", "kind", "summary"), where)
    return AttributeRow(
        _text(row, "name", where, _COLUMN),
        _text(row, "kind", where, _NAME),
        _text(row, "summary", where),
    )


def _alias(row: Mapping[str, object], where: str) -> AliasRow:
    _only(row, ("name", "target"), where)
    name = _text(row, "name", where, _NAME)
    if name == COMPOSITE:
        raise PluginError(f"{where}: '{COMPOSITE}' is reserved by the host and cannot be an alias")
    return AliasRow(name, _text(row, "target", where))


def _hardware(row: Mapping[str, object], where: str) -> str:
    _only(row, ("file",), where)
    return _text(row, "file", where, _FILE)
