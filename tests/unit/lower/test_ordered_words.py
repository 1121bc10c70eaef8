# SPDX-License-Identifier: Apache-2.0
"""Words of weights of bytes in the order of how they are multiplied."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_loops.cpu.ordered_words import pack_ordered, unpack_ordered

KINDS = ("any", "extremes", "normal", "small", "lowest", "wide")


def drawn(kind: str, shape: tuple[int, int, int]) -> np.ndarray:
    rng = np.random.default_rng(len(kind))
    if kind == "lowest":
        return np.full(shape, -128, np.int8)
    if kind == "extremes":
        return rng.choice([-128, -127, 0, 127], shape).astype(np.int8)
    if kind in ("normal", "wide"):
        return np.clip(
            np.rint((28 if kind == "normal" else 40) * rng.standard_normal(shape)), -128, 127
        ).astype(np.int8)
    most = 32 if kind == "small" else 128
    return rng.integers(-most, most, shape).astype(np.int8)


def counts_of(packed: np.ndarray, depth: int) -> list[list[int]]:
    """Joined words, single ones, joined magnitudes and single ones of each block."""
    return [[*block[-1, :3].tolist(), depth - int(block[-1, :3].sum())] for block in packed]


def sums_of(packed: np.ndarray, depth: int, data: np.ndarray, *, signed: bool) -> np.ndarray:
    """Sums of blocks over one row of data as a tile adds them up, in 16 bits where it does so.

    16 bits are checked rather than wrapped: no sum of them may pass their range.
    """
    _, rows, width = packed.shape
    first = rows - -(-depth // width) - 1
    row = data.view(np.uint8).reshape(depth, 1, 4)
    totals = packed[:, first - 1].astype(np.int64)

    def products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        pairs = (left.astype(np.int64) * right).reshape(width, 2, 2).sum(-1)
        assert np.abs(pairs + 0.5).max() < 1 << 15
        return pairs

    for number, (joined, single, paired, _) in enumerate(counts_of(packed, depth)):
        block = packed[number].reshape(rows, width, 1).view(np.int8)
        places = packed[number, first:-1].reshape(-1)
        plain, terms = joined + single, []
        for word in range(depth):
            x, weights = row[places[word]], block[word]
            if word < plain:
                assert not signed
                terms.append(products(x, weights))
                continue
            size, mask = np.abs(weights.astype(np.int16)).astype(np.uint8), weights >> 7
            mask = mask.view(np.uint8) ^ np.uint8(0 if signed else 128)
            if first - 1 > depth:  # masks lie behind the words
                size, mask = weights.view(np.uint8), block[depth + word - plain].view(np.uint8)
            terms.append(products(size, (x ^ mask).view(np.int8).astype(np.int64)))
        for word in (*range(0, joined, 2), *range(plain, plain + paired, 2)):
            terms[word] = terms[word] + terms[word + 1]
            terms[word + 1] = np.zeros_like(terms[word])
            assert np.abs(terms[word] + 0.5).max() < 1 << 15
        totals[number] += sum(terms).sum(-1)
    return totals


@pytest.mark.parametrize("has_masks", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("shape", [(3, 64, 16), (2, 20, 8), (1, 4, 4), (5, 260, 8)])
@pytest.mark.parametrize("kind", KINDS)
def test_words_in_order_are_the_weights(kind, shape, signed, has_masks) -> None:
    weight = drawn(kind, shape)
    packed = pack_ordered(weight, signed=signed, has_masks=has_masks)
    np.testing.assert_array_equal(unpack_ordered(packed, shape[1] // 4), weight)


@pytest.mark.parametrize("has_masks", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("data", ["least", "most", "both", "any"])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_words_in_order_are_exact(kind, data, dtype, has_masks) -> None:
    weight, info = drawn(kind, (2, 132, 8)), np.iinfo(dtype)
    rng = np.random.default_rng(3)
    values = {
        "least": np.full(132, info.min),
        "most": np.full(132, info.max),
        "both": rng.choice([info.min, info.max], 132),
        "any": rng.integers(info.min, info.max + 1, 132),
    }[data].astype(dtype)
    signed = dtype is np.int8
    packed = pack_ordered(weight, signed=signed, has_masks=has_masks)
    counted = values.astype(np.int64) + (128 if signed else 0)
    wanted = np.einsum("k,bkw->bw", counted, weight.astype(np.int64))
    np.testing.assert_array_equal(sums_of(packed, 33, values, signed=signed), wanted)


def counts(kind: str, *, signed: bool = False) -> list[int]:
    (found,) = counts_of(pack_ordered(drawn(kind, (1, 256, 8)), signed=signed, has_masks=False), 64)
    return found


def test_small_weights_are_joined_and_large_ones_are_magnitudes() -> None:
    assert counts("small")[0] >= 0.9 * 64
    assert counts("normal")[0] >= 0.9 * 64
    assert all(counts("wide"))
    assert counts("any")[3] > 0
    assert counts("lowest") == [0, 0, 0, 64]


def test_words_of_signed_data_are_magnitudes() -> None:
    assert counts("small", signed=True) == [0, 0, 64, 0]


def test_masks_take_no_rows_where_tiles_take_them_from_weights() -> None:
    weight = drawn("any", (2, 256, 8))
    rows = [
        pack_ordered(weight, signed=False, has_masks=has_masks).shape[1]
        for has_masks in (False, True)
    ]
    assert rows == [64 + 8 + 2, 64 + 64 + 8 + 2]


def test_words_with_the_fewest_partners_are_joined_first() -> None:
    """Words of small weights would fit together, too, and leave the others alone."""
    weight = np.repeat(np.repeat([20, 20, 40, 40], 4), 8).reshape(1, 16, 8).astype(np.int8)
    assert counts_of(pack_ordered(weight, signed=False, has_masks=False), 4) == [[4, 0, 0, 0]]


@pytest.mark.parametrize("words", [129, 300, 700])
def test_words_of_long_blocks_are_joined_in_parts(words) -> None:
    weight = drawn("wide", (2, 4 * words, 8))
    packed = pack_ordered(weight, signed=False, has_masks=False)
    data = np.random.default_rng(1).choice([0, 255], 4 * words).astype(np.uint8)
    wanted = np.einsum("k,bkw->bw", data.astype(np.int64), weight.astype(np.int64))
    np.testing.assert_array_equal(sums_of(packed, words, data, signed=False), wanted)
    for joined, single, paired, alone in counts_of(packed, words):
        assert joined > single
        assert paired > alone
