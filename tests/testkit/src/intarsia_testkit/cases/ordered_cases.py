# SPDX-License-Identifier: Apache-2.0
"""Calls of operators that choose elements by their order, or write them where indices say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from .case import Case, random_array

KINDS = ("float32", "float64", "float16", "int8", "uint16", "int64")


def choice_cases() -> Iterator[Case]:
    """``top_k``: ties, NaN, none and all of the elements, along any dimension."""
    rng = np.random.default_rng(21)
    shapes = (
        *(((3, 100), 1, 7), ((3, 100), 1, 100), ((4, 37, 3), 1, 5), ((5, 9), 0, 5)),
        *(((1, 1), 1, 1), ((2, 3), 1, 0), ((0, 3), 1, 2), ((1, 1000), 1, 33)),
    )
    for dtype, (shape, axis, count), largest in product(KINDS, shapes, (True, False)):
        x = random_array(rng, shape, dtype, -20, 20).round().astype(dtype)
        if x.dtype.kind == "f" and x.size > 5:
            x.reshape(-1)[::7] = np.nan
        yield Case("top_k", (x,), {"count": count, "axis": axis, "largest": largest})


def suppression_cases() -> Iterator[Case]:
    """``nn.non_max_suppression``: equal scores, NaN, few and many boxes, none that is left."""
    rng = np.random.default_rng(24)
    sizes = (
        *((1, 3, 100, 10, 0.5), (2, 2, 33, 5, 0.3), (1, 1, 1, 1, 0.5), (1, 2, 64, 64, 0.9)),
        *((1, 2, 7, 3, 0.0), (1, 2, 0, 1, 0.5), (1, 1, 40, 3, 1.0)),
    )
    for batch, classes, boxes, count, overlap in sizes:
        low = random_array(rng, (batch, 2, boxes), "float32", 0, 4)
        corners = np.concatenate([low, low + random_array(rng, low.shape, "float32", 0, 2)], 1)
        scores = random_array(rng, (batch, classes, boxes), "float32", 0, 1).round(1)
        scores.reshape(-1)[::9] = np.nan
        for least in (0.3, -np.inf):
            attrs = {"count": count, "overlap": overlap, "least": least}
            yield Case("nn.non_max_suppression", (corners, scores), attrs)
            limits = np.array([overlap, least], np.float32)
            given = {"count": count, "overlap": 0.0}
            yield Case("nn.non_max_suppression", (corners, scores, limits), given)


def scatter_cases() -> Iterator[Case]:
    """``scatter_elements`` and ``scatter_nd``: repeated, negative and outside indices."""
    rng = np.random.default_rng(22)
    for dtype, reduction in product(("float32", "int8", "float16"), _REDUCTIONS):
        attrs = {"reduction": reduction}
        for sizes, given, axis in _ELEMENTS:
            data = random_array(rng, sizes, dtype).round().astype(dtype)
            updates = random_array(rng, given, dtype).round().astype(dtype)
            kind = ("int32", "int64")[axis % 2]
            picked = random_array(rng, given, kind, -sizes[axis] - 1, sizes[axis])
            yield Case("scatter_elements", (data, picked, updates), {"axis": axis, **attrs})
        for sizes, picks in _SLICES:
            depth = picks[-1]
            data = random_array(rng, sizes, dtype).round().astype(dtype)
            places = [random_array(rng, picks[:-1], "int64", -n - 1, n) for n in sizes[:depth]]
            updates = random_array(rng, (*picks[:-1], *sizes[depth:]), dtype).round().astype(dtype)
            yield Case("scatter_nd", (data, np.stack(places, -1), updates), attrs)
    one = np.ones(1, np.float32)
    for weights in ((0, 1, 2), (1, 2), (0,)):
        operands = (one * 0, np.zeros(1, np.int64), one)
        yield Case("scatter_elements", operands, {"axis": 0}, weights)
    marks = np.array([True, False, True])
    yield Case("scatter_elements", (marks, np.array([0, 2]), marks[1:]), {"axis": 0})


_REDUCTIONS = ("none", "add", "mul", "max", "min")
_ELEMENTS = (
    *(((5, 7), (5, 3), 1), ((5, 7), (3, 7), 0), ((5, 7), (9, 4), 0), ((4,), (0,), 0)),
    *(((3, 4, 600), (3, 6, 600), 1), ((3, 4, 5), (2, 6, 3), 1), ((3, 4, 5), (2, 3, 9), 2)),
)
_SLICES = (
    *(((5, 7), (4, 1)), ((5, 7), (4, 2)), ((3, 4, 600), (2, 3, 1))),
    *(((3, 4, 5), (2, 3, 2)), ((4,), (3, 1)), ((4, 2), (0, 1))),
)


def sequence_cases() -> Iterator[Case]:
    """``tensor_scatter`` and ``reverse_sequence``."""
    rng = np.random.default_rng(23)
    for dtype in ("float32", "int8", "float16", "bool"):
        cache, update = (random_array(rng, (2, 3, n, 5), dtype) for n in (8, 4))
        for starts, circular in product(([0, 4], [6, -1], [-9, 20]), (False, True)):
            attrs = {"axis": 2, "circular": circular}
            yield Case("tensor_scatter", (cache, update, np.array(starts)), attrs)
        x = random_array(rng, (6, 3, 5), dtype)
        yield Case("reverse_sequence", (x, np.array([4, 0, 9])), {"time": 0, "batch": 1})
        ends = np.array([4, -1, 5], np.int32)
        yield Case("reverse_sequence", (x, ends), {"time": 2, "batch": 1})


def recurrent_cases() -> Iterator[Case]:
    """``nn.lstm``, ``nn.gru`` and ``nn.rnn``: no steps, one row, states of no whole vector."""
    rng = np.random.default_rng(25)
    for (steps, batch, hidden), reverse in product(_LAYERS, (False, True)):
        first, cell = (random_array(rng, (batch, hidden), "float32", -1, 1) for _ in range(2))
        x, r = (
            random_array(rng, (*lead, 4 * hidden), "float32", -1, 1)
            for lead in ((steps, batch), (hidden,))
        )
        yield Case("nn.lstm", (x, first, cell, r), {"reverse": reverse}, (3,))
        attrs = {"reverse": reverse, "quantize_state": True}
        whole = (r * 127).astype(np.int8)
        scale = random_array(rng, (4 * hidden,), "float32", 0, 0.01)
        yield Case("nn.lstm", (x, first, cell, whole, scale), attrs, (3, 4))
        own = random_array(rng, (3 * hidden,), "float32", -1, 1)
        attrs = {"reverse": reverse, "peepholes": True}
        yield Case("nn.lstm", (x, first, cell, r, own), attrs, (3, 4))
        bias = random_array(rng, (3 * hidden,), "float32", -1, 1)
        short = [np.ascontiguousarray(each[..., : 3 * hidden]) for each in (x, r)]
        for before in (False, True):
            attrs = {"reverse": reverse, "linear_before_reset": before}
            yield Case("nn.gru", (short[0], first, short[1], bias), attrs)
        plain = [np.ascontiguousarray(each[..., :hidden]) for each in (x, r)]
        for activation in ("tanh", "relu"):
            attrs = {"reverse": reverse, "activation": activation}
            yield Case("nn.rnn", (plain[0], first, plain[1]), attrs)


_LAYERS = ((3, 2, 5), (4, 1, 16), (0, 2, 3))
