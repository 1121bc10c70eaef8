# SPDX-License-Identifier: Apache-2.0
"""Kernels that differ in numbers alone are one kernel that takes the numbers."""

from __future__ import annotations

import textwrap

from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.text import parse_funcs, print_func
from intarsia_loops.merged_kernels import MergedKernel, merge_kernels

ROWS = """
def {name}(x: float32[`N`, {channels}], bias: float32[{channels}], y: float32[`N`, {channels}] \
out, N: size):
  for p in parallel(N):
    for i in serial({blocks}):
      for v in vectorized(16):
        y[p, (i * 16) + v] = x[p, (i * 16) + v] + bias[(i * 16) + v]
"""

ONE = """
def a_any(x: float32[`"<0>"*"<rows>"`], bias: float32[`"<rows>"`], y: float32[`"<0>"*"<rows>"`] \
out, "<0>": size, "<1>": size, N: size):
  for p in parallel(N):
    for i in serial("<1>"):
      for v in vectorized(16):
        y[(p * "<0>") + ((i * 16) + v)] = x[(p * "<0>") + ((i * 16) + v)] + bias[(i * 16) + v]
"""


def rows(name: str, channels: int, blocks: int) -> str:
    """A kernel that adds a bias to rows of so many channels."""
    return ROWS.format(name=name, channels=channels, blocks=blocks)


def kernels(*texts: str) -> tuple[PrimFunc, ...]:
    return tuple(parse_funcs("".join(texts)))


def values(merged: MergedKernel) -> dict[str, dict[str, object]]:
    """What a merged kernel is given in the place of each kernel."""
    return {kernel.name: dict(given) for kernel, given in merged.values.items()}


def test_numbers_that_differ_are_sizes_of_one_kernel() -> None:
    (merged,) = merge_kernels(kernels(rows("a", 64, 4), rows("b", 96, 6)))
    assert print_func(merged.kernel).strip() == textwrap.dedent(ONE).strip()
    assert values(merged) == {"a": {"<0>": 64, "<1>": 4}, "b": {"<0>": 96, "<1>": 6}}


def test_numbers_that_differ_alike_are_one_size() -> None:
    text = """
def {name}(x: float32[`N`, {number}], y: float32[`N`, {number}] out, N: size):
  for p in parallel(N):
    for i in serial({number}):
      y[p, i] = x[p, i]
"""
    given = kernels(*(text.format(name=f"k{number}", number=number) for number in (3, 5, 7)))
    (merged,) = merge_kernels(given)
    assert values(merged) == {"k3": {"<0>": 3}, "k5": {"<0>": 5}, "k7": {"<0>": 7}}


def test_other_vectors_unrolled_loops_and_temporaries_are_other_kernels() -> None:
    texts = [
        rows("a", 64, 4),
        rows("b", 64, 4).replace("vectorized(16)", "vectorized(8)"),
        rows("c", 64, 4).replace("serial(4)", "unrolled(4)"),
        rows("d", 64, 4).replace("serial(4)", "unrolled(2)"),
        rows("e", 64, 4).replace("N", "M"),
    ]
    assert merge_kernels(kernels(*texts)) == []


def test_strides_of_tiles_that_are_read_at_places_from_memory_stay_numbers() -> None:
    text = """
def {name}(x: float32[`N`, {channels}], places: int32[8], y: float32[`N`, 8] out, N: size):
  for p in parallel(N):
    for i in serial(8):
      let place = int64(places[i])
      for r in {kind}(2):
        y[p + r, i] = x[p + r, {place}]
"""
    for place, kind, number in (
        ("place", "unrolled", 0),
        ("place", "serial", 1),
        ("i", "unrolled", 1),
    ):
        given = [text.format(name=f"k{n}", channels=n, place=place, kind=kind) for n in (64, 96)]
        assert len(merge_kernels(kernels(*given))) == number


def test_numbers_that_a_procedure_takes_are_sizes_where_they_are_bound() -> None:
    text = """
def {name}(x: int32[`N`, {words}], w: int32[32, 16], N: size):
  for p in serial(N):
    let apart = {words}
    llvm::llvm.amx.multiply.1x1(&x[p, 0], &w[0, 0], {value}, 0, 0, 1)
"""
    for value, number in (("apart", 1), ("{words}", 0)):
        given = [text.format(name=f"k{n}", words=n, value=value.format(words=n)) for n in (64, 96)]
        assert len(merge_kernels(kernels(*given))) == number


def test_a_procedure_of_a_device_keeps_the_shapes_of_what_it_is_given() -> None:
    text = """
def {name}(x: float32[`N`, {channels}], y: float32[`N`, 4] out, N: size):
  for p in serial(N):
    for t in {kind}(4):
      cuda::copy(&y[p, t], &x[p, t])
"""
    for kind, number in (("serial", 1), ("thread.x", 0)):
        given = [text.format(name=f"k{n}", channels=n, kind=kind) for n in (64, 96)]
        assert len(merge_kernels(kernels(*given))) == number


def test_numbers_that_are_not_positive_are_no_sizes() -> None:
    texts = [rows("a", 64, 4), rows("b", 64, 4).replace("(i * 16) + v]", "(i * 16) + v - 1]")]
    shifted = [rows("c", 64, 4).replace("serial(4)", "serial(0)"), rows("d", 64, 4)]
    assert merge_kernels(kernels(*texts)) == []
    assert merge_kernels(kernels(*shifted)) == []


def test_a_product_of_open_sizes_is_a_stride_that_is_passed() -> None:
    text = """
def {name}(x: float32[4, `{stride}`], y: float32[4] out, N: size):
  for p in serial(4):
    y[p] = x[p, 0]
"""
    one, two = kernels(text.format(name="a", stride="N"), text.format(name="b", stride="2*N"))
    (merged,) = merge_kernels((one, two))
    assert {name: {k: str(v) for k, v in row.items()} for name, row in values(merged).items()} == {
        "a": {"<0>": "N"},
        "b": {"<0>": "2*N"},
    }
