# SPDX-License-Identifier: Apache-2.0
"""A loop over what another one collected, as tf2onnx writes two LSTMs, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
from tests.unit.frontend.test_onnx_sequences import imported, proto

import intarsia
from intarsia_ir.graph.verify import verify

LAYER = """
  {n}_steps = Shape <start = 0, end = 1> ({x})
  {n}_count = Squeeze ({n}_steps, zero)
  {n}_any = Less (none, {n}_count)
  {n}_wide = Shape <start = 1, end = 2> ({x})
  {n}_shape = Concat <axis = 0> ({n}_wide, width)
  {n}_start = Expand (half, {n}_shape)
  {n}_at, {n}_last, {n}_all = Loop ({n}_count, {n}_any, none, {n}_start) <body = {n} (
    int64 {n}_i, bool {n}_c, int64 {n}_number, float[a,b] {n}_h
  ) => (bool {n}_more, int64 {n}_next, float[a,b] {n}_new, float[a,b] {n}_row) {{
    {n}_part = Gather <axis = 0> ({x}, {n}_number)
    {n}_sum = Add ({n}_part, {n}_h)
    {n}_new = Tanh ({n}_sum)
    {n}_row = Identity ({n}_new)
    {n}_next = Add ({n}_number, one)
    {n}_fewer = Less ({n}_next, {n}_count)
    {n}_within = Less ({n}_i, {n}_count)
    {n}_more = And ({n}_fewer, {n}_within)
  }}>
"""


def test_the_second_loop_takes_the_size_that_the_first_defines() -> None:
    first, second = (LAYER.format(n=n, x=x) for n, x in (("a", "t"), ("b", "u")))
    text = f"""g (float[m,s,3] x) => (float[m,3] y) <
      int64[1] zero = {{0}}, int64 none = {{0}}, int64 one = {{1}}, float half = {{0.5}},
      int64[1] width = {{3}}
    > {{
      t = Transpose <perm = [1, 0, 2]> (x)
      {first}
      back = Transpose <perm = [1, 0, 2]> (a_all)
      u = Transpose <perm = [1, 0, 2]> (back)
      {second}
      y = Identity (b_last)
    }}"""
    made = proto(text)
    verify(imported(made))
    data = made.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    artifact = intarsia.build(data, "llvm")
    assert artifact.passport.executor["kind"] == "aot"
    with artifact.load(threads=1) as executable:
        for samples, steps in ((2, 5), (1, 1), (3, 8), (2, 4)):
            x = np.random.default_rng(steps).standard_normal((samples, steps, 3))
            given = {"x": x.astype(np.float32)}
            (wanted,) = session.run(None, given)
            (found,) = executable.run(given).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
