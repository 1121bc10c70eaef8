# SPDX-License-Identifier: Apache-2.0
"""One order of slots serves all sizes: nothing overlaps, and little is wasted for any of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia_loops import open_layout
from intarsia_loops.open_layout import best_layout
from intarsia_loops.plan_memory import LiveRange, plan_memory, verify_memory
from intarsia_loops.sampled_sizes import SampledSizes
from intarsia_runtime.artifact.plan import OpenSizes, SizeSource
from intarsia_runtime.artifact.plan_sizes import slot_offsets
from intarsia_runtime.size import maximum, minimum, value_of, variable

B, P, S = (variable(name) for name in "BPS")
SIZES = [64, 64 * S, 128 * B * S, 4 * P * S, 256 * (P + S), minimum(S, 100) * 32, maximum(B, 7)]
OPEN_RANGES = st.builds(
    lambda size, first, length: LiveRange(size, first, first + length),
    st.sampled_from(SIZES),
    st.integers(0, 12),
    st.integers(0, 6),
)
KNOWN = OpenSizes(tuple(SizeSource(name, 0, axis) for axis, name in enumerate("BPS")), (), ())


def taken(live_ranges: list[LiveRange], known: OpenSizes, **values: int) -> int:
    """Return the bytes of the workspace, where no two temporaries alive together overlap."""
    layout = best_layout(live_ranges, known, ())
    slots = OpenSizes(known.variables, (), layout.slots, known.stages, layout.behind)
    starts, total = slot_offsets(slots, values)
    alive = numbers(live_ranges, **values)
    for stage in range(len(known.stages) + 1):
        own = [n for n, life in enumerate(live_ranges) if known.stage(life.bytes) == stage]
        offsets = [starts[layout.numbers[n]] for n in own]
        verify_memory([alive[n] for n in own], offsets, total)
    return total


def numbers(live_ranges: list[LiveRange], **values: int) -> list[LiveRange]:
    """Return live ranges with numbers for sizes."""
    return [LiveRange(value_of(one.bytes, values), one.first, one.last) for one in live_ranges]


@pytest.mark.parametrize("stages", [(), (("S",),)])
@pytest.mark.parametrize("most", [open_layout.MAX_OVERLAPS, -1], ids=["few", "many"])
@given(live_ranges=st.lists(OPEN_RANGES, max_size=15), values=st.tuples(*3 * [st.integers(1, 900)]))
def test_no_two_live_temporaries_overlap(stages, most, live_ranges, values) -> None:
    named = dict(zip("BPS", values, strict=True))
    variables = KNOWN.variables[: 3 - len(stages)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_layout, "MAX_OVERLAPS", most)
        total = taken(live_ranges, OpenSizes(variables, (), (), stages), **named)
    assert total <= sum(-(-max(one.bytes, 1) // 64) * 64 for one in numbers(live_ranges, **named))


@pytest.mark.parametrize("values", [(1, 3, 1), (1, 900, 1), (1, 1, 48), (4, 77, 1), (1, 64, 64)])
def test_attention_of_a_decoder_takes_what_is_alive(values) -> None:
    """Its largest temporaries are its words for few words, those before them for many."""
    rest, rows, scores = 2048 * B * S, 2048 * B * (P + S), 32 * B * S * (P + S)
    layer = [
        *(LiveRange(rest, 0, 8), LiveRange(rest, 0, 1), LiveRange(rest, 1, 4)),
        *(LiveRange(rows, 2, 4), LiveRange(scores, 3, 5), LiveRange(rows, 3, 5)),
        *(LiveRange(rest, 5, 6), LiveRange(4 * rest, 6, 7), LiveRange(rest, 7, 8)),
    ]
    named = dict(zip("BPS", values, strict=True))
    alone = plan_memory(numbers(layer, **named))[1]
    assert taken(layer, KNOWN, **named) <= 1.05 * alone


def test_samples_are_what_sizes_are_for_each_value() -> None:
    """Also of an object that several sizes have; a divisor that a sample makes 0 gives 0."""
    half = (S + 1) // 2
    quarter = (half + 1) // 2
    sampled = SampledSizes({"S": [1, 50], "P": [3, 9], "B": [1, 4]}, 2)
    for size in (7, S, half, half * quarter + half, (quarter + P) % 5, *SIZES):
        each = [value_of(size, {"S": s, "P": p, "B": b}) for s, p, b in ((1, 3, 1), (50, 9, 4))]
        assert list(sampled.values(size)) == each
    assert list(sampled.values(S - 20)) == [0, 30]
    assert list(sampled.values(P // (S - 1) + P % (S - 1))) == [0, 9]
