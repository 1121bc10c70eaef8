# SPDX-License-Identifier: Apache-2.0
"""The list of single operators, the models made of it, and the page of their audit."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from tests.bench.audit import Row, mean, page_text, read_rows
from tests.bench.shapes import MAKERS, read_shapes

ROWS = """all,Net,softmax 1x8,1.5,2.0,inf
all,Net,conv 1x3x4x4 o=2 k=1x1,3.0,4.0,2.0
"""


def test_the_list_has_300_shapes_and_no_line_twice() -> None:
    shapes = read_shapes()
    assert len({shape.name for shape in shapes}) == len(shapes) >= 300
    assert {shape.op for shape in shapes} == set(MAKERS)


@pytest.mark.parametrize("op", MAKERS)
def test_the_first_line_of_an_operator_is_a_model(op: str, tmp_path: Path) -> None:
    shape = min((s for s in read_shapes() if s.op == op), key=lambda s: sum(s.data))
    inputs = shape.save(tmp_path / "one.onnx")
    model = onnx.load(tmp_path / "one.onnx")
    assert [value.name for value in model.graph.input] == list(inputs)
    whole = onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True)
    assert whole.graph.output[0].type.tensor_type.elem_type


def test_the_page_has_means_and_what_is_slow(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    rows = read_rows(path)
    assert [row.ratio for row in rows] == [0.75, 1.5]
    assert mean(rows) == pytest.approx(1.125**0.5)
    text = page_text([path])
    assert "| all | 2 | 1.06 | 1 | 1 | 1.50 |" in text
    slow, others = text.split("All others")
    assert "| all | Net | `conv 1x3x4x4 o=2 k=1x1` | 3.0 | 4.0 | 2.0 | 1.50 |" in slow
    assert "| all | Net | `softmax 1x8` | 1.5 | 2.0 |  | 0.75 |" in others


def test_a_file_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "none.csv") == []
    assert Row("a", "b", "c", 1.0, 2.0, 4.0).ratio == 0.5
