# SPDX-License-Identifier: Apache-2.0
"""Executor and runtime: how a compiled model is driven, and where it runs.

Both are settings of a module, never of a target::

    Executor("aot", {"unpacked-api": True})
    Executor({"kind": "aot", "unpacked-api": True})
    Executor("aot", unpacked_api=True)
    Executor("aot -unpacked-api")

are one value. Kinds come from the core and from plugins (``register_executor_kind``,
``register_runtime_kind``); a plugin is asked only for a kind that the core does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, TypeAlias, TypeVar, cast

from intarsia_runtime.errors import TargetError, UnsupportedError, UsageError

from ..host.host import Host
from ..target.config_kind import ConfigKind, broken_rule, core_kinds, core_rules
from ..target.options import (
    OptionRow,
    Value,
    check_value,
    find_row,
    json_value,
    print_value,
)
from ..target.scan import Word, read_options, scan
from ..target.structured import load_json
from ..target.target import CompositeTarget

OptionValue: TypeAlias = Value
"""What an option may have as its value."""


class ConfigChoice:
    """A kind and its options, checked when made; equal and hashable by value.

    Args:
        kind: Name of the kind, a string with options (``aot -unpacked-api``), or an object with
            ``kind`` and options; the default kind if ``None``.
        options: Options that differ from their default.
        host: Where kinds of plugins come from; those installed if ``None``.
        keywords: Options in snake case.

    Attributes:
        kind: Name of the kind; never an alias.
        row: The kind.
        options: Every option of the kind with its value.

    Raises:
        UsageError: Unknown kind or option, or a value that the option cannot have.
        PluginError: The plugin of the kind is broken.
    """

    __slots__ = ("kind", "options", "row")
    what: ClassVar[str] = ""

    def __init__(
        self,
        kind: str | Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        *,
        host: Host | None = None,
        **keywords: object,
    ) -> None:
        name, words, given = _spelled(self.what, kind)
        row = find_kind(self.what, name, host)
        owner = f"{self.what} '{row.name}'"
        rows = row.rows
        values: dict[str, Value] = {}
        try:
            if words:
                values.update(read_options(str(kind), owner, rows, words))
            for source in (given, options or {}, keywords):
                _add(values, owner, rows, source)
        except TargetError as error:
            where = f"{self.what}, {error.where.partition(', ')[2]}" if error.where else owner
            raise UsageError(error.message, hint=error.hint, where=where) from None
        self.kind: str = row.name
        self.row: ConfigKind = row
        self.options: Mapping[str, Value] = MappingProxyType(
            {option.flag: values.get(option.flag, option.default) for option in rows}
        )

    def is_set(self, option: str) -> bool:
        """Say whether an option has another value than its default; False if there is none."""
        defaults = {row.flag: row.default for row in self.row.rows}
        return option in defaults and self.options[option] != defaults[option]

    def to_json(self) -> dict[str, object]:
        """Return the kind and every option as plain JSON."""
        return {"kind": self.kind, **{k: json_value(v) for k, v in self.options.items()}}

    def __str__(self) -> str:
        """The canonical string; options at their default are left out."""
        set_ = [f"-{k}={print_value(v)}" for k, v in self.options.items() if self.is_set(k)]
        return " ".join([self.kind, *set_])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigChoice) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind!r}, {dict(self.options)!r})"


ConfigSpec: TypeAlias = "str | Mapping[str, object]"
"""The forms in which users write an executor or a runtime."""


class Executor(ConfigChoice):
    """How a compiled model is executed: ``Executor("aot", {"unpacked-api": True})``."""

    __slots__ = ()
    what = "executor"


class Runtime(ConfigChoice):
    """Where a compiled model runs: ``Runtime("cpp")`` is a process that loads it."""

    __slots__ = ()
    what = "runtime"

    @property
    def is_freestanding(self) -> bool:
        """Whether the code becomes part of another program, instead of being loaded."""
        return "freestanding" in self.row.traits


C = TypeVar("C", bound=ConfigChoice)


def choose(kind: type[C], given: C | ConfigSpec | None, host: Host | None = None) -> C | None:
    """Return the executor or runtime that is given in any form; ``None`` if none is.

    Raises:
        UsageError: It is none, or is none of ``kind``.
        PluginError: The plugin of its kind is broken.
    """
    if given is None or isinstance(given, kind):
        return given
    if isinstance(given, ConfigChoice):
        raise UsageError(f"{kind.what} is {given!r}", hint=f"{kind.__name__}(...)")
    return kind(given, host=host)


def find_kind(what: str, name: str | None, host: Host | None = None) -> ConfigKind:
    """Return the kind of executor or runtime of that name or alias; the default one if ``None``.

    Raises:
        UsageError: There is none.
        PluginError: Its plugin cannot be used.
    """
    for kind in core_kinds(what):
        if name is None or name == kind.name or name in kind.aliases:
            return kind
    return (host or Host()).config_kind(what, str(name))


def check_combination(executor: Executor, runtime: Runtime) -> None:
    """Refuse an executor and a runtime that do not go together.

    Raises:
        UsageError: They do not; the message has the rule.
    """
    facts: dict[str, Value] = {"executor": executor.kind, "runtime": runtime.kind}
    for choice in (executor, runtime):
        facts |= {f"{choice.what}.{trait}": True for trait in choice.row.traits}
        facts |= {f"{choice.what}.{flag}": value for flag, value in choice.options.items()}
    rule = broken_rule((*core_rules(), *executor.row.rules, *runtime.row.rules), facts)
    if rule is not None:
        message = rule.message.replace("{executor}", executor.kind)
        message = message.replace("{runtime}", runtime.kind)
        raise UsageError(message, hint=rule.hint, where=f"rule {rule.name}")


def check_served(executor: Executor, runtime: Runtime, target: CompositeTarget) -> None:
    """Refuse what this version, or the target, cannot make.

    Raises:
        UnsupportedError: The message says what is missing.
    """
    for choice in (executor, runtime):
        if choice.row.missing:
            raise UnsupportedError(
                f"{choice.what} '{choice.kind}' needs {choice.row.missing}, "
                "which this version does not have"
            )
    for backend in dict.fromkeys((target.fallback, target.host)):
        served = backend.kind.runtimes
        if runtime.kind not in served:
            raise UnsupportedError(
                f"'{backend.kind.name}' makes no code for runtime '{runtime.kind}'",
                hint=f"a backend that does, or --runtime {' or '.join(served)}",
            )


def _spelled(
    what: str, kind: str | Mapping[str, object] | None
) -> tuple[str | None, list[Word], Mapping[str, object]]:
    """The name of the kind, the words of options behind it, and the options of an object."""
    match kind:
        case None:
            return None, [], {}
        case str() if kind.lstrip().startswith("{"):
            loaded = load_json(kind)
            assert isinstance(loaded, Mapping)  # a JSON text that begins with a brace
            return _spelled(what, cast("Mapping[str, object]", loaded))
        case str():
            segments = scan(kind, ())
            if len(segments) > 1:
                raise UsageError(f"expected one {what}, not {len(segments)}: '{kind[:60]}'")
            first, *words = segments[0].words
            return first.text, words, {}
        case Mapping():
            name = kind.get("kind")
            if not isinstance(name, str):
                raise UsageError(f"the {what} has no 'kind', or it is not a string")
            return name, [], {key: value for key, value in kind.items() if key != "kind"}
        case _:
            raise UsageError(f"an {what} is a string or a dict, not {type(kind).__name__}")


def _add(
    values: dict[str, Value], owner: str, rows: Sequence[OptionRow], given: Mapping[str, object]
) -> None:
    """Check options and add them; one that is there with another value is refused."""
    for name, value in given.items():
        row = find_row(owner, rows, str(name))
        checked = check_value(row, value)
        if values.setdefault(row.flag, checked) != checked:
            raise TargetError(f"-{row.flag} is given twice, with two values")
