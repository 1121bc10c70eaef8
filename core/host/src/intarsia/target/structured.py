# SPDX-License-Identifier: Apache-2.0
"""Targets as JSON or as a dict, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NoReturn, cast

from intarsia_runtime.errors import TargetError, did_you_mean

from .compose import compose
from .kind import Role
from .kind_table import COMPOSITE, GIVEN, KindSource, Origin, find_target_row
from .options import RESERVED, Value, check_value
from .profile import target_of_profile
from .scan import MAX_LENGTH
from .strings import complete, parse_tag, parse_targets
from .target import CompositeTarget, Target
from .universal import target_rows

TAG = "tag"
"""Key whose value is the name of hardware, instead of ``kind``."""

MAX_DEPTH = 16
"""Deepest nesting of a target's JSON."""

_COMPOSITE_KEYS = ("kind", "accelerators", "fallback", "target_host", "host")
_MEMBERS = frozenset(_COMPOSITE_KEYS) - {"kind"}
_RESERVED = frozenset((RESERVED | {"target_host"}) - {"keys", "hardware"})


def load_json(text: str) -> object:
    """Return what a JSON text says; duplicate keys, NaN and deep nesting are refused.

    Raises:
        TargetError: It is not such a text.
    """
    if len(text) > MAX_LENGTH:
        raise TargetError(f"the target has {len(text)} characters; at most {MAX_LENGTH} are read")
    depth = deepest = 0
    quoted = escaped = False
    for ch in text:
        if quoted:
            quoted, escaped = escaped or ch != '"', ch == "\\" and not escaped
        elif ch == '"':
            quoted = True
        elif ch in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif ch in "]}":
            depth -= 1
    if deepest > MAX_DEPTH:
        raise TargetError(
            f"the target's JSON nests {deepest} levels deep; at most {MAX_DEPTH} are read"
        )
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_not_a_number)
    except json.JSONDecodeError as cause:
        raise TargetError(
            f"the target's JSON does not parse: {cause.msg} "
            f"at line {cause.lineno}, column {cause.colno}"
        ) from None
    except ValueError as cause:  # an integer of thousands of digits
        raise TargetError(f"the target's JSON does not parse: {cause}") from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise TargetError(f"key {key[:60]!r} occurs twice in the target's JSON")
        result[key] = value
    return result


def _not_a_number(name: str) -> NoReturn:
    raise TargetError(f"{name} is not JSON")


def composite_from_text(
    text: str, kinds: KindSource, host: Target | None = None, origin: Origin = GIVEN
) -> CompositeTarget:
    """Return the composite that a JSON object, a list of targets or a profile says, as text.

    Raises:
        TargetError: It is not such a text, or what it says is wrong.
    """
    value = load_json(text)
    if isinstance(value, list):
        return compose(
            targets_from_list(cast("list[object]", value), kinds, origin), kinds, host, origin
        )
    return composite_from_json(target_of_profile(value), kinds, host, origin)


def composite_from_json(
    value: object, kinds: KindSource, host: Target | None = None, origin: Origin = GIVEN
) -> CompositeTarget:
    """Return the composite that a JSON object or a dict says.

    ``{"kind": "composite", "accelerators": [...], "fallback": {...}, "target_host": {...}}``,
    where one of the last two may be missing, or a backend with a key ``accelerators``, or one
    target, or ``{"tag": "vendor/device"}`` with options that win over the tag's.

    Raises:
        TargetError: A key, a type or a value is wrong; the message says where it stands.
    """
    row = _object(value, "target")
    if row.get("kind") == COMPOSITE:
        for key in row:
            if key not in _COMPOSITE_KEYS:
                raise TargetError(
                    f"a composite has no key {str(key)[:60]!r}",
                    hint=did_you_mean(str(key), _COMPOSITE_KEYS) or ", ".join(_COMPOSITE_KEYS),
                )
        parts = _accelerators(row, kinds, origin)
        fallback = _member(row, "fallback", kinds, origin)
        if fallback is not None:
            parts.append(fallback)
        if not parts:
            raise TargetError(
                "the composite has neither 'accelerators' nor a 'fallback'",
                hint="name at least a backend as its 'fallback'",
                where="target",
            )
    elif TAG in row and "kind" not in row:
        parts = [*_accelerators(row, kinds, origin), *_tagged(row, kinds, origin, "target")]
    else:
        parts = _accelerators(row, kinds, origin)
        parts.append(target_from_json(row, kinds, origin, members=True))
        if len(parts) > 1 and parts[-1].kind.role is not Role.BACKEND:
            raise TargetError(f"accelerator '{parts[-1].kind.name}' cannot have accelerators")
    named = _host(row, kinds, origin)
    if host is not None and named is not None and host != named:
        raise TargetError(f"target_host '{host}' is not the host of the target, '{named}'")
    return compose(parts, kinds, host or named, origin)


def target_from_json(
    value: object,
    kinds: KindSource,
    origin: Origin = GIVEN,
    where: str = "target",
    *,
    members: bool = False,
) -> Target:
    """Return one target: a string, or an object with ``kind`` (or ``tag``) and its options.

    Args:
        value: The string or the object.
        kinds: Where the kind comes from.
        origin: Who gives the options, and what is set besides.
        where: Named in messages.
        members: Leave the keys of a composite (``accelerators``, ``target_host``) to the caller.

    Raises:
        TargetError: A key, a type or a value is wrong.
    """
    if isinstance(value, str):
        return _from_text(value, kinds, origin, where)
    row = _object(value, where)
    if TAG in row and "kind" not in row:
        return _only_one(_tagged(row, kinds, origin, where), where)
    name = row.get("kind")
    if not isinstance(name, str):
        raise TargetError("'kind' is missing or is not a string", where=where)
    if name == COMPOSITE:
        raise TargetError("a composite cannot be inside another target", where=where)
    kind = kinds.kind(name)
    rows = target_rows(kind.options)
    values: dict[str, Value] = {}
    for key, given in row.items():
        if key == "kind" or (members and key in _COMPOSITE_KEYS):
            continue
        try:
            if key in _RESERVED:
                raise TargetError(f"'{key}' is not allowed here")
            found = find_target_row(f"target kind '{name}'", rows, key)
            if found.flag in values:
                raise TargetError(f"-{found.flag} is given twice")
            values[found.flag] = check_value(found, given)
        except TargetError as error:
            raise error.at(f"{where}.{key[:60]}") from None
    return complete(kind, values, kinds, origin)


def targets_from_list(value: object, kinds: KindSource, origin: Origin = GIVEN) -> list[Target]:
    """Return the targets of a list: strings, objects, or targets made before.

    Raises:
        TargetError: It is no list, or an item is wrong; the message says which.
    """
    if not isinstance(value, list | tuple):
        raise TargetError(f"expected a list of targets, not {type(value).__name__}")
    found: list[Target] = []
    for number, item in enumerate(cast("Sequence[object]", value)):
        match item:
            case Target():
                found.append(cast("Target", item))  # of any kind
            case str():
                found += parse_targets(item, kinds, origin)
            case _:
                found.append(target_from_json(item, kinds, origin, f"target[{number}]"))
    return found


def _from_text(text: str, kinds: KindSource, origin: Origin, where: str) -> Target:
    if text == COMPOSITE:
        raise TargetError("a composite cannot be inside another target", where=where)
    try:
        found = parse_targets(text, kinds, origin)
    except TargetError as error:
        raise error.at(f"{where}: {error.where}") from None
    return _only_one(found, where)


def _only_one(found: Sequence[Target], where: str) -> Target:
    if len(found) != 1:
        raise TargetError(f"expected one target here, not {len(found)}", where=where)
    return found[0]


def _tagged(
    row: Mapping[str, object], kinds: KindSource, origin: Origin, where: str
) -> list[Target]:
    """The targets of a hardware tag, options beside it winning over what it says."""
    name = row[TAG]
    if not isinstance(name, str):
        raise TargetError("'tag' is not a string", where=f"{where}.tag")
    options = {key: row[key] for key in row if key != TAG and key not in _MEMBERS}
    for key in options:
        if key in _RESERVED:
            raise TargetError(f"'{key}' cannot be combined with 'tag'", where=f"{where}.{key}")
    try:
        return parse_tag(name, options, kinds, origin)
    except TargetError as error:
        raise error.at(where) from None


def _object(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TargetError(f"expected an object, not {type(value).__name__}", where=where)
    row = cast("Mapping[object, object]", value)
    for key in row:
        if not isinstance(key, str):
            raise TargetError(f"key {key!r} is not a string", where=where)
    return cast("Mapping[str, object]", row)


def _accelerators(row: Mapping[str, object], kinds: KindSource, origin: Origin) -> list[Target]:
    given = row.get("accelerators", [])
    if not isinstance(given, list | tuple):
        raise TargetError("'accelerators' is not a list", where="target.accelerators")
    found: list[Target] = []
    for number, item in enumerate(cast("list[object]", given)):
        where = f"target.accelerators[{number}]"
        target = target_from_json(item, kinds, origin, where)
        if target.kind.role is not Role.ACCELERATOR:
            raise TargetError(
                f"'{target.kind.name}' is a backend, not an accelerator",
                hint="backends go to 'fallback' or 'target_host'",
                where=where,
            )
        found.append(target)
    return found


def _member(
    row: Mapping[str, object], key: str, kinds: KindSource, origin: Origin
) -> Target | None:
    if key not in row:
        return None
    where = f"target.{key}"
    target = target_from_json(row[key], kinds, origin, where)
    if target.kind.role is not Role.BACKEND:
        raise TargetError(f"'{target.kind.name}' is an accelerator, not a backend", where=where)
    return target


def _host(row: Mapping[str, object], kinds: KindSource, origin: Origin) -> Target | None:
    """``target_host``, or ``host`` as TVM calls it."""
    if "target_host" in row and "host" in row:
        raise TargetError("'host' and 'target_host' mean the same; keep one", where="target")
    key = "host" if "host" in row else "target_host"
    return _member(row, key, kinds, origin)
