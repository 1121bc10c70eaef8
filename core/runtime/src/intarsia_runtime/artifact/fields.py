# SPDX-License-Identifier: Apache-2.0
"""Reads typed values out of parsed JSON; anything unexpected means a damaged artifact."""

from __future__ import annotations

import json
from typing import TypeAlias, TypeVar, cast

from ..errors import ArtifactError

T = TypeVar("T")
JsonObject: TypeAlias = "dict[str, object]"
"""An object as ``json`` parses it."""


def _of_type(document: JsonObject, key: str, kind: type[T], called: str) -> T:
    value = document.get(key)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ArtifactError(f"the passport's '{key}' is not {called}")
    return value


def check_characters(data: bytes, document: object) -> None:
    """Check that the texts of parsed JSON can be written again: no half of a pair of surrogates.

    Raises:
        UnicodeEncodeError: One cannot.
    """
    if b"\\ud" in data.lower():
        json.dumps(document, ensure_ascii=False).encode()


def read_dict(value: object, what: str) -> JsonObject:
    """Return ``value``, which must be a JSON object.

    Raises:
        ArtifactError: It is not.
    """
    if not isinstance(value, dict):
        raise ArtifactError(f"{what} is not an object")
    return cast("JsonObject", value)


def read_mapping(document: JsonObject, key: str) -> JsonObject:
    """Return the JSON object at ``key``."""
    return cast("JsonObject", _of_type(document, key, dict, "an object"))


def read_list(document: JsonObject, key: str) -> list[object]:
    """Return the list at ``key``."""
    return cast("list[object]", _of_type(document, key, list, "a list"))


def read_str(document: JsonObject, key: str) -> str:
    """Return the text at ``key``."""
    return _of_type(document, key, str, "a text")


def read_int(document: JsonObject, key: str) -> int:
    """Return the non-negative whole number at ``key``.

    Raises:
        ArtifactError: It is something else.
    """
    value = _of_type(document, key, int, "a whole number")
    if value < 0:
        raise ArtifactError(f"the passport's '{key}' is negative")
    return value


def read_texts(document: JsonObject, key: str) -> tuple[str, ...]:
    """Return the list of texts at ``key``.

    Raises:
        ArtifactError: It holds something else.
    """
    values = read_list(document, key)
    if not all(isinstance(value, str) for value in values):
        raise ArtifactError(f"the passport's '{key}' is not a list of texts")
    return tuple(cast("list[str]", values))


def read_text_table(document: JsonObject, key: str) -> dict[str, str]:
    """Return the JSON object of texts at ``key``.

    Raises:
        ArtifactError: It holds something else.
    """
    table = read_mapping(document, key)
    if not all(isinstance(value, str) for value in table.values()):
        raise ArtifactError(f"the passport's '{key}' is not an object of texts")
    return cast("dict[str, str]", table)


def read_sizes(document: JsonObject, key: str) -> tuple[int, ...]:
    """Return the list of non-negative whole numbers at ``key``.

    Raises:
        ArtifactError: It holds something else.
    """
    values = read_list(document, key)
    if not all(type(value) is int and value >= 0 for value in values):
        raise ArtifactError(f"the passport's '{key}' is not a list of sizes")
    return tuple(cast("list[int]", values))
