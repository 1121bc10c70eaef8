# SPDX-License-Identifier: Apache-2.0
"""Options of a target kind: fields of a frozen dataclass, with documentation, choices and bounds.

::

    @dataclass(frozen=True, kw_only=True)
    class NpuOptions:
        variant: str = option("n78", doc="hardware variant", choices=("n77", "n78"))
        num_threads: int = option(0, doc="threads; 0 means all", minimum=0)
        mattr: tuple[str, ...] = option((), doc="features, e.g. +dot")

Users write a field in kebab case: ``npu -variant=n77 -num-threads=2 -mattr=+a,+b``. A field's type
is ``bool``, ``int``, ``float``, ``str``, ``tuple[str, ...]``, ``tuple[int, ...]`` or a ``Literal``
of strings or integers.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Literal, Protocol, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from intarsia_runtime.errors import PluginError, TargetError, did_you_mean

T = TypeVar("T")
Value: TypeAlias = bool | int | float | str | tuple[str, ...] | tuple[int, ...]

RESERVED = frozenset(
    {"kind", "accelerators", "fallback", "target-host", "host", "tag", "keys", "hardware"}
)
"""Keys of a target's JSON form that no option of a kind may use."""

_SPEC = "intarsia.option"
_FLAG = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_TEXT = re.compile(r"[A-Za-z0-9_.+,=/:@%~#() -]*")
_ELEMENT = re.compile(r"[A-Za-z0-9_.+=/:@%~#() -]+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_SCALARS: Mapping[object, str] = {bool: "bool", int: "int", float: "float", str: "str"}
_LISTS: Mapping[object, str] = {str: "list of str", int: "list of int"}


class _Spec(Struct, frozen=True):
    """What :func:`option` keeps in a field's metadata."""

    doc: str
    choices: tuple[object, ...]
    minimum: float | None
    maximum: float | None
    flag: str
    deprecated: str


class OptionRow(Struct, frozen=True):
    """One option as users see it.

    Attributes:
        field: Name of the dataclass field.
        flag: What users write after the dash.
        type: ``bool``, ``int``, ``float``, ``str``, ``list of str`` or ``list of int``.
        default: Value when nobody sets it.
        doc: One line.
        choices: Allowed values (of each element, for a list); empty means any.
        minimum: Smallest allowed number (of each element, for a list).
        maximum: Largest allowed number.
        deprecated: What to do instead; empty if the option is not on its way out.
    """

    field: str
    flag: str
    type: str
    default: Value
    doc: str
    choices: tuple[object, ...]
    minimum: float | None
    maximum: float | None
    deprecated: str = ""


def option(
    default: T,
    *,
    doc: str,
    choices: Sequence[T] | Sequence[str] | Sequence[int] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    flag: str = "",
    deprecated: str = "",
) -> T:
    """Declare an option as a field of an options dataclass.

    Args:
        default: Value when nobody sets it.
        doc: One line for ``targets show`` and ``--help``.
        choices: Allowed values; of each element for a tuple.
        minimum: Smallest allowed number.
        maximum: Largest allowed number.
        flag: Name in target strings; default: the field's name in kebab case.
        deprecated: The replacement, if the option will be removed; setting it warns.
    """
    spec = _Spec(doc, tuple(choices), minimum, maximum, flag, deprecated)
    return dataclasses.field(default=default, metadata={_SPEC: spec})


class _Params(Protocol):
    frozen: bool


class _DataclassType(Protocol):
    """A class that ``dataclass`` made; the stubs of the standard library leave this out."""

    __dataclass_params__: _Params


@cache
def option_rows(options: type) -> tuple[OptionRow, ...]:
    """Return the options of an options dataclass in the order of its fields.

    Raises:
        PluginError: The class breaks a rule of options; the message says which.
    """
    name = options.__qualname__
    if not dataclasses.is_dataclass(options):
        raise PluginError(
            f"options class {name} is not a dataclass", hint="@dataclass(frozen=True)"
        )
    if not cast("_DataclassType", options).__dataclass_params__.frozen:
        raise PluginError(f"options class {name} is not frozen", hint="@dataclass(frozen=True)")
    try:
        hints = get_type_hints(options)
    except Exception as cause:
        raise PluginError(
            f"the annotations of options class {name} do not evaluate: {cause}"
        ) from cause
    rows = tuple(_row(name, field, hints[field.name]) for field in dataclasses.fields(options))
    flags = [row.flag for row in rows]
    for flag in flags:
        if flag in RESERVED or flags.count(flag) > 1 or not _FLAG.fullmatch(flag):
            raise PluginError(
                f"options class {name}: '-{flag}' is reserved, given twice or not kebab case"
            )
    return rows


def _row(owner: str, field: dataclasses.Field[object], hint: object) -> OptionRow:
    where = f"option {owner}.{field.name}"
    spec = field.metadata.get(_SPEC)
    if spec is None or field.default is dataclasses.MISSING:
        raise PluginError(f"{where} is not declared with option()")
    spec = cast("_Spec", spec)
    kind, choices = _type_of(where, hint)
    flag = spec.flag or field.name.replace("_", "-")
    row = OptionRow(
        field=field.name,
        flag=flag,
        type=kind,
        default=(),
        doc=spec.doc,
        choices=spec.choices or choices,
        minimum=spec.minimum,
        maximum=spec.maximum,
        deprecated=spec.deprecated,
    )
    if not spec.doc.strip():
        raise PluginError(f"{where} has no description (doc=)")
    try:
        default = check_value(row, field.default)
    except TargetError as cause:
        raise PluginError(f"{where}: its default is not allowed: {cause.message}") from cause
    return replace(row, default=default)


def _type_of(where: str, hint: object) -> tuple[str, tuple[object, ...]]:
    """Name of the type and the choices that a ``Literal`` implies."""
    args = get_args(hint)
    if get_origin(hint) is Literal:
        kinds: set[type] = {type(arg) for arg in args}
        if kinds in ({str}, {int}):
            return _SCALARS[kinds.pop()], args
    if get_origin(hint) is tuple and len(args) == 2 and args[1] is Ellipsis and args[0] in _LISTS:
        return _LISTS[args[0]], ()
    for scalar, name in _SCALARS.items():
        if hint is scalar:
            return name, ()
    raise PluginError(
        f"{where} has type {hint}, which no option may have",
        hint="bool, int, float, str, tuple[str, ...], tuple[int, ...] or a Literal",
    )


def parse_value(row: OptionRow, text: str) -> Value:
    """Return the value that a user wrote as text, checked.

    Raises:
        TargetError: It is not a value of the option.
    """
    match row.type:
        case "bool":
            if text.lower() not in _TRUTH:
                raise TargetError(f"-{row.flag} is true or false, not '{_shown(text)}'")
            return _TRUTH[text.lower()]
        case "int":
            return check_value(row, _integer(row, text))
        case "float":
            try:
                return check_value(row, float(text))
            except ValueError:
                raise TargetError(f"-{row.flag} is a number, not '{_shown(text)}'") from None
        case "str":
            return check_value(row, text)
        case _:
            parts = [part.strip() for part in text.split(",")] if text.strip() else []
            if row.type == "list of int":
                return check_value(row, [_integer(row, part) for part in parts])
            return check_value(row, parts)


def _integer(row: OptionRow, text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise TargetError(f"-{row.flag} is an integer, not '{_shown(text)}'")
    return int(text)


def check_value(row: OptionRow, value: object) -> Value:
    """Return a typed value (from JSON or Python) if the option may have it; nothing is converted.

    Integers are accepted where a float is wanted, and lists where a tuple is.

    Raises:
        TargetError: The value has another type, or is out of bounds.
    """
    match row.type, value:
        case "list of str" | "list of int", list() | tuple():
            element = replace(row, type=row.type.removeprefix("list of "))
            items = tuple(check_value(element, item) for item in cast("Sequence[object]", value))
            for item in items:
                if item.__class__ is str and not _ELEMENT.fullmatch(str(item)):
                    raise TargetError(
                        f"an element of -{row.flag} is empty or holds a comma: '{item}'"
                    )
            return cast("tuple[str, ...] | tuple[int, ...]", items)
        case "bool", bool():
            return value
        case "int", int() if not isinstance(value, bool):
            if not -(2**63) <= value < 2**63:
                raise TargetError(f"-{row.flag} does not fit in 64 bits")
            return cast("int", _bounded(row, value))
        case "float", float() | int() if not isinstance(value, bool):
            return float(_bounded(row, _finite(row, value)))
        case "str", str():
            return _checked_text(row, value)
        case _:
            raise TargetError(f"-{row.flag} is {_article(row.type)}, not {_shown(repr(value))}")


def _finite(row: OptionRow, value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise TargetError(f"-{row.flag} is a finite number, not {number}")
    return number


def _bounded(row: OptionRow, value: float) -> float:
    if row.minimum is not None and value < row.minimum:
        raise TargetError(f"-{row.flag} is at least {row.minimum:g}, not {value}")
    if row.maximum is not None and value > row.maximum:
        raise TargetError(f"-{row.flag} is at most {row.maximum:g}, not {value}")
    if row.choices and value not in row.choices:
        raise TargetError(f"-{row.flag} cannot be {value}", hint=f"one of {_joined(row.choices)}")
    return value


def _checked_text(row: OptionRow, value: str) -> str:
    if not _TEXT.fullmatch(value) or value != value.strip():
        raise TargetError(
            f"-{row.flag} has a character that no option value may have: '{_shown(value)}'",
            hint="letters, digits, inner spaces and _.+,=/:@%~#()-",
        )
    if row.choices and value not in row.choices:
        names = [str(choice) for choice in row.choices]
        raise TargetError(
            f"-{row.flag} cannot be '{_shown(value)}'",
            hint=did_you_mean(value, names) or f"one of {_joined(row.choices)}",
        )
    return value


def print_value(value: Value) -> str:
    """Return a value as it stands in a target string: the inverse of :func:`parse_value`."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return repr(value)
        case tuple():
            text = ",".join(str(item) for item in value)
        case _:
            text = str(value)
    # A comma in front of a letter could start the next target of a composite.
    if not text or re.search(r"[^A-Za-z0-9_.+,=/:@%~#-]|,[A-Za-z]|,$|^,|,,", text):
        return f"'{text}'"
    return text


def json_value(value: Value) -> object:
    """Return a value as JSON has it: tuples become lists."""
    return list(value) if isinstance(value, tuple) else value


def find_row(owner: str, rows: Sequence[OptionRow], flag: str) -> OptionRow:
    """Return the option users call ``flag``; ``_`` and ``-`` are the same.

    Args:
        owner: Whose options they are, for messages: ``target kind 'npu'``.
        rows: Its options.
        flag: As written, without dashes.

    Raises:
        TargetError: There is no such option.
    """
    wanted = flag.replace("_", "-")
    for row in rows:
        if row.flag.replace("_", "-") == wanted:
            return row
    flags = [row.flag for row in rows]
    hint = did_you_mean(wanted, flags, "-") or (
        f"its options: {', '.join('-' + f for f in flags)}" if flags else "it has no options at all"
    )
    raise TargetError(f"{owner} has no option '-{_shown(flag)}'", hint=hint)


def set_options(
    rows: Sequence[OptionRow], options: object, pinned: Collection[str] = ()
) -> Mapping[str, Value]:
    """Return flag to value of every option that differs from its default, in declaration order.

    Options in ``pinned`` are returned even at their default.
    """
    values = {row.flag: cast("Value", getattr(options, row.field)) for row in rows}
    return {
        row.flag: values[row.flag]
        for row in rows
        if values[row.flag] != row.default or row.flag in pinned
    }


def _joined(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)


def _article(kind: str) -> str:
    names = {"int": "an integer", "str": "a string", "float": "a number", "bool": "true or false"}
    return names.get(kind, f"a {kind.replace('str', 'strings').replace('int', 'integers')}")


def _shown(text: str) -> str:
    """The text, short and printable."""
    short = text if len(text) <= 60 else text[:57] + "..."
    return "".join(ch if ch.isprintable() else "\N{REPLACEMENT CHARACTER}" for ch in short)
