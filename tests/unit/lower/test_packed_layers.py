# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers whose weight is packed in blocks of columns: which become one, and its loops."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Expr, Var, call, constant, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.recurrent import Gru, Lstm
from intarsia_ir.ops.recurrent_rows import Group, RowTile, over_rows
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.build import load
from intarsia_ir.tir.expr import Broadcast, IntImm, Load, PrimExpr, index, size_variable
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run as run_kernel
from intarsia_ir.tir.stmt import LetStmt, Stmt, Store
from intarsia_loops.cpu.packed_layers import (
    PackedLayer,
    byte_row_tile,
    layer_deferred,
    packed_layer,
    row_tile,
    unpack_layer,
)
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable

AVX512 = CpuTiling(lanes=16, rows=14)


def lane_of(element: PrimExpr, lane: int) -> PrimExpr:
    assert isinstance(element, Load)
    *outer, last = element.indices
    return Broadcast(load(element.buffer, *outer, last + lane), 4, element.dtype)


TILES = [
    RowTile(),
    RowTile(4, 16, 320),
    RowTile(2, 8, 64),
    RowTile(4, 8, 40),
    RowTile(3, 8, 48),
    RowTile(4, 16, 80, lanes=8),
    RowTile(4, 8, 40, lanes=4),
    RowTile(4, 16, 64, ends=8, lanes=4, lane=lane_of),
]
"""All gates at a time, with one row more or not; one gate after the other; two at a time; one by
lanes of the states, with functions of half of the columns at a time."""


def gru(weight: Expr) -> Call:
    hidden = tensor_type(weight).static_shape[0]
    shapes = {"x": (2, 3, 3 * hidden), "h": (3, hidden), "bias": (3 * hidden,)}
    x, h, bias = (Var(name, TensorType(shape, DType.FLOAT32)) for name, shape in shapes.items())
    return call(Gru, x, h, weight, bias, attrs=Gru.Attrs(linear_before_reset=True))


def test_a_block_has_a_cache_line_of_each_gate() -> None:
    weight = np.arange(20 * 60, dtype=np.float32).reshape(20, 60)
    packed = layer_deferred(weight, 3, 16).array()
    assert packed.shape == (2, 3, 20, 16)
    np.testing.assert_array_equal(packed[0, 2, 7], weight[7, 40:56])
    np.testing.assert_array_equal(packed[1, 2, 7], [*weight[7, 56:60], *[0] * 12])
    np.testing.assert_array_equal(unpack_layer(packed), weight)


@pytest.mark.parametrize(
    ("weight", "is_made"),
    [
        (constant(np.ones((64, 192), np.float32)), True),
        (constant(np.ones((48, 144), np.float32)), False),  # 27 KiB stay in the first-level cache
        (Var("r", TensorType((64, 192), DType.FLOAT32)), False),
    ],
)
def test_which_weights_are_packed(weight: Expr, is_made: bool) -> None:
    node = gru(weight)
    made = packed_layer(node, node.args, AVX512)
    assert (made is not None) == is_made
    if made is not None:
        assert isinstance(made, Call)
        assert made.type == node.type
        assert made.attrs == PackedLayer.Attrs(kind="gru", linear_before_reset=True)
        assert tensor_type(made.args[2]).shape == (4, 3, 64, 16)


def test_no_weight_is_packed_without_vectors() -> None:
    node = gru(constant(np.ones((64, 192), np.float32)))
    assert packed_layer(node, node.args, CpuTiling(lanes=1, rows=4)) is None


@pytest.mark.parametrize(
    ("tiling", "tile", "byte_tile"),
    [
        (AVX512, RowTile(4, 16, 320), RowTile(4, 16, 320)),
        (CpuTiling(lanes=16, rows=6), RowTile(4, 16, 320), RowTile(4, 16, 320)),
        (CpuTiling(lanes=4, rows=14), RowTile(4, 4, 80), RowTile(4, 4, 80)),
        (
            CpuTiling(lanes=4, rows=14, left_lanes=lane_of),
            RowTile(4, 16, 64, 8, 4, lane_of),
            RowTile(4, 4, 80),
        ),
        (CpuTiling(lanes=8, rows=6), RowTile(4, 16, 80), RowTile(2, 8, 64)),
        (CpuTiling(8, 6, vector_types=True), RowTile(4, 16, 80, lanes=8), RowTile(2, 8, 64)),
        (CpuTiling(lanes=4, rows=6), RowTile(4, 8, 40, lanes=8), RowTile(2, 4, 32)),
        (CpuTiling(lanes=4, rows=2), RowTile(1, 4), RowTile(1, 4)),
        (CpuTiling(lanes=1, rows=2), None, None),
    ],
)
def test_tiles_fit_registers(
    tiling: CpuTiling, tile: RowTile | None, byte_tile: RowTile | None
) -> None:
    assert (row_tile(tiling), byte_row_tile(tiling)) == (tile, byte_tile)


@pytest.mark.parametrize(
    ("tile", "batch", "sizes"),
    [
        (RowTile(4, 16, 80), 7, [4, 3]),
        (RowTile(4, 16, 80), 6, [4, 2]),
        (RowTile(4, 16, 80), 5, [4, 1]),
        (RowTile(4, 16, 320), 5, [5]),  # registers have room for one more
        (RowTile(4, 16, 320), 9, [5, 4]),
        (RowTile(2, 8, 64), 3, [2, 1]),
    ],
)
def test_rows_go_along_in_tiles(tile: RowTile, batch: int, sizes: list[int]) -> None:
    weight = Buffer("weight", (8, 32), DType.FLOAT32)
    out = Buffer("out", (batch,), DType.INT64)

    def along(group: Group, width: int) -> Stmt:
        return group.tiles(lambda rows: Store(out, (rows[0],), IntImm(len(rows), DType.INT64)))

    found = np.zeros(batch, np.int64)
    run_kernel(PrimFunc("f", (out,), 1, over_rows(batch, tile, weight, along)), found)
    assert [size for size in found if size] == sizes
    body = over_rows(variable("rows"), tile, weight, along)  # pyright: ignore[reportArgumentType] - a size
    bound, again = LetStmt(size_variable("rows"), index(batch), body), np.zeros(batch, np.int64)
    run_kernel(PrimFunc("f", (out,), 1, bound), again)
    np.testing.assert_array_equal(again, found)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("batch", [1, 3, 5, 7])
@pytest.mark.parametrize(
    "attrs",
    [
        PackedLayer.Attrs(kind="lstm", reverse=True),
        PackedLayer.Attrs(kind="gru"),
        PackedLayer.Attrs(kind="gru", linear_before_reset=True),
    ],
)
def test_loops_are_those_of_the_reference(
    attrs: PackedLayer.Attrs, batch: int, tile: RowTile
) -> None:
    hidden, rng = 20, np.random.default_rng(batch)
    gates = 4 if attrs.kind == "lstm" else 3
    x = rng.standard_normal((3, batch, gates * hidden), np.float32)
    states = [rng.standard_normal((batch, hidden), np.float32) for _ in range(gates - 2)]
    weight = rng.standard_normal((hidden, gates * hidden), np.float32) / 4
    bias = [] if gates == 4 else [rng.standard_normal(gates * hidden, np.float32)]
    given = (x, *states, layer_deferred(weight, gates, 16).array(), *bias)
    types = [TensorType(each.shape, DType(each.dtype.name)) for each in given]
    kernel = PackedLayer.tiled(tile, attrs, *types)
    made = [np.zeros(each.shape, np.float32) for each in kernel.output_params]
    run_kernel(kernel, *given, *made)
    if gates == 4:
        wanted = Lstm.reference(Lstm.Attrs(reverse=True), x, *states, weight)
    else:
        own = Gru.Attrs(linear_before_reset=attrs.linear_before_reset)
        wanted = Gru.reference(own, x, *states, weight, *bias)
    for found, packed, expected in zip(
        made, PackedLayer.reference(attrs, *given), wanted, strict=True
    ):
        np.testing.assert_array_equal(packed, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
