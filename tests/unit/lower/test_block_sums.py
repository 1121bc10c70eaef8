# SPDX-License-Identifier: Apache-2.0
"""Long sums down columns, block by block."""

from __future__ import annotations

import pytest

from intarsia_ir.graph.expr import Function, Var
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.tir.text.print import print_func
from intarsia_loops.loops import default_loops
from intarsia_loops.tensors import stages_of
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size
from intarsia_testkit.expressions import apply


def text_of(rows: Size, operator: str = "sum") -> str:
    """The kernel that reduces the rows of ``[rows, 64]``."""
    x = Var("x", TensorType((rows, 64), DType.FLOAT32))
    body = apply(operator, x, axes=(0,))
    return print_func(default_loops("kernel", stages_of(Function((x,), body))))


def test_a_long_sum_is_one_of_blocks() -> None:
    assert text_of(140).splitlines()[4:] == [
        "  for block in serial(4):",
        "    part: float32[64] register",
        "    for lane_1 in vectorized(64):",
        "      part[lane_1] = 0.0",
        "    for k0 in serial(32):",
        "      for lane_2 in vectorized(64):",
        "        part[lane_2] = p0[(block * 32) + k0, lane_2] + part[lane_2]",
        "    for lane_3 in vectorized(64):",
        "      total[lane_3] = part[lane_3] + total[lane_3]",
        "  for k0_1 in serial(12):",
        "    for lane_4 in vectorized(64):",
        "      total[lane_4] = p0[k0_1 + 128, lane_4] + total[lane_4]",
        "  for lane_5 in vectorized(64):",
        "    out0[lane_5] = total[lane_5]",
    ]


@pytest.mark.parametrize(
    ("rows", "operator", "is_split"),
    [
        (64, "sum", False),
        (128, "sum", True),
        (variable("N"), "mean", True),
        (4096, "max", False),
    ],
)
def test_which_reductions_are_split(rows: Size, operator: str, is_split: bool) -> None:
    assert ("block" in text_of(rows, operator)) == is_split
