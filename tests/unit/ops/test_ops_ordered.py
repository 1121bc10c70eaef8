# SPDX-License-Identifier: Apache-2.0
"""Choosing elements by their order, running sums and writes at given places, against ONNX's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.ops import OPERATORS

RNG = np.random.default_rng(31)
NAN = np.nan


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((3, 50), 1, 4), ((5, 3), 0, 5), ((9,), 0, 1)]
)
def test_top_k(check_operator, onnx_node, shape, axis, count, largest) -> None:
    x = RNG.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    attrs = {"axis": axis, "largest": int(largest)}
    wanted = onnx_node("TopK", x, np.array([count]), outputs=2, **attrs)
    check_operator(wanted, "top_k", x, axis=axis, count=count, largest=largest)


def test_of_equal_elements_the_first_comes_first_and_nan_last(check_operator) -> None:
    x = np.array([1, NAN, 3, 1, -0.0, 0.0, 3, NAN], np.float32)
    wanted = [np.float32([3, 3, 1, 1, -0.0, 0.0, NAN, NAN]), np.array([2, 6, 0, 3, 4, 5, 1, 7])]
    check_operator(wanted, "top_k", x, axis=0, count=8)
    wanted = [np.float32([-0.0, 0.0, 1]), np.array([4, 5, 0])]
    check_operator(wanted, "top_k", x, axis=0, count=3, largest=False)
    bits = np.array([False, True, False])
    wanted = [np.array([True, False]), np.array([1, 0])]
    check_operator(wanted, "top_k", bits, axis=0, count=2)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=80), st.data())
def test_the_heap_sorts(numbers: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(numbers)))
    op = OPERATORS["top_k"]
    x = np.array(numbers, np.int32)
    values, places = op.reference(op.Attrs(count=count, axis=0), x)
    order = sorted(range(len(numbers)), key=lambda at: (-numbers[at], at))[:count]
    assert places.tolist() == order
    assert values.tolist() == [numbers[at] for at in order]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((3, 4), 0), ((19, 4), 1), ((2, 3, 70), 1)])
def test_running_products(check_operator, shape, axis, exclusive, reverse) -> None:
    x = RNG.uniform(0.5, 1.5, shape).astype(np.float32)
    turned = np.flip(x, axis) if reverse else x
    wanted = np.cumprod(turned, axis)
    if exclusive:
        wanted = wanted / turned
    wanted = np.flip(wanted, axis) if reverse else wanted
    check_operator(wanted, "cumprod", x, axis=axis, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_elements(check_operator, onnx_node, reduction) -> None:
    data, updates = (RNG.standard_normal(s).astype(np.float32) for s in ((3, 5), (3, 2)))
    indices = np.array([[0, -1], [2, 1], [4, 3]])
    attrs = {"axis": 1, "reduction": reduction}
    wanted = onnx_node("ScatterElements", data, indices, updates, **attrs)
    check_operator(wanted, "scatter_elements", data, indices, updates, **attrs)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_scatter_nd(check_operator, onnx_node, reduction, depth) -> None:
    data = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    indices = np.array([[0, 1, 2], [2, -1, 0]])[:, :depth]
    updates = RNG.standard_normal((2, *data.shape[depth:])).astype(np.float32)
    wanted = onnx_node("ScatterND", data, indices, updates, reduction=reduction)
    check_operator(wanted, "scatter_nd", data, indices, updates, reduction=reduction)


def test_what_is_outside_is_not_written_and_the_last_write_stays(check_operator) -> None:
    data, updates = np.zeros(3, np.int32), np.array([1, 2, 3, 4], np.int32)
    wanted = np.array([0, 3, 0], np.int32)
    check_operator(wanted, "scatter_elements", data, np.array([1, 3, 1, -4]), updates, axis=0)
    check_operator(wanted, "scatter_nd", data, np.array([[1], [3], [-2], [-4]]), updates)
    rows = np.zeros((2, 2), np.int32)
    places, lines = np.array([[0, 2], [1, 0]]), np.array([5, 6], np.int32)
    check_operator(np.array([[0, 0], [6, 0]], np.int32), "scatter_nd", rows, places, lines)


def test_a_cache_is_written_for_each_sample_from_its_own_start(check_operator) -> None:
    cache = np.zeros((2, 4, 1), np.float32)
    update = np.array([[[1], [2]], [[3], [4]]], np.float32)
    for starts, circular, wanted in (
        ([0, 2], False, [[1, 2, 0, 0], [0, 0, 3, 4]]),
        ([3, -1], False, [[0, 0, 0, 1], [4, 0, 0, 0]]),
        ([3, -1], True, [[2, 0, 0, 1], [4, 0, 0, 3]]),
    ):
        found = np.array(wanted, np.float32)[..., None]
        attrs = {"axis": 1, "circular": circular}
        check_operator(found, "tensor_scatter", cache, update, np.array(starts), **attrs)


def test_sequences_are_reversed_up_to_their_length(check_operator) -> None:
    x = np.arange(8, dtype=np.int8).reshape(4, 2)
    wanted = np.array([[4, 1], [2, 3], [0, 5], [6, 7]], np.int8)
    check_operator(wanted, "reverse_sequence", x, np.array([3, 1]), time=0, batch=1)


def test_neighbours_are_weighed(check_operator) -> None:
    x = RNG.standard_normal((2, 6, 3)).astype(np.float32)
    matrix = np.zeros((4, 6), np.float32)
    starts = np.array([0, 3, 1, 4])
    weights = RNG.standard_normal((4, 2)).astype(np.float32)
    for row, (start, pair) in enumerate(zip(starts, weights, strict=True)):
        matrix[row, start : start + 2] = pair
    check_operator(np.einsum("ij,ajb->aib", matrix, x), "nn.resample", x, starts, weights, axis=1)


def test_non_max_suppression(check_operator) -> None:
    """Four boxes: the second overlaps the first, the third is apart, the fourth is bad."""
    corners = np.float32([[[0, 0, 0, 0], [0, 0.1, 5, 9], [1, 1, 1, 1], [1, 1.1, 6, 10]]])
    scores = np.float32([[[0.75, 0.9, 0.6, 0.1], [0.2, 0.2, 0.2, 0.2]]])
    nothing = np.full_like(scores, -np.inf)
    check_operator(
        [np.array([[[1, 2, 0], [0, 0, 0]]]), np.array([[2, 0]]), nothing],
        *("nn.non_max_suppression", corners, scores),
        count=3,
        overlap=0.5,
        least=0.5,
    )
    check_operator(
        [np.array([[[1, 2, 3], [0, 2, 3]]]), np.array([[3, 3]]), nothing],
        *("nn.non_max_suppression", corners, scores),
        count=3,
        overlap=0.5,
    )
    left = np.float32([[[-np.inf, -np.inf, 0.6, 0.1]]])
    check_operator(
        [np.array([[[1]]]), np.array([[1]]), left],
        *("nn.non_max_suppression", corners, scores[:, :1]),
        count=1,
        overlap=0.5,
    )
