# SPDX-License-Identifier: Apache-2.0
"""What plugins hand over: checked against its type hints, and every callable in it guarded.

One validator for all: fields of the contract's classes say what they hold, so a new field, hook or
class needs nothing here. Nodes of the IRs are checked by their own constructors and verifiers.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Literal, TypeGuard, TypeVar, Union, cast, get_args, get_origin

import msgspec

from intarsia_runtime.errors import PluginError
from intarsia_runtime.guarded import Guarded, Owner

T = TypeVar("T")

_FREE = object
"""A hint that says nothing."""

_DEEPEST = 12
_OURS = ("intarsia_runtime.artifact", "intarsia.host", "intarsia.target",
         "intarsia_ir.regions", "intarsia_ir.tir.space")  # fmt: skip


def _late(name: str) -> object:
    """Return what a name in a hint means that its module imports for type checkers only."""
    if name == "PrimFunc":
        from intarsia_ir.tir.func import PrimFunc

        return PrimFunc
    if name == "IRModule":
        from intarsia_ir.graph.module import IRModule

        return IRModule
    return _FREE


def receive(value: T, hint: object, owner: Owner, *, doing: str) -> T:
    """Check a value of a plugin, and return it with all callables in it guarded.

    Args:
        value: What the plugin gave.
        hint: What it must be: a class, or any type hint.
        owner: The plugin.
        doing: What it was asked, for messages: ``annotate()``.

    Raises:
        PluginError: It holds something else; the message says where in it.
    """
    problem = problem_of(value, hint)
    if problem:
        raise PluginError(f"{owner.label} answered {doing} with {problem}", hint=owner.upgrade)
    return cast("T", _guard(value, hint, owner, doing, 0))


def problem_of(value: object, hint: object, at: str = "", depth: int = 0) -> str:
    """Say what in a value is not what its hint says; empty if all is right."""
    where = f"{at} is " if at else ""
    if depth > _DEEPEST or _says_nothing(hint):
        return ""
    origin, args = get_origin(hint), get_args(hint)
    if hint is None or hint is type(None):
        return "" if value is None else f"{where}{_a(value)}, not None"
    if origin in (Union, types.UnionType):
        problems = [problem_of(value, one, at, depth + 1) for one in args]
        if "" in problems:
            return ""
        fitting = [p for p, one in zip(problems, args, strict=True) if _is_kind(value, one)]
        return fitting[0] if fitting else f"{where}{_a(value)}, not {_named(hint)}"
    if origin is Literal:
        return "" if value in args else f"{where}{value!r}, not one of {args}"
    if not _is_kind(value, hint):
        return f"{where}{_a(value)}, not {_named(hint)}"
    for name, item, wanted in _parts(value, hint):
        inner = f"{at}{name}" if at else f"{_a(value)} whose {name.lstrip('. ')}"
        problem = problem_of(item, wanted, inner, depth + 1)
        if problem:
            return problem
    return ""


def _says_nothing(hint: object) -> bool:
    """Whether a hint allows every value."""
    is_free = getattr(hint, "__module__", "") == "typing" and getattr(hint, "__name__", "") == "Any"
    return hint is _FREE or is_free or isinstance(hint, TypeVar | str)


def _is_class(value: object) -> TypeGuard[type[object]]:
    return isinstance(value, type)


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_sequence(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, list | tuple)


def _is_kind(value: object, hint: object) -> bool:
    """Whether a value is of the hint's class, its parts aside."""
    kind: object = get_origin(hint) or hint
    if _says_nothing(hint) or not _is_class(kind):
        return True  # a special form that says nothing about values
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind.__name__ == "ndarray":
        return hasattr(value, "dtype") and hasattr(value, "shape")  # deferred arrays too
    if issubclass(kind, Sequence) and kind not in (str, bytes):
        return isinstance(value, Sequence) and not isinstance(value, str | bytes)
    if getattr(kind, "_is_protocol", False):
        return True
    return isinstance(value, kind)


def _parts(value: object, hint: object) -> list[tuple[str, object, object]]:
    """Return the parts of a value: where each is, and what it must be."""
    args = get_args(hint)
    if _is_mapping(value) and len(args) == 2:
        keys = [(f" key {_key(key)}", key, args[0]) for key in value]
        return keys + [(f"[{_key(key)}]", item, args[1]) for key, item in value.items()]
    if _is_sequence(value) and args:
        if len(args) == 2 and args[1] is not Ellipsis and get_origin(hint) is tuple:
            hints: Sequence[object] = args
        else:
            hints = [args[0]] * len(value)
        # One object may be there a million times; it is checked once.
        once = {id(item): n for n, item in reversed(list(enumerate(value)))}
        numbers = sorted(once.values())
        return [(f"[{n}]", value[n], hints[n]) for n in numbers if n < len(hints)]
    if _is_ours(value):
        return [
            (f".{name}", getattr(value, name), wanted)
            for name, wanted in hints_of(type(value)).items()
        ]
    return []


def _key(key: object) -> str:
    """Return a key as text; of an expression the type, for its text has every path below it."""
    return f"{key!r:.40}" if isinstance(key, str | int | float | Enum | None) else _a(key)


def _is_ours(value: object) -> bool:
    """Whether a value is of a class of the plugin contract, whose fields have hints."""
    kind = type(value)
    has_fields = dataclasses.is_dataclass(kind) or isinstance(value, msgspec.Struct)
    return (
        has_fields
        and not isinstance(value, Enum)
        and any(base.__module__.startswith(_OURS) for base in kind.__mro__[:-1])
    )


@functools.cache
def hints_of(kind: type[object]) -> Mapping[str, object]:
    """Return the hints of a class's fields; what only type checkers can resolve is free."""
    fields: tuple[str, ...] = (
        tuple(field.name for field in dataclasses.fields(kind))
        if dataclasses.is_dataclass(kind)
        else tuple(getattr(kind, "__struct_fields__", ()))
    )
    names = _Names([vars(sys.modules[base.__module__]) for base in kind.__mro__])
    try:
        hints = typing.get_type_hints(kind, localns=names)
    except TypeError:  # a union with what only type checkers know
        return {}
    return {name: hints[name] for name in fields if name in hints}


class _Names(dict[str, object]):
    """Names as the modules of a class see them, and the free hint for those that they do not."""

    def __init__(self, modules: Sequence[Mapping[str, object]]) -> None:
        super().__init__()
        self._known = (*modules, vars(builtins))

    def __missing__(self, name: str) -> object:
        for names in self._known:
            if name in names:
                return names[name]
        return sys.modules.get("numpy", _Anything()) if name == "np" else _late(name)


class _Anything:
    """A module that is not there: all its names are free."""

    def __getattr__(self, name: str) -> object:
        return _FREE


def _guard(value: object, hint: object, owner: Owner, doing: str, depth: int) -> object:
    """Return a value with all callables in it guarded; itself if there are none."""
    if depth > _DEEPEST or value is None or isinstance(value, type | Guarded | Enum):
        return value
    if get_origin(hint) in (Union, types.UnionType):
        hint = next((one for one in get_args(hint) if _is_kind(value, one)), hint)
    if _is_mapping(value):
        args = get_args(hint)
        wanted = args[1] if len(args) == 2 else _FREE
        guarded = {
            key: _guard(item, wanted, owner, f"{doing} of '{_word(key)}'", depth + 1)
            for key, item in value.items()
        }
        differ = _differ(value.values(), guarded.values())
        return types.MappingProxyType(guarded) if differ else value
    if _is_sequence(value) and not hasattr(value, "_fields"):
        wanted = (get_args(hint) or (_FREE,))[0]
        made = {id(item): item for item in value}
        made = {key: _guard(item, wanted, owner, doing, depth + 1) for key, item in made.items()}
        again = [made[id(item)] for item in value]
        if not _differ(value, again):
            return value
        return again if isinstance(value, list) else tuple(again)
    if getattr(hint, "__module__", "").partition(".")[0] == "click":
        return value  # a command can be called, and is no function; what it runs is guarded
    if callable(value):
        return Guarded(value, owner, doing=doing, answers=_answers(hint))
    return _guard_fields(value, owner, doing, depth) if _is_ours(value) else value


def _guard_fields(value: object, owner: Owner, doing: str, depth: int) -> object:
    named = str(getattr(value, "name", "") or getattr(value, "operator", ""))
    within = f" of '{named}'" if named else ""
    changed: dict[str, object] = {}
    for name, hint in hints_of(type(value)).items():
        before = getattr(value, name)
        after = _guard(before, hint, owner, f"{name}{within}", depth + 1)
        if after is not before:
            changed[name] = after
    if not changed:
        return value
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changed)
    assert dataclasses.is_dataclass(value)
    assert not isinstance(value, type)
    return dataclasses.replace(value, **changed)


def _differ(before: Iterable[object], after: Iterable[object]) -> bool:
    return any(a is not b for a, b in zip(before, after, strict=True))


def _answers(hint: object) -> tuple[type, ...]:
    """Return the classes that a callable of this hint may answer with; empty if it does not say."""
    for one in get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,):
        args = get_args(one)
        if len(args) == 2 and get_origin(one) is get_origin(Callable[[], None]):
            result = args[1]
            kinds = (
                get_args(result) if get_origin(result) in (Union, types.UnionType) else (result,)
            )
            known = tuple(kind for kind in kinds if isinstance(kind, type))
            says = len(known) == len(kinds) and not any(map(_says_nothing, known))
            return known if says else ()
    return ()


def _word(key: object) -> str:
    return str(getattr(key, "name", key))


def _a(value: object) -> str:
    return type(value).__name__


def _named(hint: object) -> str:
    if isinstance(hint, type) and not get_args(hint):
        return hint.__name__
    return re.sub(r"\w+\.", "", str(hint))
