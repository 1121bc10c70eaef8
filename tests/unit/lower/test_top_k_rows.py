# SPDX-License-Identifier: Apache-2.0
"""The best elements of short rows by extremes and by ranks, on the interpreter and compiled."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import get_item
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Allocate
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu import radix_rows
from intarsia_loops.cpu.top_k_rows import top_k_kernel
from intarsia_loops.targets import LoopTarget
from intarsia_testkit.expressions import apply, expected, function_of, var

from .conftest import carry_out, lower, make_target

SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, np.nan, 1.0, 1.0]


def _schedule(group: FusedGroup, _target: LoopTarget) -> PrimFunc | None:
    return top_k_kernel(group, lanes=4)


def _agree(x: np.ndarray, count: int, *, axis: int = 1, compiled: bool = True) -> bool:
    """Compare both directions with the reference; return whether vectors ranked or searched."""
    used = []
    for largest in (True, False):
        given = var("x", *x.shape, dtype=x.dtype.name)
        call = apply("top_k", given, count=count, axis=axis, largest=largest)
        function = function_of(get_item(call, 0), get_item(call, 1))
        lowered = lower(function, (), target=make_target(top_k=_schedule))
        got, want = carry_out(lowered, [x], compiled=compiled), expected(function, [x])
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(np.signbit(got[0]), np.signbit(want[0]))
        np.testing.assert_array_equal(got[1], want[1])
        (kernel,) = lowered.module.functions
        made = [node for node in statements(kernel.body) if isinstance(node, Allocate)]
        used.append("keys" in {node.buffer.name for node in made})
    assert len(set(used)) == 1
    return used[0]


def _drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Elements some of which are equal, and the extremes of the type."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 20, shape).astype(dtype)
    if x.dtype.kind == "f":
        x.reshape(-1)[: len(SPECIAL)] = SPECIAL[: x.size]
    else:
        info = np.iinfo(dtype)
        x.reshape(-1)[:4] = [info.max, info.min, info.max, info.min][: x.size]
    return x


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64", "uint64"])
@pytest.mark.parametrize(("size", "count"), [(19, 3), (19, 19), (16, 16), (3, 3), (1, 1)])
def test_rows(dtype: str, size: int, count: int) -> None:
    _agree(_drawn((2, size), dtype), count)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
@pytest.mark.parametrize("count", [2, 24])
def test_short_elements_on_the_interpreter(dtype: str, count: int) -> None:
    assert _agree(_drawn((3, 24), dtype), count, compiled=False) == (
        count == 24 or dtype != "uint32"
    )


@pytest.mark.parametrize("count", [1, 17])
def test_columns(count: int) -> None:
    assert _agree(_drawn((2, 17, 3), "float32"), count)


@pytest.mark.parametrize(
    ("shape", "count", "axis", "dtype"),
    [((2, 70), 70, 1, "float32"), ((70, 3), 9, 0, "float16"), ((1, 300), 300, 1, "int32")],
)
def test_long_rows_are_sorted(shape: tuple[int, ...], count: int, axis: int, dtype: str) -> None:
    assert _agree(_drawn(shape, dtype), count, axis=axis)


@pytest.mark.parametrize(
    ("size", "count", "dtype"),
    [(300, 40, "float32"), (300, 25, "uint32"), (40, 3, "int64"), (140, 9, "float64")],
)
def test_long_rows_and_few_wanted_have_a_heap(size: int, count: int, dtype: str) -> None:
    assert not _agree(_drawn((2, size), dtype), count)


def _buffers(size: int, count: int) -> set[str]:
    function = function_of(
        get_item(apply("top_k", var("x", 1, size), count=count, axis=1, largest=True), 0)
    )
    (kernel,) = lower(function, (), target=make_target(top_k=_schedule)).module.functions
    return {node.buffer.name for node in statements(kernel.body) if isinstance(node, Allocate)}


@pytest.mark.parametrize(
    ("size", "count", "is_selected"),
    [(8400, 1000, True), (4096, 2048, True), (4096, 2049, False), (4095, 2000, False)],
)
def test_of_long_rows_half_is_left_out_before_they_are_sorted(
    size: int, count: int, is_selected: bool
) -> None:
    names = _buffers(size, count)
    assert "counts" in names
    assert ("buckets" in names) == is_selected


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("drawn", "float32"), ("equal", "uint8"), ("normal", "float32"), ("falling", "int32")],
)
def test_rows_of_which_some_are_selected(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: str
) -> None:
    """All elements in one bucket, few in the last one, and the last one wanted at its end."""
    monkeypatch.setattr(radix_rows, "_LEAST_SELECTED", 0)
    rng, shape = np.random.default_rng(1), (2, 70)
    x = {
        "drawn": lambda: _drawn(shape, dtype),
        "equal": lambda: np.full(shape, 7, dtype),
        "normal": lambda: (rng.standard_normal(shape) * 40 + 100).clip(0, 200).astype(dtype),
        "falling": lambda: np.broadcast_to(np.arange(70)[::-1] // 3, shape).astype(dtype),
    }[kind]()
    assert _agree(x, 30)
