# SPDX-License-Identifier: Apache-2.0
"""TfIdfVectorizer of numbers: counts of n-grams, weighed."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare
from intarsia_ir.ops.ngrams import CountNgrams
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from ..builder import rank_of, sizes_of
from ..context import NodeContext

_KIND = DType.FLOAT32


def tf_idf_vectorizer(node: NodeContext) -> Expr:
    """Convert TfIdfVectorizer; a vector is one row.

    Raises:
        ModelError: The pool and the attributes that describe it do not fit.
    """
    x = node.input(0)
    if rank_of(x) not in (1, 2) or not node.type_of(0).dtype.is_integer:
        raise node.model_error(f"takes words of one row or several, got {node.type_of(0)}")
    rows = node.reshape(x, (1, *sizes_of(x))) if rank_of(x) == 1 else x
    columns = node.integers("ngram_indexes")
    width = max(columns, default=-1) + 1
    shortest, longest = node.integer("min_gram_length"), node.integer("max_gram_length")
    total: Expr = node.full((1, width), 0, _KIND)
    for grams, places in _tables(node, columns):
        if not len(grams) or not shortest <= grams.shape[1] <= longest:
            continue
        attrs = CountNgrams.Attrs(width=width, skips=node.integer("max_skip_count"))
        found = node.call(CountNgrams, rows, node.array(grams), node.array(places), attrs=attrs)
        total = node.call(binary.Add, total, found)
    total = node.broadcast(total, extents((sizes_of(rows)[0], width)))
    return node.reshape(_weighed(node, total, columns, width), (*sizes_of(x)[:-1], width))


def _tables(node: NodeContext, columns: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return n-grams in lexicographic order ``[grams, length]``, and the column of each."""
    words = np.array(node.integers("pool_int64s"), np.int64)
    starts = node.integers("ngram_counts")
    ends = (*starts[1:], len(words))
    tables: list[tuple[np.ndarray, np.ndarray]] = []
    used = 0
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(words) or (end - start) % length:
            raise node.model_error(f"{end - start} words are no n-grams of {length}")
        grams = words[start:end].reshape(-1, length)
        places = np.array(columns[used : used + len(grams)], np.int64)
        used += len(grams)
        if len(np.unique(grams, axis=0)) != len(grams):
            raise node.model_error(f"an n-gram of {length} words is there twice")
        order = np.lexsort(grams.T[::-1])
        tables.append((grams[order], places[order] if len(places) == len(grams) else places))
    if used != len(columns) or any(column < 0 for column in columns):
        raise node.model_error(f"{used} n-grams for {len(columns)} places")
    return tables


def _weighed(node: NodeContext, counts: Expr, columns: tuple[int, ...], width: int) -> Expr:
    """Weigh counts: all alike, all that are there, or each."""
    mode = node.string("mode")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise node.model_error(f"mode='{mode}' is not defined")
    if mode == "IDF":
        nothing = node.scalar(0.0, _KIND)
        counts = node.cast(node.call(compare.Greater, counts, nothing), _KIND)
    if mode == "TF" or not node.has("weights"):
        return counts
    given = np.array(node.numbers("weights"), np.float32)
    if len(given) != len(columns):
        raise node.model_error(f"{len(given)} weights for {len(columns)} n-grams")
    weights = np.ones(width, np.float32)
    weights[list(columns)] = given
    return node.call(binary.Multiply, counts, node.array(weights))


CONVERTERS = MappingProxyType({"TfIdfVectorizer": tf_idf_vectorizer})
