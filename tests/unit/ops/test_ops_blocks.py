# SPDX-License-Identifier: Apache-2.0
"""Products with weights in blocks as operators, against the weight in floats or in integers."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.block_matmul import pack_block_words, unpack_block_words
from intarsia_ir.ops.int4_bytes import pack_int4_words, unpack_int4_words
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError


@pytest.mark.parametrize("has_shifts", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("rows", "depth", "blocks", "groups"), [(1, 32, 1, 2), (6, 96, 3, 1), (13, 32, 2, 1)]
)
def test_a_product_of_floats_with_a_weight_in_blocks(
    check_operator, rows: int, depth: int, blocks: int, groups: int, bits: int, has_shifts: bool
) -> None:
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, depth)).astype(np.float32)
    levels = rng.integers(0, 1 << bits, (64 * groups, depth)).astype(np.uint8)
    scales = (rng.standard_normal((64 * groups, blocks)) / (1 << bits)).astype(np.float32)
    zeros = rng.integers(0, 1 << bits, (64 * groups, blocks)).astype(np.float32)
    middle, block = 1 << bits - 1, depth // blocks
    if not has_shifts:
        zeros[:] = middle
    weight = (levels - np.repeat(zeros, block, 1)) * np.repeat(scales, block, 1)

    def by_stripe(table: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(table.reshape(groups, 64, blocks).transpose(0, 2, 1))

    given = [x, pack_block_words(levels, bits), by_stripe(scales)]
    if has_shifts:
        sums = x.reshape(rows, blocks, block).sum(axis=2)
        given += [by_stripe((zeros - middle) * scales), sums]
    check_operator([x @ weight.T], "nn.block_matmul", *given, bits=bits)


@pytest.mark.parametrize("bits", [4, 8])
def test_words_of_a_block_are_lines_of_sixteen_columns(bits: int) -> None:
    codes = np.random.default_rng(4).integers(0, 1 << bits, (128, 24)).astype(np.uint8)
    words, each = pack_block_words(codes, bits), 32 // bits
    assert words.shape == (2, 4, 24 // each, 16)
    assert int(words[1, 2, 2, 5]) & 0xFFFFFFFF == sum(
        int(codes[64 + 32 + 5, 2 * each + n]) << bits * n for n in range(each)
    )
    np.testing.assert_array_equal(unpack_block_words(words, bits), codes)


@pytest.mark.parametrize(
    "change",
    [
        {0: TensorType((2, 2, 32), DType.FLOAT32)},
        {0: TensorType((2, 32), DType.FLOAT64)},
        {1: TensorType((1, 4, 8, 16), DType.INT32)},
        {1: TensorType((1, 4, 4, 16), DType.UINT8)},
        {2: TensorType((1, 3, 64), DType.FLOAT32)},
        {2: TensorType((1, 0, 64), DType.FLOAT32)},
        {3: TensorType((1, 1, 64), DType.FLOAT32)},
        {4: TensorType((3, 2), DType.FLOAT32)},
    ],
)
def test_sizes_that_are_no_blocks_are_refused(change: dict[int, TensorType]) -> None:
    operator = OPERATORS["nn.block_matmul"]
    types = {
        0: TensorType((2, 32), DType.FLOAT32),
        1: TensorType((1, 4, 4, 16), DType.INT32),
        2: TensorType((1, 2, 64), DType.FLOAT32),
        3: TensorType((1, 2, 64), DType.FLOAT32),
        4: TensorType((2, 2), DType.FLOAT32),
    }
    attrs = operator.Attrs(bits=4)
    assert operator.type_rule(attrs, *types.values()).shape == (2, 64)
    with pytest.raises(TypeRuleError, match="are no rows and blocks of 4 bits"):
        operator.type_rule(attrs, *{**types, **change}.values())


def test_rows_in_bytes_have_a_scale_for_each_block(check_operator) -> None:
    x = np.zeros((2, 48), np.float32)
    x[0, :4] = [2.54, -1.27, 0.01, 0.0299]
    x[1, 16:19] = [-1e-3, 1e-3, 5e-4]
    x[1, 32] = -3
    levels = np.zeros((2, 48), np.int8)
    levels[0, :4] = [127, -64, 0, 1]  # -63.5 is a tie
    levels[1, 16:19] = [-127, 127, 64]
    levels[1, 32] = -127
    scales = np.array([[2.54, 0, 0], [0, 1e-3, 3]], np.float32) / np.float32(127)
    sums = np.array([[64, 0, 0], [0, 64, -127]], np.int32)
    check_operator([levels, scales, sums], "nn.quantize_blocks", x, block=16)


@pytest.mark.parametrize(
    ("x", "dtype", "block"),
    [
        ((2, 40), "float32", 16),
        ((2, 3, 32), "float32", 16),
        ((2, 32), "float64", 16),
        ((2, 32), "float32", 8),
    ],
)
def test_rows_that_are_no_blocks_are_refused(x: tuple[int, ...], dtype: str, block: int) -> None:
    operator = OPERATORS["nn.quantize_blocks"]
    with pytest.raises(TypeRuleError, match=f"has no rows of blocks of {block} floats"):
        operator.type_rule(operator.Attrs(block=block), TensorType(x, DType(dtype)))


def test_words_of_codes_are_read_back() -> None:
    codes = np.random.default_rng(3).integers(0, 16, (128, 24)).astype(np.uint8)
    words = pack_int4_words(codes)
    assert words.shape == (2, 3, 64)
    assert int(words[1, 2, 5]) & 0xFFFFFFFF == sum(
        int(codes[69, 16 + n]) << 8 * (n % 4) + 4 * (n // 4) for n in range(8)
    )
    np.testing.assert_array_equal(unpack_int4_words(words), codes)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(("rows", "depth", "blocks"), [(1, 32, 1), (5, 96, 3), (13, 128, 2)])
def test_a_product_of_bytes_with_blocks_of_4_bits(
    check_operator, rows: int, depth: int, blocks: int, has_zeros: bool
) -> None:
    rng = np.random.default_rng(rows)
    levels = rng.integers(-127, 128, (rows, depth)).astype(np.int8)
    codes = rng.integers(0, 16, (64, depth)).astype(np.uint8)
    zeros = rng.integers(0, 16, (64, blocks)) if has_zeros else np.full((64, blocks), 9)
    row_scales, scales = (
        rng.standard_normal((count, blocks)).astype(np.float32) for count in (rows, 64)
    )
    block = depth // blocks
    left = levels * np.repeat(row_scales, block, 1).astype(np.float64)
    right = (codes - np.repeat(zeros, block, 1)) * np.repeat(scales, block, 1).astype(np.float64)
    sums = levels.reshape(rows, blocks, block).sum(axis=2, dtype=np.int32)
    given = [levels, row_scales, sums, pack_int4_words(codes), scales.T[None].copy()]
    if has_zeros:
        given.append(zeros.astype(np.uint8).T[None].copy())
    wanted = (left @ right.T).astype(np.float32)
    check_operator([wanted], "nn.int4_byte_matmul", *given, zero=9)


@pytest.mark.parametrize(
    "change",
    [
        {0: TensorType((2, 2, 32), DType.INT8)},
        {0: TensorType((2, 32), DType.UINT8)},
        {1: TensorType((2, 1), DType.FLOAT32)},
        {3: TensorType((1, 8, 64), DType.INT32)},
        {4: TensorType((1, 3, 64), DType.FLOAT32)},
        {5: TensorType((1, 1, 64), DType.UINT8)},
        {5: TensorType((1, 2, 64), DType.FLOAT32)},
    ],
)
def test_bytes_that_do_not_fit_a_weight_are_refused(change: dict[int, TensorType]) -> None:
    operator = OPERATORS["nn.int4_byte_matmul"]
    types = {
        0: TensorType((2, 32), DType.INT8),
        1: TensorType((2, 2), DType.FLOAT32),
        2: TensorType((2, 2), DType.INT32),
        3: TensorType((1, 4, 64), DType.INT32),
        4: TensorType((1, 2, 64), DType.FLOAT32),
    }
    assert operator.type_rule(operator.Attrs(), *types.values()).shape == (2, 64)
    with pytest.raises(TypeRuleError, match="are no rows of bytes and blocks of 4 bits"):
        operator.type_rule(operator.Attrs(), *{**types, **change}.values())
