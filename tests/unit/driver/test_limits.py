# SPDX-License-Identifier: Apache-2.0
"""Small models that ask for much time or memory end with an error that names the limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e import bombs

from intarsia.driver.dynamic import import_any
from intarsia.driver.source import ModuleSource
from intarsia_ir.budget import Budget, budget, limited, parse_memory
from intarsia_ir.ops.shape import Concatenate
from intarsia_ir.tir.expr import IfThenElse
from intarsia_ir.tir.tensor import placeholder
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError, ModelError, ResourceError, UsageError


def error_of(
    build: Callable[[Path], Path],
    folder: Path,
    time_limit: float | None = None,
    memory_limit: int | None = None,
) -> IntarsiaError:
    """What importing says; within five seconds of a processor."""
    path, start = build(folder), time.process_time()
    with pytest.raises(IntarsiaError) as caught, limited(time_limit, memory_limit):
        import_any(ModuleSource(path), None, None, None)
    assert time.process_time() - start < 5
    return caught.value


LOOPS = (bombs.endless_loop, bombs.long_loop, bombs.stacking_loop, bombs.nested_loops)


@pytest.mark.parametrize("build", LOOPS, ids=lambda build: build.__name__)
def test_a_loop_of_constants_ends_with_the_time(build: bombs.Builder, tmp_path: Path) -> None:
    error = error_of(build, tmp_path, 0.5)
    assert type(error) is ResourceError
    assert "took longer than 0.5 s" in error.message
    assert "--time-limit" in error.hint


@pytest.mark.parametrize(
    "build",
    [bombs.constant_in_functions, bombs.strings_in_functions, bombs.names_in_functions],
    ids=lambda build: build.__name__,
)
def test_functions_are_not_expanded_to_more_than_memory(
    build: bombs.Builder, tmp_path: Path
) -> None:
    error = error_of(build, tmp_path)
    assert type(error) is ResourceError
    assert "bytes once functions are expanded; the limit is 268,435,456" in error.message
    assert "--memory-limit" in error.hint
    assert "the limit is 268,435,456" not in error_of(build, tmp_path, None, 8 << 30).message


@pytest.mark.parametrize(
    "build",
    [bombs.doubling_text, bombs.split_text],
    ids=lambda build: build.__name__,
)
def test_what_nodes_of_constants_make_is_limited(build: bombs.Builder, tmp_path: Path) -> None:
    error = error_of(build, tmp_path, None, 500 << 20)
    assert type(error) is ResourceError
    assert "the limit is 524,288,000" in error.message
    assert "--memory-limit" in error.hint


@pytest.mark.parametrize(
    "build", [bombs.counted_repetition, bombs.back_reference], ids=lambda build: build.__name__
)
def test_only_expressions_of_re2_are_taken(build: bombs.Builder, tmp_path: Path) -> None:
    error = error_of(build, tmp_path)
    assert type(error) is ModelError
    assert "no regular expression of RE2" in error.message


@pytest.mark.parametrize(
    "build",
    [bombs.nested_repetition, bombs.overlapping_choice, bombs.polynomial_repetition, bombs.n_grams],
    ids=lambda build: build.__name__,
)
def test_expressions_and_n_grams_take_linear_time(build: bombs.Builder, tmp_path: Path) -> None:
    with limited(20):
        import_any(ModuleSource(build(tmp_path)), None, None, None)


def test_a_concatenation_of_many_parts_is_no_deep_choice() -> None:
    """A choice of one part after the other is as deep as there are parts: 20 s for 1,000."""
    parts = [placeholder(f"x{n}", (n % 3,), DType.FLOAT32) for n in range(1000)]
    body = Concatenate.compute(Concatenate.Attrs(axis=0), *parts).body
    level, depth = [body], 0
    while level:
        choices = [node for node in level if isinstance(node, IfThenElse)]
        level = [side for node in choices for side in (node.a, node.b)]
        depth += 1
    assert depth < 30


def test_work_inside_work_keeps_the_limit() -> None:
    assert budget().deadline == float("inf")
    with limited(7, 1 << 30) as outer, limited(100) as inner:
        assert inner is outer is budget()
    with (
        limited(None, 1 << 30, host_seconds=float("inf")),
        limited(None, None) as inner,
    ):
        assert (inner.memory, inner.given_memory, inner.given) == (1 << 30, True, False)


def test_the_work_of_others_counts_only_if_the_user_says_so() -> None:
    with limited() as limits:
        before = limits.deadline
        with limits.apart():
            assert limits.deadline == float("inf")
            time.sleep(0.05)
        assert limits.deadline > before
    with limited(5) as limits, limits.apart():
        assert limits.deadline < float("inf")


def test_the_work_of_a_backend_has_a_limit_of_its_own() -> None:
    def work(seconds: float, *, ended: bool) -> None:
        with limited() as limits, limits.apart("code generation", seconds):
            time.sleep(0.02)
            if ended:  # as the parent process asks for
                raise KeyboardInterrupt
            limits.check()

    for ended in (False, True):
        with pytest.raises(ResourceError, match=r"code generation took longer than 0.01 s") as said:
            work(0.01, ended=ended)
        assert "--time-limit" in str(said.value)
    with pytest.raises(KeyboardInterrupt):
        work(9, ended=True)


def test_memory_in_use_counts() -> None:
    with pytest.raises(ResourceError, match="the limit is 1,000"):
        Budget(1, 1000).reserve(2000)
    limits = Budget(1, 1000)
    with pytest.raises(ResourceError, match="the limit is 1,000"):
        [limits.check() for _ in range(1000)]


@pytest.mark.parametrize(
    "text, size",
    [("1000", 1000), ("2K", 2048), ("512M", 512 << 20), ("1.5 GiB", 3 << 29), ("2g", 2 << 30)],
)
def test_sizes_of_memory(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "2X", "G", "1e3", "nan"])
def test_no_sizes_of_memory(text: str) -> None:
    with pytest.raises(UsageError, match="no size of memory"):
        parse_memory(text)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf")])
def test_no_limits(limit: float) -> None:
    with pytest.raises(UsageError, match="above 0"), limited(limit):
        pass
