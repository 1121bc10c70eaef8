# SPDX-License-Identifier: Apache-2.0
"""Panels of rows: deep products a part of the depth at a time, and what tiles fetch meanwhile."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, PrimExpr, const, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.unroll import unroll
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_ir.tir.stmt import Allocate, For, Seq, Stmt
from intarsia_ir.tir.verify import verify_func
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.dense import dense_loops
from intarsia_loops.cpu.loops import load, store
from intarsia_loops.cpu.packing import pack_dense
from intarsia_loops.cpu.panel import Panel, flat_rows
from intarsia_loops.cpu.prefetch import (
    OpenUnitPrefetch,
    Prefetch,
    WeightPrefetch,
    prefetch_next_block,
)
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType

F32 = DType.FLOAT32
LANES = 4
NOTHING = Seq(())


def recorder(places: list[int]) -> Prefetch:
    """Return what notes the last index of what is fetched."""

    def prefetch(element: PrimExpr, body: Stmt) -> Stmt:
        assert isinstance(element, Load)
        place = element.indices[-1]
        assert isinstance(place, IntImm)
        places.append(place.value)
        return body

    return prefetch


def check_product(rows: int, depth: int, outputs: int, *, at_once: int, copied: bool) -> None:
    """Multiply small integers in one panel, in tiles of four rows, so much of the depth at once."""
    drawn = np.random.default_rng(0)
    left = drawn.integers(-9, 9, (rows, depth)).astype(np.float32)
    right = drawn.integers(-9, 9, (depth, outputs)).astype(np.float32)
    packed = pack_dense(right, 2 * LANES)
    data, result = Buffer("data", left.shape, F32), Buffer("result", (rows, outputs), F32)
    weight = Buffer("weight", packed.shape, F32)
    panel = Panel(
        CpuTiling(LANES, 4, copies_rows=copied),
        flat_rows(data),
        weight,
        lambda value, at: store(result, at, value + 1),
        [rows],
        (index(0), rows, 4),
        (index(0), packed.shape[0], outputs // packed.shape[0]),
    )
    body = panel.full_k() if at_once == depth else panel.split_k(at_once)
    function = vectorize(simplify(unroll(PrimFunc("product", (data, weight, result), 1, body))))
    verify_func(function)
    got = np.zeros((rows, outputs), np.float32)
    run(function, left, packed, got)
    np.testing.assert_array_equal(got, left @ right + 1)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("at_once", [1, 3, 6])
def test_parts_of_the_depth_add_up(at_once: int, copied: bool) -> None:
    check_product(10, 6, 16, at_once=at_once, copied=copied)
    check_product(4, 6, 8, at_once=at_once, copied=copied)
    # Of the last block three columns are there.
    check_product(5, 6, 3, at_once=at_once, copied=copied)


@pytest.mark.parametrize(
    ("rows", "depth", "outputs", "parts"),
    [
        (128, 8192, 2048, {8}),
        (512, 4096, 1024, {4}),
        (128, 5000, 1024, {5}),  # of a thousand each
        (128, 4099, 1024, set()),  # a prime number
        (128, 1536, 1024, set()),  # panels have rows enough
        (3, 8192, 2048, set()),  # all rows are one tile
        (28, 2048, 1024, set()),  # a panel has them all
        (512, 4096, 16, set()),  # weights that a cache holds
        (64, 0, 64, set()),  # no weights
    ],
)
def test_deep_products_are_added_up_in_memory(
    rows: int, depth: int, outputs: int, parts: set[int]
) -> None:
    data, result = Buffer("data", (rows, depth), F32), Buffer("result", (rows, outputs), F32)
    weight = Buffer("weight", (-(-outputs // 32), depth, 32), F32)
    body = dense_loops(
        CpuTiling(16, 14),
        flat_rows(data),
        weight,
        outputs,
        lambda value, at: store(result, at, value),
        [rows],
    )
    stmts = list(statements(body))
    assert {s.extent.value for s in stmts if isinstance(s, For) and s.var.name == "deep"} == parts
    sums = [s.buffer for s in stmts if isinstance(s, Allocate) and s.buffer.name == "sums"]
    assert all(buffer.bytes <= 512 * 1024 for buffer in sums)


@pytest.mark.parametrize("tiles", [(4, 4, 4), (4, 4, 1), (7,), (1, 1)])
def test_tiles_fetch_all_of_the_next_block_together(tiles: tuple[int, ...]) -> None:
    """Each weight is fetched, and the tiles together ask for little more than there is."""
    depth, width = 24, 8
    weight = Buffer("weight", (2, depth, width), F32)
    fetched: list[int] = []
    for number, rows in enumerate(tiles):
        before = index(sum(tiles[:number]))
        weight_prefetch = WeightPrefetch(
            recorder(fetched), lambda n: load(weight, 1, 0, n), depth * width, before, sum(tiles)
        )
        for row in range(3):
            for column in range(8):
                weight_prefetch.around(NOTHING, (index(row), index(column)), (3, 8), (rows, LANES))
    lines = {place // LANES for place in fetched}
    assert lines >= set(range(depth * width // LANES))
    assert max(fetched) < depth * width + 24 * len(tiles) * max(tiles)


@pytest.mark.parametrize("tiles", [2, 3, 8, 40])
def test_tiles_of_a_matrix_unit_fetch_all_lines_of_the_next_block(tiles: int) -> None:
    steps, line = (3, 4), 2
    lines = 32 * prod(steps)
    weight = Buffer("weight", (1, lines, line), F32)
    fetched = Buffer("fetched", (lines + 32 * tiles,), F32)
    each = -(-32 // tiles)

    def prefetch(element: PrimExpr, body: Stmt) -> Stmt:
        assert isinstance(element, Load)
        return Seq((store(fetched, (element.indices[-1] // line,), const(1, F32)), body))

    stmts = [
        OpenUnitPrefetch(
            prefetch,
            lambda n: load(weight, 0, 0, n),
            line,
            index(tile * prod(steps) * each),
            index(each),
        ).around(NOTHING, (index(row), index(column)), steps, (1, line))
        for tile in range(tiles)
        for row in range(steps[0])
        for column in range(steps[1])
    ]
    got = np.zeros(fetched.shape, np.float32)
    run(PrimFunc("fetch", (fetched,), 1, Seq(tuple(stmts))), got)
    assert got[:lines].all()


def test_nothing_is_fetched_by_a_tile_alone_or_of_small_weights() -> None:
    large, small = (Buffer("weight", (blocks, 1024, 32), F32) for blocks in (8, 2))
    told = recorder([])
    assert prefetch_next_block(told, large, (1, 0), 1024, (index(14), 28), 14) is not None
    assert prefetch_next_block(told, large, (1, 0), 1024, (index(0), 14), 14) is None
    assert prefetch_next_block(told, small, (1, 0), 1024, (index(14), 28), 14) is None
    assert prefetch_next_block(None, large, (1, 0), 1024, (index(14), 28), 14) is None
