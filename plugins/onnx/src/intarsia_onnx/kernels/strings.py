# SPDX-License-Identifier: Apache-2.0
"""Strings: arrays of Python strings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from intarsia_ir.budget import budget

from .call import NumpyCall, Scalar

_FEW_BYTES = 1 << 16  # of joined strings, which need no asking


def string_concat(call: NumpyCall, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Join the strings of two tensors, with NumPy's broadcasting."""
    count = np.broadcast(a, b).size
    longest = sum(max(map(len, t.reshape(-1).tolist()), default=0) for t in (a, b))
    if count * longest > _FEW_BYTES:
        call.reserve((count, longest), 1)
    return np.asarray(np.add(a, b), object)


def string_split(call: NumpyCall, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split each string; gives the parts, filled up with empty ones, and their counts."""
    delimiter = call.string("delimiter", "") or None
    most = call.integer("maxsplit", -1)
    rows = [str(text).split(delimiter, most) for text in x.reshape(-1)]
    width = max((len(row) for row in rows), default=0)
    call.reserve((len(rows), width))
    parts = np.full((len(rows), width), "", object)
    for index, row in enumerate(rows):
        parts[index, : len(row)] = row
    counts = np.array([len(row) for row in rows], np.int64)
    return parts.reshape(*x.shape, width), counts.reshape(x.shape)


def string_normalizer(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Drop words that are stop words, and change the case of the others."""
    change = call.string("case_change_action", "NONE")
    sensitive = bool(call.integer("is_case_sensitive", 0))
    stop = set(call.strings("stopwords"))
    if not sensitive:
        stop = {word.lower() for word in stop}
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) > 1:
        raise call.model_error(f"takes one row of words, got shape {x.shape}")
    kept = [word for word in rows[0] if (word if sensitive else word.lower()) not in stop]
    match change:
        case "LOWER":
            kept = [word.lower() for word in kept]
        case "UPPER":
            kept = [word.upper() for word in kept]
        case _:
            pass
    kept = kept or [""]
    return np.array(kept, object).reshape(*x.shape[:-1], len(kept))


def regex_full_match(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Whether a regular expression of RE2, which takes linear time, matches each whole string."""
    try:
        import re2  # for this operator alone
    except ImportError as error:
        raise call.unsupported(
            f"regular expressions need the package 'google-re2': {error}",
            "pip install google-re2",
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(call.string("pattern"), options)
    except re2.error as error:
        raise call.model_error(f"the pattern is no regular expression of RE2: {error}") from None
    found = [pattern.fullmatch(str(text)) is not None for text in x.reshape(-1)]
    return np.array(found, bool).reshape(x.shape)


def equal(call: NumpyCall, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compare strings; numbers are left to the converter."""
    if not a.dtype.hasobject:
        return NotImplemented
    return np.asarray(a == b, bool)


MOVES = frozenset(
    {
        *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Reshape"),
        *("ReverseSequence", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "Split"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze", "Where", "DepthToSpace", "SpaceToDepth"),
    }
)
"""Operators that move elements and need not know what they are, so strings neither."""


class Numbered:
    """Strings as their numbers in a list, for operators that only move them.

    Args:
        operands: Of a node; those of strings are numbered.
    """

    def __init__(self, operands: Sequence[np.ndarray | None]) -> None:
        texts = [x.reshape(-1) for x in operands if x is not None and x.dtype.hasobject]
        self._texts = texts[0] if len(texts) == 1 else np.concatenate(texts)
        self.operands: list[np.ndarray | None] = []
        first = 0
        for x in operands:
            if x is None or not x.dtype.hasobject:
                self.operands.append(x)
                continue
            self.operands.append(np.arange(first, first + x.size).reshape(x.shape))
            first += x.size

    def texts(self, numbers: np.ndarray) -> np.ndarray:
        """Return the strings with these numbers."""
        return np.asarray(self._texts[numbers], object)


def label_encoder(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Map each element to another by a table; the last of equal keys counts, NaN matches NaN."""
    table, default, dtype = call.kept(partial(_look_up, strings=x.dtype.hasobject))
    items = x.reshape(-1).tolist()
    if x.dtype.kind == "f":
        items = [_key(item) for item in items]
    return np.array([table.get(item, default) for item in items], dtype).reshape(x.shape)


def _look_up(call: NumpyCall, *, strings: bool) -> tuple[dict[Scalar, Scalar], Scalar, np.dtype]:
    """Return what elements become, what others become, and the element type of these."""
    keys, values = _keys_and_values(call, strings=strings)
    if len(keys) != len(values):
        raise call.model_error(f"{len(keys)} keys for {len(values)} values")
    table = dict(zip((_key(key) for key in keys.tolist()), values.tolist(), strict=True))
    return table, _default(call, values.dtype), values.dtype


def _keys_and_values(call: NumpyCall, *, strings: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return keys and values; version 1 has classes, which strings number and numbers name."""
    if not call.has("classes_strings"):
        return _table(call, "keys"), _table(call, "values")
    classes = np.array(call.strings("classes_strings"), object)
    numbers = np.arange(len(classes))
    return (classes, numbers) if strings else (numbers, classes)


def _table(call: NumpyCall, role: str) -> np.ndarray:
    if call.has(f"{role}_tensor"):
        return call.tensor(f"{role}_tensor").reshape(-1)
    if call.has(f"{role}_strings"):
        return np.array(call.strings(f"{role}_strings"), object)
    if call.has(f"{role}_int64s"):
        return np.array(call.integers(f"{role}_int64s"), np.int64)
    if call.has(f"{role}_floats"):
        return np.array(call.numbers(f"{role}_floats"), np.float32)
    raise call.model_error(f"has no table of {role}")


def _default(call: NumpyCall, dtype: np.dtype) -> Scalar:
    if call.has("default_tensor"):
        return call.tensor("default_tensor").reshape(()).item()
    if dtype.hasobject:
        return call.string("default_string", "_Unused")
    if dtype.kind in "iu":
        return call.integer("default_int64", -1)
    return call.number("default_float", -0.0)


def _key(item: Scalar) -> Scalar:
    """Return what equal keys share: NaN is like no number, itself included."""
    return "NaN" if isinstance(item, float) and item != item else item


def tf_idf_vectorizer(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Count n-grams of a pool in each row, and weigh the counts."""
    shortest, longest = call.integer("min_gram_length"), call.integer("max_gram_length")
    most_skips = call.integer("max_skip_count")
    places = call.integers("ngram_indexes")
    pool = call.kept(_pool)
    weights = np.array(call.optional_numbers("weights") or [1.0] * len(places), np.float32)
    width = max(places, default=-1) + 1
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)
    call.reserve((len(rows), width), 4)
    counts = np.zeros((len(rows), width), np.float32)
    limits = budget()
    lengths = sorted({len(gram) for gram in pool if shortest <= len(gram) <= longest})
    for row, words in enumerate(rows.tolist()):
        for length in lengths:
            fitting = (len(words) - 1) // max(length - 1, 1)  # distances at which a gram fits
            for skip in range(1 if length == 1 else min(most_skips + 1, fitting)):
                limits.check(call.span)
                reach = (length - 1) * (skip + 1) + 1
                for start in range(len(words) - reach + 1):
                    gram = tuple(words[start : start + reach : skip + 1])
                    if gram in pool:
                        counts[row, places[pool[gram]]] += 1
    by_place = np.ones(width, np.float32)
    by_place[list(places)] = weights
    match call.string("mode"):
        case "TF":
            result = counts
        case "IDF":
            result = (counts > 0) * by_place
        case _:
            result = counts * by_place
    return result.astype(np.float32).reshape(*x.shape[:-1], width)


def _pool(call: NumpyCall) -> dict[tuple[Scalar, ...], int]:
    """Return the number of each n-gram of the pool."""
    places = call.integers("ngram_indexes")
    items: list[Scalar] = [*call.strings("pool_strings"), *call.integers("pool_int64s", ())]
    starts = call.integers("ngram_counts")
    pool: dict[tuple[Scalar, ...], int] = {}
    ends = [*starts[1:], len(items)]
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        for first in range(start, end, length):
            pool[tuple(items[first : first + length])] = len(pool)
    if len(pool) != len(places):
        raise call.model_error(f"{len(pool)} n-grams for {len(places)} places")
    return pool


KERNELS = MappingProxyType(
    {
        ("", "StringConcat"): string_concat,
        ("", "StringSplit"): string_split,
        ("", "StringNormalizer"): string_normalizer,
        ("", "RegexFullMatch"): regex_full_match,
        ("", "Equal"): equal,
        ("", "TfIdfVectorizer"): tf_idf_vectorizer,
        ("ai.onnx.ml", "LabelEncoder"): label_encoder,
    }
)
