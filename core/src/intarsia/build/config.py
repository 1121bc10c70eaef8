# SPDX-License-Identifier: Apache-2.0
"""Executor and runtime: how a compiled model is driven, and where it runs.

Both are settings of a module, never of a target. Their kinds are rows of ``kinds.toml``.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, TypeAlias

from ..errors import UsageError

OptionValue: TypeAlias = bool | int | str


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """An option of an executor or runtime.

    Attributes:
        name: In kebab case.
        default: Its value unless set; its type is the option's.
        doc: What it does, one sentence.
        choices: The values it may have; any of its type if empty.
    """

    name: str
    default: OptionValue
    doc: str
    choices: tuple[OptionValue, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigKind:
    """A kind of executor or runtime.

    Attributes:
        name: What users write.
        summary: One line.
        options: What can be set.
        compiled: Executors: whether native code carries out the plan.
        freestanding: Runtimes: whether the code runs without an operating system.
    """

    name: str
    summary: str
    options: tuple[ConfigOption, ...] = ()
    compiled: bool = False
    freestanding: bool = False


@cache
def config_kinds(what: str) -> tuple[ConfigKind, ...]:
    """Return the kinds of ``executor`` or ``runtime``, the default first."""
    text = resources.files("intarsia.build").joinpath("kinds.toml").read_text(encoding="utf-8")
    return tuple(_row(row) for row in tomllib.loads(text)[what])


def _row(row: dict[str, Any]) -> ConfigKind:
    options = tuple(
        ConfigOption(
            option["name"], option["default"], option["doc"], tuple(option.get("choices", ()))
        )
        for option in row.pop("option", ())
    )
    return ConfigKind(**row, options=options)


class ConfigChoice:
    """A kind and its options, checked when made; equal and hashable by value.

    Args:
        kind: Name of the kind; the default one if ``None``.
        options: Options that differ from their default.

    Attributes:
        kind: Name of the kind.
        row: The kind.
        options: Every option of the kind with its value.

    Raises:
        UsageError: Unknown kind or option, or a value that the option cannot have.
    """

    __slots__ = ("kind", "options", "row")
    what = ""

    def __init__(
        self, kind: str | None = None, options: Mapping[str, OptionValue] | None = None
    ) -> None:
        rows = config_kinds(self.what)
        row = rows[0] if kind is None else _find_kind(self.what, kind, rows)
        values = {option.name: option.default for option in row.options}
        for name, value in (options or {}).items():
            values[name] = _check_option(f"{self.what} '{row.name}'", row, name, value)
        self.kind: str = row.name
        self.row: ConfigKind = row
        self.options: Mapping[str, OptionValue] = MappingProxyType(values)

    def is_set(self, option: str) -> bool:
        """Say whether an option has another value than its default; False if there is none."""
        defaults = {row.name: row.default for row in self.row.options}
        return option in defaults and self.options[option] != defaults[option]

    def to_json(self) -> dict[str, OptionValue]:
        """Return the kind and every option as plain JSON."""
        return {"kind": self.kind, **self.options}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigChoice) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind!r}, {dict(self.options)!r})"


class Executor(ConfigChoice):
    """How a compiled model is driven: ``Executor("aot", {"unpacked-api": True})``."""

    __slots__ = ()
    what = "executor"


class Runtime(ConfigChoice):
    """Where a compiled model runs: ``Runtime("cpp")`` is a process that loads it."""

    __slots__ = ()
    what = "runtime"


def check_combination(executor: Executor, runtime: Runtime) -> None:
    """Refuse an executor and a runtime that do not go together.

    Raises:
        UsageError: They do not; the message is the rule.
    """
    if runtime.row.freestanding and not executor.row.compiled:
        raise UsageError(
            f"executor '{executor.kind}' walks the plan in a process, "
            f"runtime '{runtime.kind}' has none",
            hint="choose executor 'aot', or runtime 'cpp'",
        )
    if executor.is_set("unpacked-api") and not runtime.row.freestanding:
        raise UsageError(
            f"unpacked-api needs a freestanding runtime: '{runtime.kind}' passes packed arguments",
            hint="choose another runtime, or leave unpacked-api away",
        )
    if executor.is_set("interface-api") and not executor.is_set("unpacked-api"):
        raise UsageError(
            f"interface-api '{executor.options['interface-api']}' needs unpacked-api: "
            "its entry point takes plain pointers",
            hint="set unpacked-api as well, or interface-api to 'packed'",
        )


def _find_kind(what: str, name: str, rows: tuple[ConfigKind, ...]) -> ConfigKind:
    for row in rows:
        if row.name == name:
            return row
    known = [row.name for row in rows]
    raise UsageError(f"there is no {what} '{name}'", hint=_suggest(str(name), known))


def _check_option(where: str, row: ConfigKind, name: str, value: OptionValue) -> OptionValue:
    for option in row.options:
        if option.name != name:
            continue
        if type(value) is not type(option.default):
            wanted = type(option.default).__name__
            raise UsageError(f"{where}: option '{name}' takes {wanted}, not {value!r}")
        if option.choices and value not in option.choices:
            choices = ", ".join(str(choice) for choice in option.choices)
            raise UsageError(
                f"{where}: option '{name}' cannot be {value!r}", hint=f"one of {choices}"
            )
        return value
    known = [option.name for option in row.options]
    raise UsageError(f"{where} has no option '{name}'", hint=_suggest(name, known))


def _suggest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, 1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"one of {', '.join(known)}" if known else "it has none"
