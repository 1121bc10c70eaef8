# SPDX-License-Identifier: Apache-2.0
"""Live temporaries never overlap, and memory is used again."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia_loops import plan_memory as plan_memory_module
from intarsia_loops.plan_memory import LiveRange, plan_memory, verify_memory
from intarsia_runtime.errors import VerifyError

LIFETIMES = st.builds(
    lambda size, first, length: LiveRange(size, first, first + length),
    st.integers(0, 1000),
    st.integers(0, 12),
    st.integers(0, 6),
)


@given(st.lists(LIFETIMES, max_size=25))
def test_no_two_live_temporaries_overlap(lifetimes):
    offsets, total = plan_memory(lifetimes)
    verify_memory(lifetimes, offsets, total)
    assert total <= sum(-(-max(life.bytes, 1) // 64) * 64 for life in lifetimes)


@given(st.lists(LIFETIMES, max_size=25))
def test_many_at_one_time_are_placed_in_one_sweep(lifetimes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_memory_module, "MAX_OVERLAPS", -1)
        offsets, total = plan_memory(lifetimes)
    verify_memory(lifetimes, offsets, total)
    assert total <= sum(-(-max(life.bytes, 1) // 64) * 64 for life in lifetimes)


def test_a_sweep_uses_memory_again(monkeypatch):
    monkeypatch.setattr(plan_memory_module, "MAX_OVERLAPS", -1)
    assert plan_memory([LiveRange(128, step, step + 1) for step in range(50)])[1] == 256


def test_twenty_thousand_temporaries_at_one_time_take_no_minutes():
    start = time.process_time()
    offsets, total = plan_memory([LiveRange(4, step, 40_000 - step) for step in range(20_000)])
    assert (len(set(offsets)), total) == (20_000, 20_000 * 64)
    assert time.process_time() - start < 5


def test_a_chain_needs_two_places():
    chain = [LiveRange(128, step, step + 1) for step in range(50)]
    offsets, total = plan_memory(chain)
    assert total == 256
    assert set(offsets) == {0, 128}


@pytest.mark.parametrize(
    ("offsets", "total", "message"),
    [
        ((0, 0), 64, "temporaries 0 and 1 overlap"),
        ((0, 32), 128, "temporary 1 at offset 32 is misplaced"),
        ((0, 64), 64, "temporary 1 at offset 64 is misplaced"),
    ],
)
def test_finds_what_is_wrong(offsets, total, message):
    with pytest.raises(VerifyError, match=message):
        verify_memory([LiveRange(64, 0, 1), LiveRange(64, 1, 2)], offsets, total)


@given(st.lists(LIFETIMES, max_size=25), st.sampled_from([1, 4, 16]))
def test_a_smaller_alignment_wastes_less(lifetimes, alignment):
    offsets, total = plan_memory(lifetimes, alignment)
    verify_memory(lifetimes, offsets, total, alignment)
    assert total <= sum(-(-max(life.bytes, 1) // alignment) * alignment for life in lifetimes)


def test_a_chain_of_uneven_links_needs_two_neighbours():
    """Largest first would put the last beside both of the first two."""
    chain = [LiveRange(size, step, step + 1) for step, size in enumerate((448, 448, 192, 384))]
    offsets, total = plan_memory(chain)
    verify_memory(chain, offsets, total)
    assert total == 896


@given(st.lists(st.integers(1, 9), min_size=2, max_size=9))
def test_a_chain_needs_no_more_than_its_largest_neighbours(links):
    chain = [LiveRange(64 * size, step, step + 1) for step, size in enumerate(links)]
    least = max(a + b for a, b in pairwise(links)) * 64
    offsets, total = plan_memory(chain)
    verify_memory(chain, offsets, total)
    assert total == least
