# SPDX-License-Identifier: Apache-2.0
"""How convolutions are cut into strips, and what tiles have fetched before they need it."""

from __future__ import annotations

import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import CallTarget, Load, PrimExpr, TirVar
from intarsia_ir.tir.stmt import Allocate, For, ForKind, LetStmt, Stmt
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.conv import Convolution, conv_loops
from intarsia_loops.cpu.dense import dense_loops, is_data_stationary, product_width
from intarsia_loops.cpu.loops import load, store
from intarsia_loops.cpu.panel import flat_rows
from intarsia_loops.cpu.tiling import CpuTiling, float_width, window_width
from intarsia_loops.cpu.window import Window
from intarsia_runtime.dtype import DType

F32 = DType.FLOAT32


def prefetch(element: PrimExpr, body: Stmt) -> Stmt:
    fetch = CallTarget("loops", "fetch", (element,), DType.BOOL, 1)
    return LetStmt(TirVar("fetched", DType.BOOL), fetch, body)


def convolution(channels: int, outputs: int, window: Window) -> Convolution:
    depth = window.kernel[0] * window.kernel[1] * channels
    weight = Buffer("weight", (outputs // 32, depth, 32), F32)
    data = Buffer("data", (1, *window.size, channels), F32)
    return Convolution(data, weight, outputs, 1, window)


def rows_of_strips(conv: Convolution) -> int:
    """Return the rows of the padded strip that is copied; 0 if none is."""
    result = Buffer("result", (1, *conv.window.output, conv.outputs), F32)
    body = conv_loops(CpuTiling(16, 14), conv, lambda value, at: store(result, at, value))
    strips = [s.buffer for s in statements(body) if isinstance(s, Allocate)]
    return next((b.shape[0] for b in strips if b.name == "strip"), 0)


@pytest.mark.parametrize(("outputs", "rows"), [(512, 15), (32, 3)])
def test_large_weights_are_read_for_few_strips(outputs: int, rows: int) -> None:
    window = Window((14, 14), (7, 7), (3, 3), (2, 2), (1, 1), (1, 1))
    assert rows_of_strips(convolution(512, outputs, window)) == rows


def test_a_strip_of_one_row_has_only_the_rows_of_a_dilated_window() -> None:
    window = Window((33, 33), (33, 33), (3, 3), (1, 1), (18, 18), (18, 18))
    assert rows_of_strips(convolution(320, 256, window)) == 3


def test_rows_whose_dilated_taps_fit_are_not_cut() -> None:
    window = Window((128, 187), (128, 187), (7, 1), (1, 1), (51, 0), (17, 1))
    assert rows_of_strips(convolution(12, 32, window)) == 7


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "rows"),
    [
        (512, 1024, 28, [(84, 528), (28, 528)]),
        (64, 64, 56, []),  # the first-level cache holds the weights
        (512, 1024, 14, []),  # one strip of seven rows
    ],
)
def test_pixels_of_a_strided_1x1_convolution_are_copied_side_by_side(
    channels: int, outputs: int, size: int, rows: list[tuple[int, int]]
) -> None:
    image, made = (size, size), (size // 2, size // 2)
    conv = convolution(channels, outputs, Window(image, made, (1, 1), (2, 2), (0, 0), (1, 1)))
    result = Buffer("result", (1, *made, outputs), F32)
    body = conv_loops(CpuTiling(16, 14), conv, lambda value, at: store(result, at, value))
    found = [s.buffer for s in statements(body) if isinstance(s, Allocate)]
    assert [b.shape for b in found if b.name == "panel"] == rows


@pytest.mark.parametrize(
    ("read", "written", "dtype", "data_stationary"),
    [
        (1024, 1024, F32, True),
        (1023, 1024, F32, False),
        (1024, 4096, DType.INT32, True),  # quads of bytes, whose results are bytes
        (1024, 4095, DType.INT32, False),
    ],
)
def test_a_thread_stays_with_data_or_with_weights(
    read: int, written: int, dtype: DType, data_stationary: bool
) -> None:
    assert (
        is_data_stationary(read, written, Buffer("weight", (2, 64, 32), dtype)) == data_stationary
    )


@pytest.mark.parametrize(
    ("rows", "depth", "outputs", "lanes", "width"),
    [
        (3136, 64, 256, 16, 64),
        (12544, 16, 144, 16, 48),  # a third of 144, no fourth
        (3136, 64, 80, 16, 32),  # neither
        (784, 64, 256, 16, 32),  # a result that stays in a cache
        (3136, 512, 256, 16, 32),  # weights that do not
        (3136, 64, 256, 8, 16),  # vectors shorter than a line
    ],
)
def test_a_long_result_is_written_in_long_pieces(
    rows: int, depth: int, outputs: int, lanes: int, width: int
) -> None:
    assert product_width(rows, depth, outputs, CpuTiling(lanes, 14)) == width


@pytest.mark.parametrize(
    ("rows", "depth", "outputs", "items"),
    [
        (1581, 64, 64, [12]),  # two blocks; three rows are in two of six panels
        (196, 64, 384, [8]),  # 14 tiles of 14 rows: two panels, four groups of blocks each
        (196, 384, 64, [14]),  # two blocks: panels of a tile
        (49, 64, 64, [6, 2]),  # no even number of equal panels
        (128, 768, 3072, [8]),  # weights that no cache holds: all rows share a pass over them
        (196, 1024, 256, [14]),  # large weights: seven panels share passes over halves of them
    ],
)
def test_threads_have_the_same_rows_in_kernel_after_kernel(
    rows: int, depth: int, outputs: int, items: list[int]
) -> None:
    assert items_of_work(CpuTiling(16, 14), rows, depth, outputs) == items


@pytest.mark.parametrize(
    ("depth", "outputs", "items"),
    [
        (96, 384, [523]),  # each of 523 tiles of six rows goes through all weights
        (256, 384, [22]),  # weights of 384 KiB, more than a panel may have
        (96, 64, [8]),  # a result that stays in the second-level cache
    ],
)
def test_short_vectors_write_long_rows_in_order(depth: int, outputs: int, items: list[int]) -> None:
    assert items_of_work(CpuTiling(8, 6), 3136, depth, outputs)[:1] == items


def items_of_work(tiling: CpuTiling, rows: int, depth: int, outputs: int) -> list[int]:
    """Return the items of each loop that threads share, of a product."""
    data, result = Buffer("data", (rows, depth), F32), Buffer("result", (rows, outputs), F32)
    width = 2 * tiling.lanes
    weight = Buffer("weight", (outputs // width, depth, width), F32)

    def epilogue(value: PrimExpr, at: tuple[PrimExpr, ...]) -> Stmt:
        return store(result, at, value)

    body = dense_loops(tiling, flat_rows(data), weight, outputs, epilogue, [rows])
    shared = [s for s in statements(body) if isinstance(s, For) and s.kind is ForKind.PARALLEL]
    return [s.extent.value for s in shared]


@pytest.mark.parametrize(
    ("lanes", "outputs", "width"),
    [(8, 8, 8), (8, 16, 16), (8, 17, 24), (8, 24, 24), (8, 25, 16), (16, 40, 48), (1, 3, 2)],
)
def test_windows_of_three_vectors_are_one_block(lanes: int, outputs: int, width: int) -> None:
    assert window_width(outputs, CpuTiling(lanes, 6)) == width


@pytest.mark.parametrize(
    ("lanes", "outputs", "width"),
    [(16, 1, 8), (16, 8, 8), (16, 9, 16), (16, 17, 32), (8, 4, 8), (32, 8, 32)],
)
def test_few_outputs_are_half_a_vector_of_512_bits(lanes: int, outputs: int, width: int) -> None:
    assert float_width(outputs, CpuTiling(lanes, 6)) == width


@pytest.mark.parametrize(("outputs", "lanes"), [(5, 8), (8, 8), (12, 16)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_tiles_of_few_outputs_have_short_vectors(outputs: int, lanes: int, kernel: int) -> None:
    tiling, pad = CpuTiling(16, 14), kernel // 2
    window = Window((20, 20), (20, 20), (kernel, kernel), (1, 1), (pad, pad), (1, 1))
    depth = kernel * kernel * 12
    weight = Buffer("weight", (1, depth, float_width(outputs, tiling)), F32)
    conv = Convolution(Buffer("data", (1, 20, 20, 12), F32), weight, outputs, 1, window)
    result = Buffer("result", (1, 20, 20, outputs), F32)
    body = conv_loops(tiling, conv, lambda value, at: store(result, at, value))
    made = [s.buffer for s in statements(body) if isinstance(s, Allocate)]
    assert {buffer.shape[1] for buffer in made if buffer.name == "acc"} == {lanes}


@pytest.mark.parametrize(("rows", "most"), [(14, (28, 14, 9, 6)), (6, (12, 6, 4, 2))])
def test_a_tile_fills_the_registers(rows: int, most: tuple[int, ...]) -> None:
    assert tuple(CpuTiling(16, rows).rows_for(vectors) for vectors in (1, 2, 3, 4)) == most


def test_rows_that_no_window_reads_take_no_memory() -> None:
    window = Window((14, 14), (7, 7), (1, 1), (2, 2), (0, 0), (1, 1))
    conv = convolution(1024, 64, window)
    result = Buffer("result", (1, 7, 7, 64), F32)
    body = conv_loops(CpuTiling(16, 14), conv, lambda value, at: store(result, at, value))
    (shared,) = (s for s in statements(body) if isinstance(s, For) and s.kind is ForKind.PARALLEL)
    assert shared.extent.value == 2  # two blocks of channels of one strip, not of seven


@pytest.mark.parametrize(("size", "fetches"), [(64, True), (8, False)])
def test_what_is_added_of_large_arrays_is_fetched_before(size: int, fetches: bool) -> None:
    window = Window((size, size), (size, size), (1, 1), (1, 1), (0, 0), (1, 1))
    conv = convolution(16, 32, window)
    result, other = (Buffer(name, (1, size, size, 32), F32) for name in ("result", "other"))

    def epilogue(value: PrimExpr, at: tuple[PrimExpr, ...]) -> Stmt:
        return store(result, at, value + load(other, *at))

    body = conv_loops(CpuTiling(16, 14, prefetch=prefetch), conv, epilogue)
    fetched = {
        place.buffer.name
        for stmt in statements(body)
        if isinstance(stmt, LetStmt) and isinstance(stmt.value, CallTarget)
        for place in stmt.value.args
        if isinstance(place, Load)
    }
    assert fetched == ({"other"} if fetches else set())
