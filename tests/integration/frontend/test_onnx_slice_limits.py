# SPDX-License-Identifier: Apache-2.0
"""Slices whose limits are sizes that may come out below zero: these are counted from the end."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

import intarsia
from intarsia_ir.graph.guards import collecting_guards
from intarsia_onnx import from_onnx

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


LIMITS = (-(1 << 63), -100, -7, -4, -1, 0, 3, 4, (1 << 31) - 1, (1 << 63) - 1)


@pytest.mark.parametrize("rows", ["4", "n"])
@pytest.mark.parametrize("step", [-1, -2, 2])
def test_backward_slices_begin_at_the_first_element_at_the_earliest(rows: str, step: int) -> None:
    """NumPy takes nothing from before it; the greatest numbers mean the end in both directions."""
    text = f"""<ir_version: 10, opset_import: ["": 20]>
    limits (float[{rows}] x, int64[1] first, int64[1] last) => (float[k] y)
    <int64[1] zero = {{0}}, int64[1] step = {{{step}}}> {{
      y = Slice (x, first, last, zero, step)
    }}"""
    proto = parser.parse_model(text).SerializeToString()
    session = ort.InferenceSession(proto)
    with intarsia.build(proto, "llvm").load(threads=1) as executable:
        for first, last, size in itertools.product(LIMITS, LIMITS, (4,) if rows == "4" else (0, 4)):
            feeds = {"x": np.arange(size, dtype=np.float32)}
            feeds |= {"first": np.array([first]), "last": np.array([last])}
            (wanted,), (found,) = session.run(None, feeds), executable.run(feeds).values()
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("first", "last", "step"),
    [(-7, -100, -1), (-5, -100, -2), (0, (1 << 31) - 1, -1), (-1, -(1 << 63), -1)],
)
@pytest.mark.parametrize("rows", ["4", "n"])
def test_known_limits_of_backward_slices(rows: str, first: int, last: int, step: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["": 20]> limits (float[{rows}] x) => (float[k] y)
    <int64[1] first = {{{first}}}, int64[1] last = {{{last}}}, int64[1] zero = {{0}},
     int64[1] step = {{{step}}}> {{
      y = Slice (x, first, last, zero, step)
    }}"""
    proto = parser.parse_model(text).SerializeToString()
    session = ort.InferenceSession(proto)
    with intarsia.build(proto, "llvm").load(threads=1) as executable:
        for size in (4,) if rows == "4" else (0, 1, 4):
            feeds = {"x": np.arange(size, dtype=np.float32)}
            (wanted,), (found,) = session.run(None, feeds), executable.run(feeds).values()
            np.testing.assert_array_equal(found, wanted)


def test_a_reversal_of_an_open_size_has_that_size() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> turned (float[n] x) => (float[k] y)
    <int64[1] zero = {0}, int64[1] last = {-1}, int64[1] end = {-9223372036854775807}> {
      turned = Slice (x, last, end, zero, last)
      y = Add (x, turned)
    }"""
    with collecting_guards() as guards:
        main = from_onnx(parser.parse_model(text).SerializeToString()).main
    assert main.body.type.shape == main.params[0].type.shape
    assert not guards
