# SPDX-License-Identifier: Apache-2.0
"""What must hold of open sizes: equalities, and sizes that are at most others."""

from __future__ import annotations

from intarsia_ir.graph.guards import (
    COMPUTED,
    Guard,
    collecting_guards,
    fixed_sizes,
    is_implied_natural,
    is_required_natural,
    require_at_most,
)
from intarsia_runtime.artifact.plan import SizeGuard
from intarsia_runtime.open_memory import guard_error
from intarsia_runtime.size import minimum, variable

N, M = variable("N"), variable("M")


def test_numbers_are_compared_at_once() -> None:
    with collecting_guards() as found:
        assert require_at_most(2, 3, "why")
        assert not require_at_most(4, 3, "why")
    assert not found


def test_what_arithmetic_knows_needs_no_guard() -> None:
    with collecting_guards() as found:
        assert require_at_most(N, N + 1, "why")
        assert require_at_most(0, N, "why")
        assert require_at_most(minimum(N, 5), N, "why")
        assert require_at_most(minimum(N, 5), 5, "why")
    assert not found


def test_what_is_at_most_something_is_the_smaller_of_both() -> None:
    with collecting_guards() as found:
        assert require_at_most(3, N, "why")
        assert require_at_most(M, N, "why")
    assert list(found) == [Guard(minimum(3, N), 3, "why"), Guard(minimum(M, N), M, "why")]
    assert [str(guard.left) for guard in found] == ["min(3, N)", "min(M, N)"]


def test_without_a_collector_open_sizes_may_be_anything() -> None:
    assert require_at_most(3, N, "why")


def test_the_message_says_which_is_more() -> None:
    values = {"N": 2, "M": 5}
    assert (
        guard_error(SizeGuard(minimum(3, N), 3, "why"), values).message == "why: 3, more than N = 2"
    )
    assert (
        guard_error(SizeGuard(minimum(M, N), M, "why"), values).message
        == "why: M = 5, more than N = 2"
    )
    assert (
        guard_error(SizeGuard(minimum(M, N), N, "why"), values).message
        == "why: N = 2, more than M = 5"
    )
    assert guard_error(SizeGuard(M, N, "why"), values).message == "why: M is 5 and N is 2"


def test_guards_say_which_variables_are_numbers() -> None:
    computed = variable(f"{COMPUTED}1")
    guards = [
        Guard(M + 1, 4, "no variable alone"),
        Guard(N, 4, "first"),
        Guard(5, N, "second"),
        Guard(computed, 3, "not of an input"),
    ]
    assert fixed_sizes(guards) == {N: 4}
    assert fixed_sizes(guards[:1]) == {}


def test_a_guard_may_say_that_a_size_is_not_negative() -> None:
    with collecting_guards():
        assert not is_required_natural(N - 2)
        require_at_most(1, N - 2, "why")
        assert is_required_natural(N - 2)
        assert not is_required_natural(N - 3)
        assert is_implied_natural(N - 3)
        assert not is_implied_natural(N - 4)
        assert is_required_natural(0)
        assert not is_required_natural(-1)
