# SPDX-License-Identifier: Apache-2.0
"""Rows are cut where comparisons of their index change."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.graph.types import Size, variable
from intarsia_ir.tir.expr import PrimExpr, TirVar, index, maximum, minimum, select
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.passes.simplify import simplify
from intarsia_ir.tir.passes.vectorize import vectorize
from intarsia_ir.tir.tensor import Axis, extents
from intarsia_ir.tir.text.print import print_expr, print_func
from intarsia_ir.tir.verify import verify_func
from intarsia_loops.loops import default_loops
from intarsia_loops.ranges import split_ranges
from intarsia_loops.tensors import stages_of
from intarsia_testkit.expressions import apply, expected, function_of, var

AT = TirVar("i")


def cuts(value: PrimExpr, extent: int) -> list[tuple[int, int, str]] | None:
    found = split_ranges(value, Axis(AT, extent))
    return found and [(part.start, part.extent, print_expr(part.value)) for part in found]


def test_a_clamped_index_has_three_ranges() -> None:
    assert cuts(minimum(maximum(AT - 2, 0), 4), 10) == [
        (0, 2, "0"),
        (2, 5, "i - 2"),
        (7, 3, "4"),
    ]


def test_a_mirrored_index_has_three_ranges() -> None:
    place = AT - 1
    place = select(place < 0, 0 - place, place)
    place = select(place < 4, place, 6 - place)
    assert cuts(place, 6) == [(0, 1, "0 - (i - 1)"), (1, 4, "i - 1"), (5, 1, "6 - (i - 1)")]


def test_falling_indices_and_every_comparison() -> None:
    falling = 7 - AT * 2
    assert cuts(select(falling >= 2, AT, index(0)), 6) == [(0, 3, "i"), (3, 3, "0")]
    assert cuts(select(falling > 1, AT, index(0)), 6) == [(0, 3, "i"), (3, 3, "0")]
    assert cuts(select(falling <= 1, AT, index(0)), 6) == [(0, 3, "0"), (3, 3, "i")]
    assert cuts(select((AT >= 1) & (AT < 5), AT, index(0)), 6) == [
        (0, 1, "0"),
        (1, 4, "i"),
        (5, 1, "0"),
    ]


def test_a_loop_of_open_extent_is_cut_at_both_ends() -> None:
    """The begin and the end keep the comparisons: they may meet."""
    n = variable("n")
    place = maximum(AT - 2, 0)
    value = minimum(place, index(n) - 1)
    clamped = "min(max(i - 2, 0), n - 1)"
    assert open_cuts(value, n + 5) == [
        ("0", "2", clamped),
        ("2", "n", "i - 2"),
        ("n + 2", "3", clamped),
    ]


def test_comparisons_that_depend_on_other_sizes_or_turns_are_left() -> None:
    n, m = variable("n"), variable("m")
    assert open_cuts(select(index(m) > AT, AT, index(0)), n) is None
    assert open_cuts(select(index(n) > AT * 2, AT, index(0)), n) is None
    assert open_cuts(select(index(n) > AT, AT, index(0)), n) is None


def open_cuts(value: PrimExpr, extent: Size) -> list[tuple[str, str, str]] | None:
    found = split_ranges(value, Axis(AT, *extents((extent,))))
    return found and [(str(p.start), str(p.extent), print_expr(p.value)) for p in found]


def test_what_has_no_place_to_be_cut_is_left() -> None:
    assert cuts(select(AT < 9, AT, index(0)), 6) is None
    assert cuts(select(TirVar("j") < AT, AT, index(0)), 6) is None
    assert cuts(AT % 3, 6) is None
    steps: PrimExpr = index(0)
    for at in range(1, 12):
        steps = select(index(at) > AT, index(at), steps)
    assert cuts(steps, 12) is None


def test_the_inside_of_a_repeating_pad_runs_by_vectors() -> None:
    body = apply("nn.pad", var("x", 3, 20), widths=((0, 0), (2, 1)), mode="edge")
    kernel = default_loops("kernel", stages_of(function_of(body)))
    assert (
        print_func(kernel)
        == """\
def kernel(p0: float32[3, 20], out0: float32[3, 23] out):
  for i0 in serial(3):
    for lane in vectorized(2):
      out0[i0, lane] = p0[i0, 0]
    for lane_1 in vectorized(16):
      out0[i0, lane_1 + 2] = p0[i0, (lane_1 + 2) - 2]
    for lane_2 in vectorized(4):
      out0[i0, (16 + lane_2) + 2] = p0[i0, ((16 + lane_2) + 2) - 2]
    out0[i0, 22] = p0[i0, 19]
"""
    )


@settings(deadline=None, max_examples=40)
@given(
    mode=st.sampled_from(["reflect", "edge", "constant"]),
    sizes=st.tuples(st.integers(4, 6), st.integers(4, 40)),
    widths=st.tuples(*[st.tuples(st.integers(-1, 3), st.integers(-1, 3))] * 2),
    overlap=st.booleans(),
)
def test_pads_of_any_width(
    mode: str, sizes: tuple[int, int], widths: tuple[tuple[int, int], ...], overlap: bool
) -> None:
    widths = tuple((min(a, n - 3), min(b, n - 3)) for (a, b), n in zip(widths, sizes, strict=True))
    body = apply("nn.pad", var("x", 2, *sizes), widths=((0, 0), *widths), mode=mode, value=0.5)
    computes_the_same(body, overlap)


def computes_the_same(body: Call, overlap: bool) -> None:
    shape = tensor_type(body.args[0]).static_shape
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    kernel = default_loops("kernel", stages_of(function_of(body)), overlap=overlap)
    verify_func(kernel)
    got = np.zeros(kernel.params[1].shape, np.float32)
    run(vectorize(simplify(kernel)), x.reshape(kernel.params[0].shape), got)
    (want,) = expected(function_of(body), [x])
    np.testing.assert_array_equal(got.reshape(want.shape), want)
