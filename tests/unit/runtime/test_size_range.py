# SPDX-License-Identifier: Apache-2.0
"""Sizes stay within what native code counts in."""

from __future__ import annotations

import pytest

from intarsia_runtime.artifact.plan import CallPlan, OpenSizes, SizeSource, TensorSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ResourceError
from intarsia_runtime.size import Size, floor_divide, maximum, minimum, variable
from intarsia_runtime.size_range import MOST, MOST_ALONG, SizeRange, magnitude

N, M = variable("N"), variable("M")


def plan(*slots: Size) -> CallPlan:
    """A plan with the sizes N and M of one input, and these slots."""
    sources = (SizeSource("N", 0, 0), SizeSource("M", 0, 1))
    shape = (N, M)
    spec = TensorSpec("x", shape, DType.FLOAT32)  # pyright: ignore[reportArgumentType] # open
    return CallPlan((spec,), (), (), (), 0, (), OpenSizes(sources, (), slots))


@pytest.mark.parametrize(
    ("size", "bound"),
    [
        (7, 7),
        (-7, 7),
        (3 * N - M, 3 * 10 + 20),
        (N * N * M, 2000),
        (floor_divide(N - 40, M), 50),
        (minimum(N, 4) * M, 200),
        (minimum(N - M, 1 << 63) + 1, 31),
        (maximum(N - M, 0), 30),
        (maximum(N - M, 90), 90),
        (minimum(N - M, -90), 90),
        (N % M, 20),
        (floor_divide(3 * N + M, 4) * floor_divide(N, 4), 13 * 3),
        ((N % 3) * ((N - M) % 7), 2 * 6),
        (floor_divide(N * (MOST + 1), 4), 10 * (MOST + 1)),
        (floor_divide(N, 0) + N % 0, 10 + 10),
        (maximum(N - (1 << 63), 0), 10),
    ],
)
def test_a_bound_holds_for_every_step(size: Size, bound: int) -> None:
    assert magnitude(size, {"N": 10, "M": 20}.__getitem__) == bound


def test_sizes_whose_bytes_fit_pass() -> None:
    sizes = SizeRange(plan(4 * N * M))
    sizes.check([1 << 20, 1 << 20])
    sizes.check([0, 0])
    sizes.check([1 << 31, 0])  # nothing is made of it
    with pytest.raises(ResourceError, match="the memory for N = 2147483648, M = 2147483648"):
        sizes.check([1 << 31, 1 << 31])


def test_the_sum_of_slots_counts() -> None:
    half = (MOST // 2) // (1 << 30)
    SizeRange(plan(half * N)).check([1 << 30, 0])
    with pytest.raises(ResourceError, match="more bytes than 62 bits can count"):
        SizeRange(plan(half * N, half * N)).check([1 << 30, 0])


def test_no_dimension_is_endless() -> None:
    SizeRange(plan()).check([0, MOST_ALONG])
    with pytest.raises(ResourceError, match=f"M = {MOST_ALONG + 1} is more than {MOST_ALONG}"):
        SizeRange(plan()).check([0, MOST_ALONG + 1])
