# SPDX-License-Identifier: Apache-2.0
"""Combinations that random graphs of open sizes found wrong or refused, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import intarsia
from intarsia_runtime.errors import IntarsiaError

from .test_onnx_counted import check

HEAD = '<ir_version: 10, opset_import: ["": 20]> g '


def parsed(text: str) -> bytes:
    return parser.parse_model(HEAD + text).SerializeToString()


def test_the_depth_of_categories_is_a_count_of_the_run() -> None:
    made = parsed(
        """(float[n] x) => (float[p] u, float[q, r] y)
        <float[2] v = {0, 1}, int64[1] one = {1}> {
          u, i, j, c = Unique <sorted = 1> (x)
          m = Max (c, one)
          d = ReduceMax <keepdims = 1> (m)
          y = OneHot <axis = -1> (c, d, v)
        }"""
    )
    rows = ([1, 1, 2], [5], [3, 1, 3, 3, 2, 1], [4, 4])
    check(made, *({"x": np.array(row, np.float32)} for row in rows))


@pytest.mark.parametrize(
    ("kind", "depth_kind"), [("int64", "int64"), ("int32", "int32"), ("int32", "float")]
)
def test_the_depth_of_categories_is_an_input(kind: str, depth_kind: str) -> None:
    made = parsed(
        f"""({kind}[n] x, {depth_kind}[1] d, float[2] v) => (float[r, n] y)
        {{ y = OneHot <axis = 0> (x, d, v) }}"""
    )
    dtype = np.float32 if depth_kind == "float" else np.dtype(depth_kind)
    x, v = np.array([0, 1, -1, 7, -9], np.dtype(kind)), np.array([3, 5], np.float32)
    check(made, *({"x": x, "d": np.array([depth], dtype), "v": v} for depth in (1, 2, 8)))
    nothing = {"x": x, "d": np.array([0], dtype), "v": v}
    executable = intarsia.build(made, "llvm").load(threads=1)
    with executable, pytest.raises(IntarsiaError, match="depth of OneHot must be positive"):
        executable.run(nothing)
