# SPDX-License-Identifier: Apache-2.0
"""Sizes as expressions: a normal form, arithmetic, text and values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia_runtime.errors import ArtifactError, UnsupportedError
from intarsia_runtime.size import (
    Dim,
    OpenSizeError,
    Size,
    exact_quotient,
    floor_divide,
    maximum,
    minimum,
    product,
    remainder,
    value_of,
    variable,
)
from intarsia_runtime.size_text import MOST_CHARACTERS, parse_size

N, M = variable("N"), variable("M")

SAME = [
    ("(4*N + 2) // 4", "N"),
    ("(N + 2) // 2", "N // 2 + 1"),
    ("((N - 1) // 2 - 1) // 2 + 1", "(N + 1) // 4"),
    ("(6*N + 3) // 9", "(2*N + 1) // 3"),
    ("6*N*M // (2*M)", "3*N"),
    ("(N + 8) % 4", "N % 4"),
    ("4*N % 2", "0"),
    ("N*M % M", "0"),
    ("min(N + 1, N)", "N"),
    ("max(N + 1, N)", "N + 1"),
    ("min(N, M)", "min(M, N)"),
    ("max((N + 1) // 4, 0)", "(N + 1) // 4"),
    ("max(0, N % 4 + min(N, M))", "N % 4 + min(N, M)"),
    ("min(N + M // 2, N)", "N"),
    ("max(N - min(N, 2), 0) + min(N, 2)", "N"),
    ("min(N - min(N, 2), 0)", "0"),
    ("min(0, N - min(N, 2))", "0"),
    ("max(0, 2*N - 2*min(M, min(N, 3)))", "2*N - 2*min(M, min(N, 3))"),
    ("(N + M)*(N - M)", "N*N - M*M"),
    ("N - N", "0"),
    ("N // 1", "N"),
    ("7 // 2 % 0", "0"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_sizes_have_one_normal_form(one: str, other: str):
    assert parse_size(one) == parse_size(other)


TEXTS = ["N + 2", "-N + 3", "2*N + 1", "M*(N // 2)", "3*((N + 1) // 2)", "min(512, N)", "N % 4",
         '2*"h w" + 1', '"min"', "N // M", "(-M + N) // (M + 1)"]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_reads_back(text: str):
    assert str(parse_size(text)) == text


BAD = ["", "N +", "N / 2", "N ** 2", "f(N)", "min(N)", "N.x", "True", "1.5", "[N]", "not N",
       "(" * 500 + "N" + ")" * 500, "N" * (MOST_CHARACTERS + 1)]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_size_is_refused(text: str):
    with pytest.raises(ArtifactError, match="is no size"):
        parse_size(text)


def test_a_product_that_grows_without_bound_is_refused():
    text = "*".join(f"(a{n} + b{n})" for n in range(20))
    with pytest.raises(ArtifactError, match="is no size"):
        parse_size(text)
    factors = [variable(f"a{n}") + variable(f"b{n}") for n in range(20)]
    with pytest.raises(UnsupportedError, match="more than 4096 terms"):
        product(factors)


@pytest.mark.parametrize(
    "use",
    [
        lambda: N < 3,
        lambda: N <= M,
        lambda: N > 3,
        lambda: N >= M,
        lambda: range(N),  # type: ignore[arg-type]
        lambda: float(N),  # type: ignore[arg-type]
        lambda: N * 0.5,  # type: ignore[operator]
        lambda: N / 2,
        lambda: 2 / N,
    ],
)
def test_who_needs_the_number_is_told_that_it_is_not_known(use: Callable[[], object]):
    with pytest.raises(OpenSizeError, match="the size N is only known at run time"):
        use()


def test_names_variables_and_substitution():
    assert N.is_variable
    assert N.name == "N"
    size = (N + M * 2) // 3
    assert isinstance(size, Dim)
    assert not size.is_variable
    assert size.name == str(size)
    assert size.variables() == {"N", "M"}
    assert size.substitute({"N": 4, "M": 1}) == 2
    assert size.substitute({"N": M}) == M
    assert minimum(N, 4).substitute({"N": 9}) == 4
    assert (N * 2).evaluate({"N": 5}) == 10
    assert exact_quotient(N + 1, N) is None
    assert exact_quotient(N, 0) is None
    assert exact_quotient(64 * N * M - 384 * M, N * M - 6 * M) == 64
    assert exact_quotient(N * N - M * M, N - M) == N + M
    assert exact_quotient(N * N + M * M, N - M) is None
    assert exact_quotient(3 * N - 3, 2 * N - 2) is None


Reference = Callable[[dict[str, int]], int]
_LEAVES = st.one_of(
    st.sampled_from([(N, lambda v: v["N"]), (M, lambda v: v["M"])]),
    st.integers(0, 9).map(lambda n: (n, lambda _: n)),
)


def _combined(parts: st.SearchStrategy) -> st.SearchStrategy:
    def join(a: tuple[Size, Reference], b: tuple[Size, Reference], k: int, op: int):
        (x, f), (y, g) = a, b
        rows: list[tuple[Callable[[], Size], Reference]] = [
            (lambda: x + y, lambda v: f(v) + g(v)),
            (lambda: x - y, lambda v: f(v) - g(v)),
            (lambda: x * y, lambda v: f(v) * g(v)),
            (lambda: floor_divide(x, k), lambda v: f(v) // k),
            (lambda: remainder(x, k), lambda v: f(v) % k),
            (lambda: minimum(x, y), lambda v: min(f(v), g(v))),
            (lambda: maximum(x, y), lambda v: max(f(v), g(v))),
            (lambda: floor_divide(x, maximum(y, 1)), lambda v: f(v) // max(g(v), 1)),
        ]
        size, value = rows[op]
        return size(), value

    return st.builds(join, parts, parts, st.integers(1, 7), st.integers(0, 7))


@given(st.recursive(_LEAVES, _combined, max_leaves=8), st.integers(1, 40), st.integers(1, 40))
def test_arithmetic_keeps_values_and_text(pair: tuple[Size, Reference], n: int, m: int):
    size, value = pair
    values = {"N": n, "M": m}
    assert value_of(size, values) == value(values)
    assert parse_size(str(size)) == size
    if isinstance(size, Dim):
        assert size.substitute(values) == value(values)  # pyright: ignore[reportArgumentType]


def test_the_largest_of_the_same_sizes_again_is_no_longer() -> None:
    a, b, c = variable("a"), variable("b"), variable("c")
    both = maximum(a, b)
    for _ in range(400):
        both = maximum(maximum(both, a), maximum(b, both))
    assert both == maximum(a, b)
    assert minimum(minimum(a, b), minimum(b, a)) == minimum(a, b)
    assert maximum(maximum(a, b), maximum(a + 1, b)) == maximum(a + 1, b)
    assert maximum(maximum(a, b), c) not in (maximum(a, b), c)
