# SPDX-License-Identifier: Apache-2.0
"""Check attribute values read from text against the types an operator declares for them."""

from __future__ import annotations

from types import UnionType
from typing import Union, cast, get_args, get_origin, get_type_hints

from ..op import Op
from ..types import Dim


def declared_types(op: type[Op]) -> dict[str, object]:
    """Return the declared type of each attribute; nothing if a name in them is not importable."""
    try:
        return get_type_hints(op.Attrs)
    except NameError:  # declared by a name that exists for type checkers only
        return {}


def fits(value: object, declared: object) -> bool:
    """Whether a value read from text is of a declared type.

    A whole number may be a float, and a size that only the run knows is a number.
    """
    origin = get_origin(declared)
    if origin in (Union, UnionType):
        return any(fits(value, option) for option in get_args(declared))
    if origin is tuple:
        return isinstance(value, tuple) and _items_fit(
            cast("tuple[object, ...]", value), get_args(declared)
        )
    if not isinstance(declared, type):
        return True
    if isinstance(value, Dim):
        return declared in (int, float)
    if declared is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if declared is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, declared)


def _items_fit(values: tuple[object, ...], declared: tuple[object, ...]) -> bool:
    if len(declared) == 2 and declared[1] is Ellipsis:
        return all(fits(value, declared[0]) for value in values)
    return len(values) == len(declared) and all(map(fits, values, declared))
