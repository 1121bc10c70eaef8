# SPDX-License-Identifier: Apache-2.0
"""Rows that fill no whole number of vectors: vectors that overlap, and lanes that do not count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_ir.tir.tensor import compute, placeholder, reduce_axis, sum_over
from intarsia_ir.tir.text.print import print_func
from intarsia_ir.tir.verify import verify_func
from intarsia_loops.loops import default_loops
from intarsia_loops.tensors import Stages, stages_of
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, expected, function_of, var


def overlapping(body: Call) -> PrimFunc:
    return default_loops("kernel", stages_of(function_of(body)), overlap=True)


def computes_the_same(body: Call, x: np.ndarray) -> None:
    kernel = overlapping(body)
    verify_func(kernel)
    kind = tensor_type(body)
    got = np.zeros(kind.static_shape, kind.dtype.value)
    scratch = [np.zeros(b.shape, b.dtype.value) for b in kernel.params[2:]]
    run(
        vectorize(simplify(kernel)),
        x.reshape(kernel.params[0].shape),
        *_flat(kernel, got),
        *scratch,
    )
    (want,) = expected(function_of(body), [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def _flat(kernel: PrimFunc, got: np.ndarray) -> tuple[np.ndarray, ...]:
    return (got.reshape(kernel.params[1].shape),)


def test_the_last_vector_overlaps_the_one_before() -> None:
    assert (
        print_func(overlapping(apply("nn.relu", var("x", 30))))
        == """\
def kernel(p0: float32[30], out0: float32[30] out):
  for lane in vectorized(16):
    out0[lane] = max(p0[lane], 0.0)
  for lane_1 in vectorized(16):
    out0[14 + lane_1] = max(p0[14 + lane_1], 0.0)
"""
    )


def test_lanes_that_were_summed_up_count_as_nothing() -> None:
    assert (
        print_func(overlapping(apply("sum", var("x", 2, 21), axes=(1,))))
        == """\
def kernel(p0: float32[2, 21], out0: float32[2] out):
  for i0 in serial(2):
    partial: float32[16] register
    edge: float32[16] register
    partial[ramp(0, 1, 16)] = broadcast(0.0, 16)
    edge[ramp(0, 1, 16)] = broadcast(0.0, 16)
    for k1 in serial(1):
      for lane in vectorized(16):
        partial[lane] = p0[i0, (k1 * 16) + lane] + partial[lane]
    for lane_1 in vectorized(16):
      edge[lane_1] = select(lane_1 >= 11, p0[i0, lane_1 + 5], 0.0) + edge[lane_1]
    out0[i0] = 0.0 + (reduce_lanes[+](partial[ramp(0, 1, 16)]) \
+ reduce_lanes[+](edge[ramp(0, 1, 16)]))
"""
    )


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 3),
    length=st.integers(1, 300),
    name=st.sampled_from(["sum", "max", "min", "prod", "mean"]),
)
def test_rows_of_any_length_are_reduced(rows: int, length: int, name: str) -> None:
    x = np.random.default_rng(length).uniform(0.9, 1.1, (rows, length)).astype(np.float32)
    computes_the_same(apply(name, var("x", rows, length), axes=(1,)), x)


@settings(deadline=None, max_examples=20)
@given(outer=st.integers(1, 3), length=st.integers(1, 40), inner=st.integers(1, 40))
def test_columns_of_any_number_are_reduced(outer: int, length: int, inner: int) -> None:
    x = np.random.default_rng(length).standard_normal((outer, length, inner)).astype(np.float32)
    computes_the_same(apply("sum", var("x", outer, length, inner), axes=(1,)), x)
    if outer > 1:
        computes_the_same(apply("max", var("x", outer, length, inner), axes=(0, 2)), x)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 10, 15, 17, 33, 97, 1000])
def test_rows_of_several_stages(length: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, length)).astype(np.float32)
    computes_the_same(apply("nn.softmax", var("x", 3, length), axis=1), x)


def test_powers_lie_where_the_result_will() -> None:
    """Elements are read in place, so no vector of the result overlaps the one before."""
    given = var("x", 5, 2503)
    body = apply("multiply", apply("nn.softmax", given, axis=0), given)
    assert {b.elements for b in overlapping(body).scratch_params} == {2503}
    computes_the_same(body, np.random.default_rng(3).standard_normal((5, 2503), np.float32))


def test_powers_that_are_read_elsewhere_have_memory_of_their_own() -> None:
    body = apply("flip", apply("nn.softmax", var("x", 5, 2503), axis=0), axes=(0,))
    assert max(b.elements for b in overlapping(body).scratch_params) == 5 * 2503
    computes_the_same(body, np.random.default_rng(4).standard_normal((5, 2503), np.float32))


def test_the_last_of_two_results_has_what_both_are_computed_from() -> None:
    shape = (5, 2503)
    x = placeholder("x", shape, DType.FLOAT32)
    powers = compute(shape, lambda i, j: x[i, j] * x[i, j])
    k = reduce_axis(5)
    total = compute(shape[1:], lambda j: sum_over(powers[k.var, j], [k]))
    results = (
        compute(shape, lambda i, j: powers[i, j] + total[j]),
        compute(shape, lambda i, j: powers[i, j] * total[j]),
    )
    stages = Stages((x,), (powers, total, *results), results)
    kernel = default_loops("kernel", stages, overlap=True)
    assert [b.elements for b in kernel.scratch_params] == [2503]
    data = np.random.default_rng(5).standard_normal(shape, np.float32)
    made = [np.zeros_like(data), np.zeros_like(data)]
    run(vectorize(simplify(kernel)), data, *made, np.zeros(2503, np.float32))
    squares = data * data
    np.testing.assert_allclose(made[0], squares + squares.sum(0), rtol=1e-5)
    np.testing.assert_allclose(made[1], squares * squares.sum(0), rtol=1e-5)
