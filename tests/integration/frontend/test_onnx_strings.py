# SPDX-License-Identifier: Apache-2.0
"""Strings, which steps on the host take, beside compiled pieces, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import intarsia

DURATIONS = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2]>
durations (string[N] phones, int64[N] counts, float[N] seconds) => (float[M] y)
<int64[1] one = {1}> {
    number = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_int64s = [2, 0]>(phones)
    sizes = Shape(phones)
    row = Expand(seconds, one)
    sum = ReduceSum(row)
    long = Expand(sum, sizes)
    real = Cast<to = 1>(number)
    scaled = Mul(real, long)
    all = Cast<to = 1>(counts)
    weighed = Mul(all, seconds)
    y = Concat<axis = 0>(scaled, weighed)
}
"""


def test_string_inputs_have_sizes_of_their_own() -> None:
    """A file says ``N`` of phones and of notes; ONNX Runtime takes another number of each."""
    data = parser.parse_model(DURATIONS).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.enable_mem_reuse = False  # it takes sizes of one name for equal, too
    session = onnxruntime.InferenceSession(data, options)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        for phones, notes in [(1, 1), (5, 2), (3, 7)]:
            given = {
                "phones": np.array(list("abcdefg"[:phones]), object),
                "counts": np.arange(notes),
                "seconds": np.linspace(0.5, 1.5, notes, dtype=np.float32),
            }
            (want,) = session.run(None, given)
            np.testing.assert_allclose(executable.run(given)["y"], want, rtol=1e-6)


TABLES = """
<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 2]>
tables (string[N] words, float[N] x) => (float[N] y)
{
    of_words = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_floats = [1.5, 2.5]>(words)
    of_numbers = ai.onnx.ml.LabelEncoder<keys_floats = [1.0, 2.0], values_floats = [7.0, 9.0]>(x)
    y = Add(of_words, of_numbers)
}
"""


@pytest.mark.parametrize("rows", [["ab", "ba"], ["a", "bbz", ""]])
def test_tables_of_several_nodes_are_kept_apart_from_run_to_run(rows: Sequence[str]) -> None:
    data = parser.parse_model(TABLES).SerializeToString()
    session = onnxruntime.InferenceSession(data)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        for row in rows:
            words = np.array(list(row), object)
            given = {"words": words, "x": np.arange(len(row), dtype=np.float32)}
            (want,) = session.run(None, given)
            np.testing.assert_array_equal(executable.run(given)["y"], want)
