# SPDX-License-Identifier: Apache-2.0
"""How register tiles of few sizes cover an open number of rows."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.evaluate import ExprEvaluator
from intarsia_ir.tir.expr import IntImm, const, size_variable
from intarsia_ir.tir.forward import procedures
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.specialize import specialize
from intarsia_ir.tir.verify import verify_func
from intarsia_loops.cpu.loops import store
from intarsia_loops.cpu.open_dense import open_dense_loops, tiles_of
from intarsia_loops.cpu.panel import flat_rows
from intarsia_loops.cpu.shared_tiles import even_tiles
from intarsia_loops.cpu.tiling import CpuTiling, best_rows, tile_cost
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable


@pytest.mark.parametrize("coarse", [True, False])
@pytest.mark.parametrize("largest", [6, 12, 14])
def test_any_number_of_rows_costs_little_more_than_tiles_for_it(largest, coarse) -> None:
    tiles = tiles_of(size_variable("M"), largest, coarse=coarse)
    sizes = tiles.sizes
    counts, bound = tiles.counts("rows")
    for rows in range(2, 6 * largest):
        known = {tiles.rows: np.int64(rows)}
        for name, value in bound:
            known[name] = ExprEvaluator(known, {}).value(value)
        cost = sum(known[n] * tile_cost(size) for n, size in zip(counts, sizes, strict=True))
        full, rest = divmod(rows, best := best_rows(rows, largest))
        assert cost <= 1.061 * (full * tile_cost(best) + (tile_cost(rest) if rest else 0))


@pytest.mark.parametrize("largest", [4, 6, 12, 14])
def test_even_tiles_cover_all_rows_once_at_the_least_cost(largest: int) -> None:
    tiles = even_tiles(size_variable("M"), largest)
    sizes = tiles_of(size_variable("M"), largest)
    counts, table = sizes.counts("rows")
    for rows in range(6 * largest):
        known = {tiles.rows: np.int64(rows)}
        for name, value in (*tiles.bound(), *table):
            known[name] = ExprEvaluator(known, {}).value(value)
        covered: list[int] = []
        cost = 0.0
        for count, is_large in ((known[tiles.large], True), (known[tiles.small], False)):
            for number in range(int(count)):
                parts = tiles.tile(IntImm(number), const(is_large, DType.BOOL))
                start, size = (int(ExprEvaluator(known, {}).value(part)) for part in parts)
                assert size == largest if is_large else 0 < size <= tiles.most
                covered += range(start, start + size)
                cost += tile_cost(size)
        assert covered == list(range(rows))
        pairs = zip(counts, sizes.sizes, strict=True)
        assert cost == sum(known[count] * tile_cost(size) for count, size in pairs)


@pytest.mark.parametrize(
    ("largest", "depth", "outputs", "shared", "counts"),
    [
        (14, 3, 3, False, (0, 1, 2, 5, 13, 14, 15, 31)),
        (14, 2, 11, False, (1, 9, 40)),
        (6, 4, 11, False, (1, 3, 5, 7, 15)),
        (9, 1024, 3, False, (1, 10)),
        (4, 257, 11, True, (0, 1, 6)),
        (9, 130, 3, True, (5, 7, 8)),
    ],
)
def test_every_row_is_computed(
    largest: int, depth: int, outputs: int, shared: bool, counts: tuple[int, ...]
) -> None:
    """Rows of 1024 elements are copied for large tiles, as they lie in one set of a cache."""
    tiling, lanes = CpuTiling(4, largest, shares_tiles=shared), 4
    blocks = -(-outputs // (2 * lanes))
    a = Buffer("a", (variable("M"), depth), DType.FLOAT32)
    b = Buffer("b", (blocks, depth, 2 * lanes), DType.FLOAT32)
    c = Buffer("c", (variable("M"), outputs), DType.FLOAT32)

    def stored(value, at):
        return store(c, at, value)

    body = open_dense_loops(tiling, flat_rows(a), b, outputs, stored, [variable("M")])
    kernel = PrimFunc("product", (a, b, c), 1, body, sizes=(size_variable("M"),))
    verify_func(kernel)
    assert bool(procedures([kernel])) is shared
    rng = np.random.default_rng(largest)
    weight = rng.integers(-2, 3, b.shape).astype(np.float32)
    columns = weight.transpose(1, 0, 2).reshape(depth, -1)[:, :outputs]
    for rows in counts:
        data = rng.integers(-2, 3, (rows, depth)).astype(np.float32)
        result = np.full((rows, outputs), np.nan, np.float32)
        run(specialize(kernel, {"M": rows}), data, weight, result)
        np.testing.assert_array_equal(result, data @ columns)
