# SPDX-License-Identifier: Apache-2.0
"""Slices whose limits are sizes that may come out below zero: these are counted from the end."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import intarsia

TEXT = """<ir_version: 10, opset_import: ["": 20]>
limits (float[{rows}, 2] x, float[n] z) => (float[k, 2] y)
<int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] last = {{1000}}, int64[1] minus = {{-1}}> {{
  s = Shape (z)
  half = Div (s, two)
  limit = Sub (half, two)
  y = Slice ({operands})
}}"""

OPERANDS = (
    "x, zero, limit",
    "x, limit, two",
    "x, limit, last",
    "x, zero, limit, zero, two",
    "x, limit, limit",
    "x, two, limit, zero, minus",
)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("rows", ["3", "m"])
@pytest.mark.parametrize("operands", OPERANDS)
def test_limits_below_zero_are_counted_from_the_end(target: str, rows: str, operands: str) -> None:
    proto = parser.parse_model(TEXT.format(rows=rows, operands=operands)).SerializeToString()
    session = ort.InferenceSession(proto)
    with intarsia.build(proto, target).load(threads=1) as executable:
        for count, size in ((3, 0), (3, 1), (3, 3), (3, 4), (3, 9), (3, 16), (1, 2), (0, 1)):
            if rows == "3" and count != 3:
                continue
            x = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
            feeds = {"x": x, "z": np.zeros(size, np.float32)}
            (wanted,) = session.run(None, feeds)
            (found,) = executable.run(feeds).values()
            np.testing.assert_array_equal(found, wanted)


def test_a_slice_up_to_one_below_its_own_size_has_no_other_size() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]>
    limits (float[n, 2] x) => (float[k, 2] y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] five = {5}> {
      s = Shape <start = 0, end = 1> (x)
      limit = Sub (s, one)
      shorter = Slice (x, zero, limit)
      other = Slice (x, one, s)
      sum = Add (shorter, other)
      below = Sub (s, five)
      tail = Slice (x, zero, below)
      y = Concat <axis = 0> (sum, tail)
    }"""
    proto = parser.parse_model(text).SerializeToString()
    session = ort.InferenceSession(proto)
    with intarsia.build(proto, "llvm").load(threads=1) as executable:
        for count in (0, 1, 2, 3, 4, 5, 9):
            feeds = {"x": np.arange(2 * count, dtype=np.float32).reshape(count, 2)}
            (wanted,) = session.run(None, feeds)
            (found,) = executable.run(feeds).values()
            np.testing.assert_array_equal(found, wanted)
