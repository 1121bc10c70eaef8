# SPDX-License-Identifier: Apache-2.0
"""Kinds of executor and runtime: the typed rows that the core and plugins register.

An executor is how a compiled model is driven, a runtime is where it runs. Both are settings of a
module, never of a target.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from .options import OptionRow, Value, option, option_rows


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """For a kind that has nothing to set."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A combination of executor and runtime that is refused.

    Attributes:
        name: Named in the message.
        when: The rule refuses if all of these hold: ``executor`` and ``runtime`` are the kinds,
            ``executor.X`` and ``runtime.X`` a trait (true or false) or an option.
        message: The reason; ``{executor}`` and ``{runtime}`` are replaced by the kinds.
        hint: The remedy.
    """

    name: str
    when: Mapping[str, Value]
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ConfigKind:
    """What executors and runtimes have in common.

    Attributes:
        name: What users write.
        summary: One line.
        options: Frozen keyword-only dataclass made with :func:`intarsia.target.options.option`.
        traits: What rules may ask for: an executor is ``compiled`` if native code carries out the
            plan, a runtime ``freestanding`` if its code needs no operating system.
        aliases: Other names of it.
        missing: What this version lacks to use it; empty if nothing.
        rules: Combinations that do not work, in addition to the core's.
    """

    name: str
    summary: str
    options: type = NoOptions
    traits: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()
    missing: str = ""
    rules: tuple[Rule, ...] = ()

    @property
    def rows(self) -> tuple[OptionRow, ...]:
        """The options as users see them."""
        return option_rows(self.options)


@dataclass(frozen=True, slots=True)
class ExecutorKind(ConfigKind):
    """A way to drive a compiled model."""


@dataclass(frozen=True, slots=True)
class RuntimeKind(ConfigKind):
    """A place where a compiled model runs."""


@cache
def _settings() -> Mapping[str, Any]:
    text = resources.files("intarsia.target").joinpath("settings.toml").read_text("utf-8")
    return MappingProxyType(tomllib.loads(text))


@cache
def core_executors() -> tuple[ExecutorKind, ...]:
    """The kinds of executor that the core has, the default first."""
    return tuple(ExecutorKind(**_fields(row)) for row in _settings()["executor"])


@cache
def core_runtimes() -> tuple[RuntimeKind, ...]:
    """The kinds of runtime that the core knows, the default first."""
    return tuple(RuntimeKind(**_fields(row)) for row in _settings()["runtime"])


def core_kinds(what: str) -> tuple[ConfigKind, ...]:
    """The core's kinds of ``executor`` or ``runtime``, the default first."""
    return core_executors() if what == "executor" else core_runtimes()


@cache
def core_rules() -> tuple[Rule, ...]:
    """The core's rules between executors and runtimes."""
    return tuple(Rule(**row) for row in _settings()["rule"])


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    specs: list[tuple[str, type[object], object]] = [
        (
            item["name"].replace("-", "_"),
            type(item["default"]),
            option(item["default"], doc=item["doc"], choices=item.get("choices", ())),
        )
        for item in row.get("option", ())
    ]
    name = f"{row['name'].capitalize()}Options"
    options = dataclasses.make_dataclass(name, specs, frozen=True, kw_only=True)
    return {
        "name": row["name"],
        "summary": row["summary"],
        "options": options if specs else NoOptions,
        "traits": frozenset(row.get("traits", ())),
        "aliases": tuple(row.get("aliases", ())),
        "missing": row.get("missing", ""),
    }


def broken_rule(rules: Sequence[Rule], facts: Mapping[str, Value]) -> Rule | None:
    """Return the first rule that refuses, or ``None``.

    Args:
        rules: In the order of asking.
        facts: ``executor``, ``runtime``, and every trait and option as ``executor.X``; a trait
            that is not among them is false.
    """
    for rule in rules:
        if all(facts.get(key, False) == value for key, value in rule.when.items()):
            return rule
    return None
