# SPDX-License-Identifier: Apache-2.0
"""Subnormal weights are 0 where they are multiplied; other constants keep them."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.text import parse_module
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops import OPERATORS
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.flush_subnormals import FLUSH_SUBNORMALS

WEIGHT = 'const "w": Tensor[(300, 300), float32]'
TWICE = f"%0 = matmul(%x, {WEIGHT});\nmatmul(%0, {WEIGHT})"


def module(body: str, weight: np.ndarray) -> IRModule:
    text = f"def @main(%x: Tensor[(2, 300), float32]) -> Tensor[(2, 300), float32] {{\n{body}\n}}\n"
    return parse_module(text, operators=OPERATORS, params={"w": weight})


def weights() -> np.ndarray:
    values = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
    values[::2, 5] = 0
    return values


def constants(found: IRModule) -> list[Constant]:
    return [arg for node in calls(found.main) for arg in node.args if isinstance(arg, Constant)]


@pytest.mark.parametrize("place", [(0, 0), (150, 7), (299, 299)])
@pytest.mark.parametrize("value", [1e-40, -1e-45])
def test_weights_of_products_become_zero(place: tuple[int, int], value: float) -> None:
    given = weights()
    want = given.copy()
    given[place], want[place] = value, 0
    after = FLUSH_SUBNORMALS.run(module(TWICE, given), Remarks())
    first, second = constants(after)
    assert first is second  # a weight that two products share stays one
    np.testing.assert_array_equal(first.data, want)
    assert first.name == "w"


def test_without_subnormal_weights_nothing_changes() -> None:
    given = weights()
    given[1, 1], given[2, 2] = np.finfo(np.float32).tiny, np.nan
    before = module(TWICE, given)
    assert FLUSH_SUBNORMALS.run(before, Remarks()) is before


def test_other_constants_keep_subnormal_numbers() -> None:
    before = module('add(%x, const "w": Tensor[(300,), float32])', np.full(300, 1e-40, np.float32))
    assert FLUSH_SUBNORMALS.run(before, Remarks()) is before


def test_weights_of_no_elements_stay() -> None:
    text = "def @main(%x: Tensor[(2, 0), float32]) -> Tensor[(2, 3), float32] {\n"
    text += 'matmul(%x, const "w": Tensor[(0, 3), float32])\n}\n'
    before = parse_module(text, operators=OPERATORS, params={"w": np.zeros((0, 3), np.float32)})
    assert FLUSH_SUBNORMALS.run(before, Remarks()) is before
