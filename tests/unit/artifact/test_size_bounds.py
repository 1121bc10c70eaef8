# SPDX-License-Identifier: Apache-2.0
"""What guards say of the least and the largest value of sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from intarsia_runtime.artifact.plan import SizeGuard
from intarsia_runtime.artifact.size_bounds import SizeBounds, size_bounds, upper_bound
from intarsia_runtime.size import (
    Size,
    floor_divide,
    maximum,
    minimum,
    remainder,
    value_of,
    variable,
)


def test_guards_of_models_are_bounds_too() -> None:
    guards = [
        SizeGuard(minimum(512, variable("S")), variable("S"), "positions"),
        SizeGuard(variable("S"), minimum(variable("S"), 300), "positions"),
        SizeGuard(variable("T") + 1, 5, "no bound of T alone"),
    ]
    assert size_bounds(guards) == {"S": SizeBounds(0, 300)}
    assert str(SizeBounds(0, 300)) == "up to 300"


def sizes() -> st.SearchStrategy[Size]:
    """Expressions over ``N`` and ``M``."""
    leaves = st.integers(0, 20) | st.sampled_from([variable("N"), variable("M")])

    def grown(inner: st.SearchStrategy[Size]) -> st.SearchStrategy[Size]:
        pair = st.tuples(inner, inner)
        number = st.tuples(inner, st.integers(1, 9))
        return (
            pair.map(lambda p: p[0] + p[1])
            | pair.map(lambda p: p[0] - p[1])
            | pair.map(lambda p: p[0] * p[1])
            | pair.map(lambda p: minimum(*p))
            | pair.map(lambda p: maximum(*p))
            | number.map(lambda p: floor_divide(*p))
            | number.map(lambda p: remainder(*p))
        )

    return st.recursive(leaves, grown, max_leaves=6)


@given(sizes(), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_no_size_exceeds_its_bound(size: Size, low: int, more: int, n: int, m: int) -> None:
    bounds = {"N": SizeBounds(low, low + more), "M": SizeBounds(0, 9)}
    most = upper_bound(size, bounds)
    assert most is not None
    assert value_of(size, {"N": low + min(n, more), "M": m}) <= most


def test_min_bounds_what_has_no_bound() -> None:
    n = variable("N")
    assert upper_bound(minimum(n, 7) + 1, {}) == 8
    assert upper_bound(maximum(n, 7), {}) is None
    assert upper_bound(floor_divide(9, n), {"N": SizeBounds(0, 3)}) is None
