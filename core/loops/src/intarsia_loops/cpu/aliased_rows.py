# SPDX-License-Identifier: Apache-2.0
"""Rows of a matrix that fall on top of each other in a cache, copied for a register tile.

A tile reads 14 rows side by side. Rows a multiple of 4096 bytes apart fall into one set of a
first-level cache of 32 or 48 KiB, which holds 8 or 12 lines, so each element comes from the second
level. Copied to rows 16 elements farther, for a twentieth of the time of a tile two vectors wide,
they take 0.88 to 0.91 of the time before (1024 by 196 elements, AMD Zen 4).
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TypeAlias

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.stmt import Allocate, Stmt
from intarsia_runtime.dtype import DType

from .loops import copy_rows, load, seq, serial, store

Rows: TypeAlias = Callable[["PrimExpr | int", PrimExpr], PrimExpr]
"""``rows(r, k)``: element ``k`` of a row of a tile."""

_WAYS = 8
"""Lines of a set, at least."""

_SETS_BYTES = 4096
"""Of one line of each set: two lines so far apart are of the same."""

APART = 16
"""Elements by which rows of a copy are longer."""

_MOST_BYTES = 512 * 1024


def most_rows(stride: int) -> int:
    """Return how many rows so many bytes apart the sets hold that they fall into."""
    return _WAYS * (_SETS_BYTES // gcd(stride, _SETS_BYTES))


def with_rows_apart(
    rows: Rows, size: tuple[int, int], dtype: DType, lanes: int, body: Callable[[Rows], Stmt]
) -> Stmt:
    """Return ``body(rows)``, of copied rows if those that are given compete for a set of a cache.

    Args:
        rows: Of a tile, each contiguous and as far from the one before as it is long.
        size: How many there are, and elements of each.
        dtype: Of an element.
        lanes: Elements of a vector.
        body: What reads them.
    """
    count, length = size
    stride = length * dtype.bytes
    if count <= most_rows(stride) or count * (stride + APART * dtype.bytes) > _MOST_BYTES:
        return body(rows)
    copy = Buffer("rows", (count, length + APART), dtype, MemoryScope.STACK)
    filled = copied_rows(copy, size, lanes, rows)
    return Allocate(copy, seq(filled, body(lambda r, k: load(copy, r, k))))


def copied_rows(copy: Buffer, size: tuple[int | PrimExpr, int], lanes: int, rows: Rows) -> Stmt:
    """Return the loops that copy rows, vector by vector.

    Args:
        copy: What they are copied to; its rows may be longer.
        size: How many rows there are, which the run may know, and elements of each.
        lanes: Elements of a vector.
        rows: What is copied.
    """
    count, length = size

    def one(r: PrimExpr) -> Stmt:
        return copy_rows(length, lanes, lambda k: store(copy, (r, k), rows(r, k)))

    return serial(count, one, "r")
