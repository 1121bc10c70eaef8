# SPDX-License-Identifier: Apache-2.0
"""Maps, which are Python dictionaries here: tensors of their values, and the other way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar, cast

import numpy as np

from ..label_classes import VALUE_KIND
from .call import NumpyCall, Value

_Label = TypeVar("_Label", int, str)


def zip_map(call: NumpyCall, scores: np.ndarray) -> list[Value]:
    """Make a dictionary of each row: a label's score by the label."""
    if call.has("classlabels_strings"):
        return cast("list[Value]", _maps(call.strings("classlabels_strings"), scores))
    return cast("list[Value]", _maps(call.integers("classlabels_int64s"), scores))


def _maps(labels: Sequence[_Label], scores: np.ndarray) -> list[dict[_Label, float]]:
    rows: list[list[float]] = scores.reshape(-1, len(labels)).tolist()
    match labels:  # a display takes a third of the time of a call of dict
        case (one, two):
            return [{one: first, two: second} for first, second in rows]
        case (one, two, three):
            return [{one: first, two: second, three: third} for first, second, third in rows]
        case _:
            return [dict(zip(labels, row, strict=True)) for row in rows]


def _mapping(call: NumpyCall, value: Value) -> Mapping[int | str, float | str]:
    """Return an input of a model that is a map; it comes as an array of one object."""
    held = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    if not isinstance(held, dict):
        raise call.model_error(f"takes a map, which is a dict, got {type(held).__name__}")
    return cast("Mapping[int | str, float | str]", held)


def cast_map(call: NumpyCall, value: Value) -> np.ndarray:
    """Make a row of the values of a map: in the order of keys, or each at the place of its key."""
    items, kind = _mapping(call, value), call.string("cast_to", "TO_FLOAT")
    if kind not in _CASTS:
        raise call.model_error(f"cast_to='{kind}' is not defined")
    keys = sorted(items)
    if not all(isinstance(key, int | np.integer) for key in keys):
        raise call.model_error("takes a map whose keys are integers")
    dtype, convert, filler = _CASTS[kind]
    if call.string("map_form", "DENSE") == "DENSE":
        return np.array([[convert(items[key]) for key in keys]], dtype).reshape(1, len(keys))
    width = call.integer("max_map", 1)
    call.reserve((1, width), 8)
    row = np.full((1, width), filler, dtype)
    for key in map(int, keys):
        if key < 0:
            raise call.model_error(f"the map has key {key}, which is no place in a row")
        if key < width:
            row[0, key] = convert(items[key])
    return row


def _as_text(item: float | str) -> str:
    return item if isinstance(item, str) else f"{np.float32(item):f}"


def _as_integer(item: float | str) -> int:
    return int(np.float32(item))


_CASTS = MappingProxyType(
    {
        "TO_FLOAT": (np.float32, float, 0),
        "TO_STRING": (object, _as_text, "0.f"),  # as ONNX Runtime fills it
        "TO_INT64": (np.int64, _as_integer, 0),
    }
)


def dict_vectorizer(call: NumpyCall, value: Value) -> np.ndarray:
    """Make a row of a map: the value of each key of the vocabulary, 0 or "" for one not there."""
    items = _mapping(call, value)
    keys = call.strings("string_vocabulary") or call.integers("int64_vocabulary", ())
    kind = call.string(VALUE_KIND, "float")
    if kind == "string":
        return np.array([[items.get(key, "") for key in keys]], object)
    return np.array([[items.get(key, 0) for key in keys]], _DTYPES.get(kind, kind))


_DTYPES = MappingProxyType({"float": "float32", "double": "float64"})


KERNELS = MappingProxyType(
    {
        ("ai.onnx.ml", "CastMap"): cast_map,
        ("ai.onnx.ml", "DictVectorizer"): dict_vectorizer,
        ("ai.onnx.ml", "ZipMap"): zip_map,
    }
)
