# SPDX-License-Identifier: Apache-2.0
"""Pieces that a range is cut into."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia_ir.tir.expr import IntImm, index
from intarsia_loops.cpu.loops import cut, equal_part_size


@pytest.mark.parametrize(
    ("extent", "most", "size"),
    [
        (56, 27, 14),  # 28 would be too much; 4 pieces
        (224, 54, 28),  # rather 8 pieces than 7 of 32
        (15, 5, 5),  # an odd number of pieces, but equal ones
        (7, 3, 3),  # pieces of 1 are too small: 3 + 3 + 1
        (8, 100, 8),
        (8, 0, 1),
    ],
)
def test_pieces_are_equal_if_they_can_be(extent: int, most: int, size: int) -> None:
    assert equal_part_size(extent, most) == size


@given(st.integers(1, 500), st.integers(1, 500))
def test_pieces_are_more_than_half_as_large_as_they_may_be(extent: int, most: int) -> None:
    size = equal_part_size(extent, most)
    assert min(extent, most) // 2 < size <= min(extent, most)
    assert sum(part.count * part.size for part in cut(extent, size)) == extent


@given(st.integers(1, 500), st.integers(1, 500), st.integers(0, 20))
def test_pieces_cover_the_range_and_overlap_no_more_than_they_may(
    extent: int, size: int, twice: int
) -> None:
    places: list[int] = []
    for part in cut(extent, size, overlap=twice):
        for number in range(part.count):
            start = part.start_of(index(number))
            assert isinstance(start, IntImm)
            places += range(start.value, start.value + part.size)
    assert set(places) == set(range(extent))
    assert len(places) <= extent + twice
