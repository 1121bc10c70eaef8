# SPDX-License-Identifier: Apache-2.0
"""Words of weights of bytes in the order of how they are multiplied."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_loops.cpu.ordered_words import pack_ordered, unpack_ordered

KINDS = ("any", "extremes", "normal", "small", "lowest")


def drawn(kind: str, shape: tuple[int, int, int]) -> np.ndarray:
    rng = np.random.default_rng(len(kind))
    if kind == "lowest":
        return np.full(shape, -128, np.int8)
    if kind == "extremes":
        return rng.choice([-128, -127, 0, 127], shape).astype(np.int8)
    if kind == "normal":
        return np.clip(np.rint(28 * rng.standard_normal(shape)), -128, 127).astype(np.int8)
    most = 32 if kind == "small" else 128
    return rng.integers(-most, most, shape).astype(np.int8)


def words_of(packed: np.ndarray, depth: int) -> list[tuple[int, int, int]]:
    """Joined words, joined magnitudes and all words of each block."""
    return [(int(block[-1, 0]), int(block[-1, 1]), depth) for block in packed]


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

    for number, (joined, paired, _) in enumerate(words_of(packed, depth)):
        block = packed[number].reshape(rows, width, 1).view(np.int8)
        places = packed[number, first:-1].reshape(-1)
        terms: list[np.ndarray] = []
        for word in range(depth):
            x, at = row[places[word]], word if word < joined else 2 * word - joined
            if word < joined:
                assert not signed
                terms.append(products(x, block[at]))
                continue
            moved = (x ^ block[at + 1].view(np.uint8)).view(np.int8)
            terms.append(products(block[at].view(np.uint8), moved.astype(np.int64)))
        for word in range(0, joined + paired, 2):
            terms[word] = terms[word] + terms[word + 1]
            terms[word + 1] = np.zeros_like(terms[word])
            assert np.abs(terms[word] + 0.5).max() < 1 << 15
        totals[number] += sum(terms).sum(-1)
    return totals


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("shape", [(3, 64, 16), (2, 20, 8), (1, 4, 4), (5, 260, 8)])
@pytest.mark.parametrize("kind", KINDS)
def test_words_in_order_are_the_weights(kind, shape, signed) -> None:
    weight = drawn(kind, shape)
    packed = pack_ordered(weight, signed=signed)
    np.testing.assert_array_equal(unpack_ordered(packed, shape[1] // 4), weight)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("data", ["least", "most", "both", "any"])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_words_in_order_are_exact(kind, data, dtype) -> None:
    weight, info = drawn(kind, (2, 132, 8)), np.iinfo(dtype)
    rng = np.random.default_rng(3)
    values = {
        "least": np.full(132, info.min),
        "most": np.full(132, info.max),
        "both": rng.choice([info.min, info.max], 132),
        "any": rng.integers(info.min, info.max + 1, 132),
    }[data].astype(dtype)
    signed = dtype is np.int8
    packed = pack_ordered(weight, signed=signed)
    counted = values.astype(np.int64) + (128 if signed else 0)
    wanted = np.einsum("k,bkw->bw", counted, weight.astype(np.int64))
    np.testing.assert_array_equal(sums_of(packed, 33, values, signed=signed), wanted)


def test_small_weights_are_joined_and_large_ones_are_magnitudes() -> None:
    ((joined, _, depth),) = words_of(pack_ordered(drawn("small", (1, 256, 8)), signed=False), 64)
    assert joined >= 0.9 * depth
    ((joined, paired, depth),) = words_of(pack_ordered(drawn("any", (1, 256, 8)), signed=False), 64)
    assert joined + paired < depth
    lowest = pack_ordered(drawn("lowest", (1, 256, 8)), signed=False)
    assert words_of(lowest, 64) == [(0, 0, 64)]


def test_words_of_signed_data_are_magnitudes() -> None:
    ((joined, paired, _),) = words_of(pack_ordered(drawn("small", (1, 256, 8)), signed=True), 64)
    assert joined == 0
    assert paired == 64
