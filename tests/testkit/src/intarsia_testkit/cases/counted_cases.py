# SPDX-License-Identifier: Apache-2.0
"""Calls of operators that find a number of things, or make a number of the run a size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from intarsia_runtime.size import variable

from .case import Case, random_array

KINDS = ("float32", "float64", "float16", "int8", "uint16", "int64", "bool")


def found_cases() -> Iterator[Case]:
    """``non_zero``: none, one and all of the elements; more and fewer than are asked for."""
    rng = np.random.default_rng(31)
    shapes = ((1,), (7,), (3, 37), (2, 3, 5), (0, 4), (64,), (1000,))
    for shape, share in product(shapes, (0.0, 0.1, 1.0)):
        x = rng.random(shape) < share
        for count in sorted({0, int(x.sum()), int(x.sum()) + 3}):
            yield Case("non_zero", (x,), {"count": count})


def box_cases() -> Iterator[Case]:
    """``chosen_boxes``: classes without boxes, more and fewer boxes than are asked for."""
    rng = np.random.default_rng(32)
    for batch, classes, boxes in ((1, 1, 1), (2, 3, 5), (1, 4, 0), (0, 2, 3)):
        places = rng.integers(0, 99, (batch, classes, boxes))
        counts = rng.integers(0, boxes + 1, (batch, classes))
        for count in sorted({0, int(counts.sum()), int(counts.sum()) + 2}):
            yield Case("chosen_boxes", (places, counts), {"count": count})


def distinct_cases() -> Iterator[Case]:
    """``unique``: equal rows, NaN, one row and none, of every type."""
    rng = np.random.default_rng(33)
    shapes = ((1, 1), (0, 2), (7, 1), (65, 1), (100, 3), (5, 0))
    for dtype, shape, is_sorted in product(KINDS, shapes, (True, False)):
        x = random_array(rng, shape, dtype, -4, 5).round().astype(dtype)
        if x.dtype.kind == "f" and x.size > 5:
            x.reshape(-1)[::7] = np.nan
        yield Case("unique", (x,), {"is_sorted": is_sorted})


def size_cases() -> Iterator[Case]:
    """``size_of`` and ``with_sizes``: scalars and vectors of one element."""
    for number, value in enumerate((0, 1, 7)):
        size = np.full((1,) * (number % 2), value)
        yield Case("size_of", (size,), {"size": variable(f"case#{number}")})
        yield Case("with_sizes", (np.arange(value, dtype=np.float32), size))
