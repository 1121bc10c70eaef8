# SPDX-License-Identifier: Apache-2.0
"""Loops for a matrix unit, whose registers are memory here and its procedures loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import BinaryOp, IntImm, Load, PrimExpr, binary, cast, index
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.stmt import IfStmt, Stmt
from intarsia_loops.cpu import (
    matrix_unit_dense,
    open_matrix_unit,
    open_matrix_unit_conv,
    open_unit_segments,
)
from intarsia_loops.cpu.conv import Convolution, conv_loops, matrix_unit_extents
from intarsia_loops.cpu.int8x4 import (
    Int8ConvAttrs,
    Int8x4Conv,
    Int8x4Dense,
    pack_int8x4_conv,
    pack_int8x4_dense,
)
from intarsia_loops.cpu.loops import PackedView, load, quotients, seq, serial, store, unflatten
from intarsia_loops.cpu.matrix_unit import (
    UnitOperands,
    chunk_of,
    segment_rows,
    suits_matrix_unit,
)
from intarsia_loops.cpu.matrix_unit_dense import matrix_unit_dense_loops
from intarsia_loops.cpu.open_conv import open_window_loops
from intarsia_loops.cpu.open_matrix_unit import open_matrix_unit_dense_loops
from intarsia_loops.cpu.panel import flat_rows
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_loops.cpu.window import Window
from intarsia_runtime.dtype import DType

pytestmark = pytest.mark.slow  # the interpreter carries out every product

RNG = np.random.default_rng(5)
LANES = 2
REGISTERS = Buffer("registers", (2, 2, 4, LANES), DType.INT32, MemoryScope.GLOBAL)
CONFIGURED = Buffer("configured", (2,), DType.INT64, MemoryScope.GLOBAL)


def byte_of(quad: PrimExpr, number: int, *, signed: bool) -> PrimExpr:
    moved = binary(BinaryOp.SHR, quad, IntImm(8 * number, DType.INT32))
    low = binary(BinaryOp.AND, moved, IntImm(255, DType.INT32))
    return cast(cast(low, DType.INT8), DType.INT32) if signed else low


def behind(place: Load, words: PrimExpr) -> PrimExpr:
    """Return the element ``words`` behind another one."""
    flat = index(0)
    for position, size in zip(place.indices, place.buffer.shape, strict=True):
        flat = flat * size + position
    return load(place.buffer, *unflatten(flat + words, list(place.buffer.shape)))


def present(segments: PrimExpr | None, number: int, body: Stmt) -> Stmt:
    return body if segments is None else IfStmt(segments > number, body)


@dataclass(frozen=True)
class PlainUnit:
    """Registers of four rows; how large they are is known when the loops run."""

    rows: int = 4
    words: int = 4
    lanes: int = LANES
    sums: DType = DType.INT32

    def configure(self, rows: int | PrimExpr, words: int) -> Stmt:
        assert isinstance(rows, PrimExpr) or rows <= self.rows
        assert words <= self.words
        return seq(store(CONFIGURED, (0,), index(rows)), store(CONFIGURED, (1,), index(words)))

    def clear(self, shape: tuple[int, int]) -> Stmt:
        zero = IntImm(0, DType.INT32)
        return self._each(shape, lambda s, b, r, c: store(REGISTERS, (s, b, r, c), zero))

    def multiply(self, operands: UnitOperands) -> Stmt:
        down, across = operands.grid
        return seq(
            *(
                present(operands.segments, s, self._add(operands, s, b))
                for s in range(down)
                for b in range(across)
            )
        )

    def exchange(self, operands: UnitOperands, sums: Buffer, rows: int) -> Stmt:
        down, across = operands.grid
        written = self.write(sums, rows, operands.grid, operands.segments)
        return seq(written, self.clear((down, across)), self.multiply(operands))

    def _add(self, operands: UnitOperands, s: int, b: int) -> Stmt:
        (first, stride), right = operands.left[s], operands.right[b]
        assert not isinstance(stride, int) or stride % 4 == 0
        assert right.buffer.shape[-1] == LANES

        def one(r: PrimExpr, c: PrimExpr) -> Stmt:
            def quad(k: PrimExpr) -> Stmt:
                data = behind(first, r * (stride // 4) + k)
                weights = behind(right, k * LANES + c)
                total = load(REGISTERS, s, b, r, c)
                for n in range(4):
                    taken = byte_of(weights, n, signed=True)
                    total = total + byte_of(data, n, signed=False) * taken
                return store(REGISTERS, (s, b, r, c), total)

            return serial(load(CONFIGURED, 1), quad, "k")

        return self._register(one)

    def write(
        self, sums: Buffer, rows: int, shape: tuple[int, int], segments: PrimExpr | None = None
    ) -> Stmt:
        def one(s: int, b: int, r: PrimExpr, c: PrimExpr) -> Stmt:
            stored = store(sums, (r + s * rows, c + b * LANES), load(REGISTERS, s, b, r, c))
            return present(segments, s, stored)

        return self._each(shape, one)

    def release(self) -> Stmt:
        return store(CONFIGURED, (0,), index(0))

    def _each(
        self, shape: tuple[int, int], body: Callable[[int, int, PrimExpr, PrimExpr], Stmt]
    ) -> Stmt:
        def register(s: int, b: int) -> Stmt:
            return self._register(lambda r, c: body(s, b, r, c))

        return seq(*(register(s, b) for s in range(shape[0]) for b in range(shape[1])))

    def _register(self, body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        rows = load(CONFIGURED, 0)
        return serial(rows, lambda r: serial(LANES, lambda c: body(r, c), "c"), "r")


UNIT = PlainUnit()
SHAPE = CpuTiling(LANES, 2, unit=UNIT)


def view_of(data: Buffer, shape: tuple[int, ...]) -> PackedView:
    """Read quads of an image from a flat buffer: copies of rows reach over its columns."""
    image = Buffer("image", (*shape[:-1], 4 * shape[-1]), DType.UINT8, MemoryScope.GLOBAL)

    def read(first: PrimExpr) -> PrimExpr:
        assert isinstance(first, Load)
        flat = index(0)
        for position, size in zip(first.indices, image.shape, strict=True):
            flat = flat * size + position
        return load(data, flat // 4)

    return PackedView(image, read)


def computed(body: Stmt, data: np.ndarray, weight: np.ndarray, operands, result) -> np.ndarray:
    """Run loops over quads of data and packed weights; what they do not write stays -1."""
    kernel = PrimFunc("kernel", (*operands, REGISTERS, CONFIGURED), 1, body)
    kernel = dataclasses.replace(kernel, params=(*operands, REGISTERS, CONFIGURED))
    found = np.full(result.shape, -1, np.int32)
    registers = np.full(REGISTERS.shape, 77, np.int32)
    run(kernel, data, weight, found, registers, np.zeros(2, np.int64))
    return found


def as_data(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view("<i4")


def byte_array(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def product(
    outer: tuple[int, ...], words: int, outputs: int, *, copied: bool, is_open: bool = False
) -> None:
    """Multiply; results are added to what is there, so that one done twice is wrong."""
    plain = byte_array("uint8", *outer, 4 * words)
    packed = pack_int8x4_dense(byte_array("int8", 4 * words, outputs), LANES)
    data = Buffer("data", (*outer, words), DType.INT32, MemoryScope.GLOBAL)
    weight = Buffer("weight", packed.shape, DType.INT32, MemoryScope.GLOBAL)
    result = Buffer("result", (*outer, outputs), DType.INT32, MemoryScope.GLOBAL)
    rows = replace(flat_rows(data), copied=copied)
    loops = open_matrix_unit_dense_loops if is_open else matrix_unit_dense_loops
    body = loops(
        SHAPE,
        UNIT,
        rows,
        weight,
        outputs,
        lambda v, at: store(result, at, load(result, *at) + v),
        list(outer),
    )
    found = computed(body, as_data(plain), packed, (data, weight, result), result)
    wanted = Int8x4Dense.reference(Int8x4Dense.Attrs(outputs=outputs), plain, packed)
    np.testing.assert_array_equal(found, wanted - 1)


@pytest.mark.parametrize(
    ("rows", "words", "outputs"),
    [(130, 4, 5), (131, 8, 2), (64, 20, 9), (50, 28, 6), (24, 36, 12), (12, 12, 1)],
)
def test_steps_of_a_tile_do_the_epilogue_of_the_one_before(
    rows: int, words: int, outputs: int
) -> None:
    product((rows,), words, outputs, copied=False)


@pytest.mark.parametrize(("rows", "copied"), [(24, False), (30, False), (30, True), (7, False)])
def test_weights_that_no_cache_holds_pass_in_groups(
    rows: int, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_unit_dense, "RESIDENT_WEIGHTS", 0)
    monkeypatch.setattr(matrix_unit_dense, "GROUP_BYTES", 2 * 8 * 2 * LANES * 4)
    product((rows,), 8, 48, copied=copied)


@settings(deadline=None, max_examples=12)
@given(st.integers(4, 18), st.sampled_from([4, 6, 8]), st.integers(1, 5), st.booleans())
def test_products(rows: int, words: int, outputs: int, copied: bool) -> None:
    product((rows,), words, outputs, copied=copied)


def test_rows_of_several_dimensions() -> None:
    product((2, 3, 2), 4, 3, copied=False)
    product((2, 3, 2), 4, 3, copied=False, is_open=True)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 30), st.sampled_from([4, 6, 8]), st.integers(1, 9), st.booleans())
def test_products_of_an_open_number_of_rows(
    rows: int, words: int, outputs: int, copied: bool
) -> None:
    product((rows,), words, outputs, copied=copied, is_open=True)


@pytest.mark.parametrize("rows", [3, 4, 12, 13, 29, 32, 40])
@pytest.mark.parametrize("copied", [False, True])
def test_panels_of_one_tile_and_groups_of_two_blocks(
    rows: int, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_matrix_unit, "_TILES", 1)
    monkeypatch.setattr(open_matrix_unit, "_PANEL_BYTES", 1)
    monkeypatch.setattr(open_matrix_unit, "GROUP_BYTES", 2 * 8 * 2 * LANES * 4)
    product((rows,), 8, 20 * LANES, copied=copied, is_open=True)


def test_rows_that_fall_on_top_of_each_other_are_copied() -> None:
    product((4,), 512, 1, copied=False)


def image(
    size: tuple[int, int],
    words: int,
    outputs: int,
    *,
    copied: bool = False,
    is_open: bool = False,
    **given: object,
) -> None:
    kernel, strides = given.get("kernel", (3, 3)), given.get("strides", (1, 1))
    padding, dilation = given.get("padding", (1, 1)), given.get("dilation", (1, 1))
    groups, images = given.get("groups", 1), given.get("images", 1)
    attrs = Int8ConvAttrs(
        outputs=outputs,
        kernel=kernel,
        strides=strides,
        padding=tuple((p, p) for p in padding),
        dilation=dilation,
        groups=groups,
        zero=130,
    )
    plain = byte_array("uint8", images, *size, 4 * words * groups)
    packed = pack_int8x4_conv(byte_array("int8", outputs, 4 * words, *kernel), groups, LANES)
    wanted = Int8x4Conv.reference(attrs, plain, packed)
    data = Buffer("data", (plain.size // 4,), DType.INT32, MemoryScope.GLOBAL)
    view = view_of(data, (images, *size, words * groups))
    weight = Buffer("weight", packed.shape, DType.INT32, MemoryScope.GLOBAL)
    result = Buffer("result", wanted.shape, DType.INT32, MemoryScope.GLOBAL)
    window = Window(size, wanted.shape[1:3], kernel, strides, padding, dilation)
    blank = int.from_bytes(bytes([attrs.zero] * 4), "little", signed=True)
    conv = Convolution(view, weight, outputs, groups, window, blank, copied)
    loops = open_window_loops if is_open else conv_loops
    body = loops(SHAPE, conv, lambda v, at: store(result, at, load(result, *at) + v))
    found = computed(body, as_data(plain).reshape(-1), packed, (data, weight, result), result)
    np.testing.assert_array_equal(found, wanted - 1)


@pytest.mark.parametrize(
    "given",
    [
        {"size": (4, 4), "words": 1, "outputs": 3, "kernel": (3, 4)},
        {"size": (5, 4), "words": 1, "outputs": 2, "kernel": (2, 5), "padding": (1, 2)},
        {"size": (3, 7), "words": 2, "outputs": 5, "kernel": (1, 3)},
        {"size": (3, 9), "words": 1, "outputs": 4, "kernel": (2, 3), "images": 2},
        {"size": (9, 9), "words": 1, "outputs": 3, "strides": (2, 2), "dilation": (1, 2)},
        {"size": (5, 5), "words": 1, "outputs": 4, "groups": 2, "kernel": (2, 2)},
        {"size": (9, 9), "words": 1, "outputs": 3, "padding": (0, 0), "strides": (2, 2)},
        {"size": (5, 5), "words": 1, "outputs": 3, "padding": (0, 0), "copied": True},
        {"size": (3, 3), "words": 4, "outputs": 5, "kernel": (1, 1), "padding": (0, 0)},
    ],
    ids=str,
)
def test_images(given: dict) -> None:
    image(**given)
    image(**given, is_open=True)


@pytest.mark.parametrize(
    ("width", "attrs"),
    [
        (1, {}),
        (3, {"padding": (1, 2), "dilation": (1, 2)}),
        (2, {"strides": (2, 2)}),
        (5, {"strides": (2, 1)}),
        (1, {"kernel": (3, 1), "padding": (1, 0), "strides": (1, 2)}),
        (1, {"kernel": (2, 1), "padding": (0, 0)}),
        (4, {"kernel": (2, 2), "padding": (0, 0), "strides": (2, 2)}),
        (2, {"kernel": (2, 2), "padding": (0, 0)}),
    ],
)
def test_rows_of_narrow_images_are_one_row(width: int, attrs: dict) -> None:
    image((6, width), 2, 3, is_open=True, **attrs)
    image((6, width), 2, 3, **attrs)


@pytest.mark.parametrize("most", [10, 40])
def test_rows_of_a_long_one_are_told_apart(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a length for which the reciprocal of a width is exact."""
    monkeypatch.setattr(open_matrix_unit_conv, "_LONGEST", most)
    image((9, 2), 1, 2, is_open=True, kernel=(3, 4))


def test_places_of_the_longest_row_are_exact_quotients() -> None:
    one, longest = open_matrix_unit_conv._ONE, open_matrix_unit_conv._LONGEST
    places = np.arange(longest)
    for pitch in range(1, longest + 1):
        np.testing.assert_array_equal(places * (one // pitch + 1) // one, places // pitch)


@given(st.integers(1, 1 << 15), st.integers(1, 1 << 12), st.integers(0, 1 << 15))
def test_numbers_of_tiles_are_exact_quotients(tiles: int, blocks: int, number: int) -> None:
    exact = open_unit_segments.EXACT
    for place in ((blocks - 1) * tiles + number % tiles, blocks * tiles - 1):
        product = place * (exact // tiles + 1)
        assert product < 1 << 63
        assert product // exact == place // tiles


@pytest.mark.parametrize("size", [(2, 2), (4, 2), (5, 6)])
def test_tiles_of_several_blocks_of_channels_are_one_loop(size: tuple[int, int]) -> None:
    """Of one segment, of two, and of an odd number."""
    image(size, 2, 10, is_open=True)
    image(size, 1, 18, is_open=True, groups=2, kernel=(2, 3))


@given(st.integers(1, 500))
def test_segments_cover_all_rows_once_but_for_the_last(rows: int) -> None:
    count, size = segment_rows(rows, UNIT)
    assert size <= UNIT.rows
    assert (count - 1) * size < rows <= count * size


@given(st.lists(st.integers(1, 64), min_size=1, max_size=3), st.data())
def test_reciprocals_give_the_exact_position_of_a_step(
    extents: list[int], data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, prod(extents) - 1))
    position = [place.value for place in quotients(index(number), extents)]
    assert position == [int(place) for place in np.unravel_index(number, extents)]


@given(st.integers(1, 500))
def test_chunks_are_equal(depth: int) -> None:
    chunk = chunk_of(depth, UNIT)
    assert depth % chunk == 0
    assert 1 <= chunk <= UNIT.words


def test_a_joined_row_of_taps_is_one_loop() -> None:
    window = Window((9, 9), (9, 9), (3, 3), (1, 1), (1, 1), (1, 1))
    data = Buffer("data", (1, 9, 9, 5), DType.INT32, MemoryScope.GLOBAL)
    conv = Convolution(data, Buffer("w", (1, 45, 2), DType.INT32, MemoryScope.GLOBAL), 2, 1, window)
    assert matrix_unit_extents(conv) == (9, 15)
    apart = replace(conv, window=replace(window, dilation=(1, 2)))
    assert matrix_unit_extents(apart) == (9, 5)


@pytest.mark.parametrize(
    ("rows", "depth", "suits"), [(4, 4, True), (3, 4, False), (4, 3, False), (100, 7, False)]
)
def test_few_rows_and_short_chunks_are_left_to_vectors(rows: int, depth: int, suits: bool) -> None:
    assert suits_matrix_unit(rows, depth, UNIT) is suits
