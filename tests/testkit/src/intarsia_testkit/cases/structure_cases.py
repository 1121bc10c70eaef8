# SPDX-License-Identifier: Apache-2.0
"""Calls of operators that move, repeat, select or make elements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from intarsia_runtime.dtype import DType

from .case import Case, random_array

KINDS = tuple(kind.value for kind in DType)
FEW = ("float32", "int8", "bool", "float16")


def view_cases() -> Iterator[Case]:
    """``reshape``, ``transpose``, ``broadcast_to``, ``flip``, ``copy``."""
    rng = np.random.default_rng(4)
    for old, new in (
        ((2, 3, 4), (6, 4)),
        ((2, 6), (3, 4)),
        ((1, 1), ()),
        ((), (1, 1)),
        ((0, 3), (3, 0)),
        ((2, 3, 4), (4, -1)),
        ((17, 33), (-1,)),
    ):
        yield Case("reshape", (random_array(rng, old, "float32"),), {"shape": new})
    for axes in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1), (1, 0, 2)):
        yield Case("transpose", (random_array(rng, (5, 17, 33), "float32"),), {"axes": axes})
    yield Case("transpose", (random_array(rng, (), "float32"),), {"axes": ()})
    yield Case("transpose", (random_array(rng, (0, 3), "float32"),), {"axes": (1, 0)})
    yield Case("transpose", (random_array(rng, (2, 3, 4, 5), "float32"),), {"axes": (0, 2, 3, 1)})
    for old, new in (((3,), (2, 3)), ((17, 1), (17, 33)), ((), (2, 2)), ((1, 3), (0, 3))):
        yield Case("broadcast_to", (random_array(rng, old, "float32"),), {"shape": new})
    for axes in ((), (0,), (2,), (0, 2)):
        yield Case("flip", (random_array(rng, (2, 3, 17), "float32"),), {"axes": axes})
    for dtype in KINDS:
        x = random_array(rng, (3, 17), dtype)
        yield Case("reshape", (x,), {"shape": (17, 3)})
        yield Case("transpose", (x,), {"axes": (1, 0)})
        yield Case("broadcast_to", (x,), {"shape": (2, 3, 17)})
        yield Case("flip", (x,), {"axes": (1,)})
        yield Case("copy", (x,))


def slice_cases() -> Iterator[Case]:
    """``concatenate``, ``split``, ``strided_slice``, ``nn.pad``."""
    rng = np.random.default_rng(5)
    for dtype in KINDS:
        for axis, sizes in ((0, (2, 4, 0, 1)), (1, (1, 17, 33)), (1, (3,)), (0, (0, 0))):
            shapes = [(size, 5) if axis == 0 else (3, size) for size in sizes]
            parts = tuple(random_array(rng, shape, dtype) for shape in shapes)
            yield Case("concatenate", parts, {"axis": axis})
        x = random_array(rng, (4, 17), dtype)
        for axis, sections in ((0, (1, 3)), (1, (5, 0, 12)), (1, (17,))):
            yield Case("split", (x,), {"axis": axis, "sections": sections})
        for begin, end, strides in (
            ((0, 0), (4, 17), (1, 1)),
            ((1, 2), (3, 17), (1, 2)),
            ((3, 16), (-1, 0), (-1, -2)),
            ((2, 0), (2, 5), (1, 1)),
            ((4, 17), (4, 17), (1, 1)),
            ((0, 1), (4, 17), (3, 7)),
        ):
            attrs = {"begin": begin, "end": end, "strides": strides}
            yield Case("strided_slice", (x,), attrs)
        yield Case("nn.pad", (x,), {"widths": ((1, 2), (-3, 4)), "value": 1.0})
        if dtype not in ("float32", "float64", "int8", "bool"):
            continue  # elements of one width are moved alike
        for mode, widths in product(
            ("constant", "reflect", "edge", "wrap"),
            (((1, 2), (0, 1)), ((-1, 1), (2, -2)), ((-1, -1), (-2, 0)), ((0, 3), (16, 0))),
        ):
            yield Case("nn.pad", (x,), {"widths": widths, "mode": mode, "value": 1.0})
    yield Case("nn.pad", (np.zeros((0, 2), np.float32),), {"widths": ((1, 0), (0, 1))})
    yield Case("nn.pad", (np.zeros((), np.float32),), {"widths": ()})


def index_cases() -> Iterator[Case]:
    """``take``, ``gather_elements``, ``gather_nd``, ``one_hot``; negative and out of range too."""
    rng = np.random.default_rng(6)
    for dtype, kind in product(KINDS, ("int32", "int64")):
        x = random_array(rng, (5, 17), dtype)
        for axis, shape in ((0, (3,)), (1, (2, 3)), (1, ()), (0, (0,)), (0, (33,))):
            picked = random_array(rng, shape, kind, -7, 7)
            yield Case("take", (x, picked), {"axis": axis})
        for axis in (0, 1):
            picked = random_array(rng, (4, 9), kind, -20, 20)
            yield Case("gather_elements", (x, picked), {"axis": axis})
        yield Case("gather_nd", (x, random_array(rng, (3, 2), kind, -6, 6)))
        yield Case("gather_nd", (x, random_array(rng, (2, 3, 1), kind, -6, 6)))
        batched = random_array(rng, (5, 4, 1), kind, -6, 6)
        yield Case("gather_nd", (x, batched), {"batch_dims": 1})
    extremes = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, -1, 0])
    yield Case("take", (np.arange(9, dtype=np.float32), extremes), {"axis": 0})
    for kind, made in product(("int8", "uint8", "int32", "int64"), FEW):
        for axis in (0, 1, 2):
            picked = random_array(rng, (3, 17), kind, -6, 6)
            values = {"on_value": 5.0, "off_value": 1.0} if made != "bool" else {}
            attrs = {"depth": 5, "axis": axis, "dtype": DType(made), **values}
            yield Case("one_hot", (picked,), attrs)


def made_cases() -> Iterator[Case]:
    """``full``, ``arange``, ``triangular``."""
    for dtype, shape in product(KINDS, ((2, 3), (), (0, 2), (33,))):
        yield Case("full", (), {"shape": shape, "value": 1, "dtype": DType(dtype)})
    yield Case("full", (), {"shape": (2,), "value": 2**62 + 1, "dtype": DType.INT64})
    yield Case("full", (), {"shape": (2,), "value": -0.1, "dtype": DType.FLOAT32})
    for start, stop, step, dtype in (
        (0, 5, 1, "int64"),
        (5, 0, -2, "int32"),
        (0.5, 2.0, 0.25, "float32"),
        (3, 1, 1, "int64"),
        (-3, 30, 1, "float32"),
        (0, 33, 2, "float64"),
        (0, 9, 1, "int8"),
    ):
        attrs = {"start": start, "stop": stop, "step": step, "dtype": DType(dtype)}
        yield Case("arange", (), attrs)
    for sizes in ((3,), (1, 224, 2**40), ()):
        yield Case("sizes", (), {"sizes": sizes})
    rng = np.random.default_rng(7)
    for dtype, upper, diagonal in product(KINDS, (False, True), (-5, -1, 0, 2)):
        x = random_array(rng, (2, 3, 17), dtype)
        yield Case("triangular", (x,), {"upper": upper, "diagonal": diagonal})


def sampling_cases() -> Iterator[Case]:
    """``nn.grid_sample``, ``nn.roi_align``: places inside, on edges, far outside, not numbers."""
    rng = np.random.default_rng(10)
    x = random_array(rng, (2, 3, 4, 5), "float32")
    grid = random_array(rng, (2, 6, 7, 2), "float32", -2, 2)
    grid[0, 0, :5] = [[-1, -1], [1, 1], [0, 0], [30, -30], [np.nan, 0.5]]
    for mode, padding, align in product(
        ("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), (False, True)
    ):
        attrs = {"mode": mode, "padding": padding, "align_corners": align}
        yield Case("nn.grid_sample", (x, grid), attrs)
    line, image3d = (
        random_array(rng, (2, 1, 9), "float64"),
        random_array(rng, (1, 2, 3, 4, 5), "float16"),
    )
    yield Case("nn.grid_sample", (line, random_array(rng, (2, 4, 1), "float64", -1, 1)))
    yield Case("nn.grid_sample", (image3d, random_array(rng, (1, 2, 2, 2, 3), "float32", -1, 1)))
    single = random_array(rng, (1, 1, 1, 1), "float32")
    reflected = {"padding": "reflection", "align_corners": True}
    yield Case("nn.grid_sample", (single, random_array(rng, (1, 2, 2, 2), "float32")), reflected)
    yield Case("nn.grid_sample", (x, random_array(rng, (2, 0, 7, 2), "float32")))
    corners = random_array(rng, (4, 2), "float32", -2, 3)
    rois = np.concatenate([corners, corners + random_array(rng, (4, 2), "float32", 0, 5)], 1)
    for dtype, largest, half in product(("float32", "float16"), (False, True), (False, True)):
        attrs = {"size": (3, 2), "samples": 2, "half_pixel": half, "largest": largest}
        operands = (x.astype(dtype), rois, np.array([0, 1, -1, 5]))
        yield Case("nn.roi_align", operands, {**attrs, "scale": 0.8})


def tree_cases() -> Iterator[Case]:
    """``tree_leaves``: a deep and a shallow tree, and one of a leaf alone; NaN and ties."""
    rng = np.random.default_rng(11)
    nodes = np.array(
        [
            *([2, 1, 2, 1], [0, 3, 4, 4], [1, 5, 6, 6], [0, 3, 3, 3], [0, 4, 4, 4], [0, 5, 5, 5]),
            *([0, 6, 6, 6], [1, 8, 9, 9], [0, 8, 8, 8], [0, 9, 9, 9]),
        ],
        np.int32,
    )
    trees = np.array([[0, 2], [7, 1], [9, 0]], np.int32)
    for dtype in ("float32", "float64"):
        splits = rng.integers(-2, 3, len(nodes)).astype(dtype)
        for rows in (0, 1, 9):
            x = rng.integers(-3, 4, (rows, 3)).astype(dtype)
            x[1:3, 1] = np.nan
            yield Case("tree_leaves", (x, splits, nodes, trees))


def coupling_cases() -> Iterator[Case]:
    """``pairwise_coupling``: few and many classes, and pairs that leave no doubt."""
    rng = np.random.default_rng(12)
    for rows, classes in ((0, 3), (1, 1), (5, 2), (9, 3), (3, 17)):
        pairs = rng.uniform(1e-7, 1 - 1e-7, (rows, classes, classes)).astype("float32")
        pairs[1:2] = 1e-7
        upper = np.triu(np.ones((classes, classes), bool), 1)
        yield Case("pairwise_coupling", (np.where(upper, pairs, 1 - pairs.transpose(0, 2, 1)),))


def random_cases() -> Iterator[Case]:
    """``random_bits``: keys and numbers of runs at both ends, each of the four lanes; and
    ``mersenne_words``: seeds that wrap with the number of the run, more words than the state has.
    """
    least, most = -(1 << 63), (1 << 63) - 1
    states = ((0, 0), (least, 1), (most, most), (-1, least))
    for lane, state in enumerate(states):
        for shape in ((), (0, 3), (17,), (3, 1, 33)):
            attrs = {"shape": shape, "stream": 7 * lane, "lane": lane, "key": -1}
            yield Case("random_bits", (np.array(state, np.int64),), attrs)
    yield Case("random_bits", (np.zeros(2, np.int64),), {"shape": (40,), "stream": 3, "key": 5})
    iteration = np.array([1, 2, 1 << 40], np.int64)
    yield Case("random_bits", (iteration,), {"shape": (40,), "stream": 3})
    yield Case("mersenne_words", (iteration,), {"count": 9, "seed": 1})
    for run, seed, count in ((0, 0, 1300), (7, (1 << 32) - 1, 1), (1, 42, 0)):
        attrs = {"count": count, "seed": seed}
        yield Case("mersenne_words", (np.array([-9, run], np.int64),), attrs)


def ngram_cases() -> Iterator[Case]:
    """``count_ngrams``: words with and without skips, rows shorter than an n-gram, equal places."""
    rng = np.random.default_rng(29)
    for dtype, length, skips in (("int32", 1, 0), ("int64", 2, 3), ("int32", 3, 1 << 40)):
        grams = np.unique(rng.integers(0, 3, (9, length)), axis=0)
        places = rng.integers(0, 4, len(grams))
        for shape in ((3, 12), (2, 2), (0, 5), (2, 0)):
            x = rng.integers(0, 3, shape).astype(dtype)
            yield Case("count_ngrams", (x, grams, places), {"width": 4, "skips": skips}, (1, 2))


def matrix_cases() -> Iterator[Case]:
    """``determinant`` and ``inverse``: rows that change places, several matrices, none."""
    rng = np.random.default_rng(23)
    for name, dtype in product(("determinant", "inverse"), ("float32", "float64", "float16")):
        for shape in ((2, 2), (3, 1, 1), (2, 3, 3, 3), (0, 2, 2)):
            x = random_array(rng, shape, dtype, -1, 1)
            x[..., range(shape[-1]), range(shape[-1])] += np.asarray(3, dtype)
            yield Case(name, (x[..., ::-1].copy(),))


def block_cases() -> Iterator[Case]:
    """``nn.block_matmul``: rows of each tile and none, one block and several, with shifts."""
    rng = np.random.default_rng(12)
    for bits, (rows, depth, blocks, groups) in product(
        (4, 8), ((0, 32, 2, 1), (1, 32, 1, 2), (7, 64, 4, 1), (15, 32, 2, 1), (3, 1024, 4, 1))
    ):
        x = random_array(rng, (rows, depth), "float32")
        words = rng.integers(-(2**31), 2**31, (groups, 4, depth * bits // 32, 16))
        scales, shifts = (random_array(rng, (groups, blocks, 64), "float32") for _ in range(2))
        given = (x, words.astype(np.int32), scales)
        sums = x.reshape(rows, blocks, depth // blocks).sum(axis=2)
        yield Case("nn.block_matmul", given, {"bits": bits})
        yield Case("nn.block_matmul", (*given, shifts, sums), {"bits": bits})


def int4_byte_cases() -> Iterator[Case]:
    """``nn.quantize_blocks``, ``nn.int4_byte_matmul``: rows of each tile, zero points of blocks.

    Blocks of zeros, and levels and codes as large as they may be.
    """
    rng = np.random.default_rng(13)
    for rows, depth, blocks in ((0, 32, 2), (1, 32, 1), (7, 64, 4), (23, 128, 2)):
        block, groups = depth // blocks, 2
        x = random_array(rng, (rows, depth), "float32")
        x[:, :block] *= rows % 3
        yield Case("nn.quantize_blocks", (x,), {"block": block})
        levels = rng.integers(-127, 128, (rows, depth)).astype(np.int8)
        codes = rng.integers(-(2**31), 2**31, (groups, depth // 8, 64)).astype(np.int32)
        levels[-1:], codes[0] = 127, -1
        sums = levels.reshape(rows, blocks, block).sum(axis=2, dtype=np.int32)
        scales = random_array(rng, (rows, blocks), "float32")
        given = (levels, scales, sums, codes, random_array(rng, (groups, blocks, 64), "float32"))
        yield Case("nn.int4_byte_matmul", given, {"zero": 3})
        zeros = rng.integers(0, 256, (groups, blocks, 64)).astype(np.uint8)
        yield Case("nn.int4_byte_matmul", (*given, zeros))


def spatial_cases() -> Iterator[Case]:
    """``nn.depth_to_space``, ``nn.space_to_depth``, ``nn.resize``, ``nn.resample``."""
    rng = np.random.default_rng(8)
    for dtype in FEW:
        for mode in ("DCR", "CRD"):
            x = random_array(rng, (2, 12, 2, 3), dtype)
            yield Case("nn.depth_to_space", (x,), {"block": 2, "mode": mode})
        x = random_array(rng, (2, 3, 4, 6), dtype)
        yield Case("nn.space_to_depth", (x,), {"block": 2})
        small = random_array(rng, (1, 2, 4, 5), dtype)
        yield Case("nn.resize", (small,), {"sizes": (1, 2, 7, 9)})
    coordinates = (
        *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"),
        *("align_corners", "asymmetric"),
    )
    x = random_array(rng, (1, 2, 4, 5), "float32")
    for coordinate_mode, sizes in product(coordinates, ((1, 2, 8, 10), (1, 2, 2, 3), (1, 2, 1, 9))):
        attrs = {"sizes": sizes, "coordinate_mode": coordinate_mode}
        for mode in ("linear", "cubic"):
            yield Case("nn.resize", (x,), {**attrs, "mode": mode})
        for nearest_mode in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            yield Case("nn.resize", (x,), {**attrs, "nearest_mode": nearest_mode})
    scaled = {"sizes": (1, 2, 2, 8), "scales": (1.0, 1.0, 0.6, 1.7)}
    for mode in ("nearest", "linear", "cubic"):
        yield Case("nn.resize", (x,), {**scaled, "mode": mode})
    outside = {"mode": "cubic", "cubic_a": -0.5, "exclude_outside": True}
    yield Case("nn.resize", (x,), {"sizes": (1, 2, 8, 3), **outside})
    for dtype in ("float64", "float16", "bfloat16"):
        tall = random_array(rng, (1, 1, 3, 3, 2), dtype)
        yield Case("nn.resize", (tall,), {"sizes": (1, 1, 5, 6, 3), "mode": "linear"})
    for old, sizes in (((1, 2, 3, 5), (1, 2, 9, 10)), ((1, 2, 4, 3), (1, 2, 4, 24))):
        wide = random_array(rng, old, "int8")
        attrs = {"nearest_mode": "floor", "coordinate_mode": "asymmetric"}
        yield Case("nn.resize", (wide,), {"sizes": sizes, **attrs})
    for dtype, axis, taps in product(("float32", "float64", "float16"), (0, 1, 2), (1, 4, 9)):
        image = random_array(rng, (9, 10, 19), dtype)
        starts = random_array(rng, (7,), "int64", -2, 20)
        weights = random_array(rng, (7, taps), "float32", -1, 1)
        yield Case("nn.resample", (image, starts, weights), {"axis": axis}, (1, 2))
