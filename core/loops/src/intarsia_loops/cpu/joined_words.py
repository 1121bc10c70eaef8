# SPDX-License-Identifier: Apache-2.0
"""Which words of weights are joined: a matching of the words of each block.

Words fit together if no lane of theirs passes 127 (``ordered_words.py``). The words of a block are
the nodes of a graph, and those that fit together its edges. The greedy matching by least degree
takes the word that has fewest partners left, and of these the one that has fewest itself (Karp and
Sipser, "Maximum matching in sparse random graphs", 1981). All blocks take a step together. Blocks
of many words are matched in parts, and then their remaining words, some distance apart.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

TOP_BITS = np.uint64(0x8080_8080_8080_8080)
"""Of each lane the bit that is set if it passes 127."""

_MOST_WORDS = 64
"""Words of a part: an edge is tried for each two of them."""
_FEW_WORDS = 32
"""The same of blocks with more than two large parts, whose words find partners in any."""
_EDGES = 1 << 15
"""Edges that are tried together: 256 KiB of lanes stay in the cache."""
_PARTS = 256
"""Parts that are matched together: a step is a few operations on arrays, whatever their size."""
_NO_PARTNER = np.int16(1 << 14)
"""Degree of a word that can have no partner, or a little less; more than any other."""
_DISTANCES = range(1, 33)
"""How far apart among the words without a partner they are tried, round by round."""


def join(lanes: Array, block: Array, rest: Array, partner: Array) -> None:
    """Join words of a block whose lanes do not pass 127 together.

    Args:
        lanes: ``[n, words]``: eight lanes in an integer, each below 128.
        block: Of each word, in ascending order.
        rest: The words that may be joined, in ascending order.
        partner: Of each word; written.
    """
    if not len(rest):
        return
    parts = _parts(block[rest], rest)
    for first in range(0, len(parts), _PARTS):
        _match(lanes, parts[first : first + _PARTS], partner)
    _join_distant(lanes, block, rest[partner[rest] == rest], partner)


def _parts(block: Array, words: Array) -> Array:
    """Return ``[parts, most]``: words of a block in equal parts; -1 where a part has fewer."""
    _, first, counts = np.unique(block, return_index=True, return_counts=True)
    most: Array = np.where(counts <= 2 * _MOST_WORDS, _MOST_WORDS, _FEW_WORDS)
    parts: Array = -(-counts // most)
    size: Array = -(-counts // parts)
    number: Array = np.arange(len(words)) - np.repeat(first, counts)
    of_size = np.repeat(size, counts)
    row = np.repeat(np.cumsum(parts) - parts, counts) + number // of_size
    made = np.full((int(parts.sum()), int(size.max())), -1)
    made[row, number % of_size] = words
    return made


def _match(lanes: Array, words: Array, partner: Array) -> None:
    """Match the words of each part, those with the fewest partners first."""
    fits = np.empty((*words.shape, words.shape[1]), bool)
    step = max(1, _EDGES // words.shape[1] ** 2)
    for first in range(0, len(words), step):
        fits[first : first + step] = _fits(lanes, words[first : first + step])
    degree: Array = fits.sum(axis=2, dtype=np.int16)
    degree[degree == 0] = _NO_PARTNER
    part: Array = np.arange(len(words))
    for _ in range(words.shape[1] // 2):
        one: Array = degree[part].argmin(axis=1)
        left: Array = np.where(fits[part, one], degree[part], _NO_PARTNER)
        other: Array = left.argmin(axis=1)
        is_found: Array = left[np.arange(len(part)), other] < _NO_PARTNER // 2
        if not is_found.all():
            one, other, part = one[is_found], other[is_found], part[is_found]
        first, second = words[part, one], words[part, other]
        partner[first], partner[second] = second, first
        degree[part] -= fits[part, one].view(np.int8) + fits[part, other].view(np.int8)
        degree[degree <= 0] = _NO_PARTNER
        degree[part, one] = degree[part, other] = _NO_PARTNER


def _fits(lanes: Array, words: Array) -> Array:
    """Return ``[parts, most, most]``: whether two words of a part fit together."""
    over = np.zeros((*words.shape, words.shape[1]), np.uint64)
    total = np.empty_like(over)
    for lane in lanes:
        own: Array = np.where(words < 0, TOP_BITS, lane[words])
        np.add(own[:, :, None], own[:, None, :], out=total)
        over |= total
    is_word = words >= 0
    fits = (over & TOP_BITS == 0) & is_word[:, :, None] & is_word[:, None, :]
    fits &= ~np.eye(words.shape[1], dtype=bool)
    return fits


def _join_distant(lanes: Array, block: Array, rest: Array, partner: Array) -> None:
    """Join words some distance apart: each round tries all that are left."""
    parts, block = [part[rest] for part in lanes], block[rest]
    for distance in _DISTANCES:
        size = len(rest) // (2 * distance) * 2 * distance
        fits = np.equal(*_sides(block[:size], distance))
        over = np.zeros(fits.shape, np.uint64)
        for part in parts:
            over |= np.add(*_sides(part[:size], distance))
        fits &= over & TOP_BITS == 0
        number: Array = np.flatnonzero(fits)
        first: Array = number + number // distance * distance
        partner[rest[first]], partner[rest[first + distance]] = rest[first + distance], rest[first]
        is_left = np.ones(len(rest), bool)
        is_left[first] = is_left[first + distance] = False
        left = np.flatnonzero(is_left)
        parts, block, rest = [part[left] for part in parts], block[left], rest[left]


def _sides(values: Array, distance: int) -> tuple[Array, Array]:
    """Return the values of the first of each pair of words some distance apart, and the others'."""
    pairs = values.reshape(-1, 2, distance)
    return pairs[:, 0], pairs[:, 1]
