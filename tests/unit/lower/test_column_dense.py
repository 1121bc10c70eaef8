# SPDX-License-Identifier: Apache-2.0
"""Products with a constant on the left: output channels fill the vectors, not pixels."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Constant, Expr, Function, tensor_type
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.nn import Matmul
from intarsia_loops.cpu import column_dense
from intarsia_loops.cpu.column_dense import suits_column_dense
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.table import Schedules
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

from .conftest import carry_out, lower, make_target
from .test_products import tiling_of, transpose_registers

WIDE = CpuTiling(lanes=16, rows=14, transpose_registers=transpose_registers)
NARROW = CpuTiling(lanes=8, rows=6, transpose_registers=transpose_registers)


def _changed(function: Function) -> Function:
    return use_channels_last(function, CpuTiling(4, 4, transpose_registers=transpose_registers))


def _agree(body: Expr) -> None:
    """Compare what the loops compute with the reference."""
    function = function_of(body)
    changed, table = _changed(function), Schedules(tiling_of).table()
    found = {name.replace(".", "__"): schedule for name, schedule in table.items()}
    arrays = [fresh(*tensor_type(p).static_shape, seed=n) for n, p in enumerate(function.params)]
    lowered = lower(changed, (), target=make_target(**found))
    assert "cpu.column_dense" in [node.name for node in calls(changed)]
    (got,) = carry_out(lowered, arrays, compiled=True)
    (want,) = expected(function, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    (same,) = expected(changed, arrays)
    np.testing.assert_allclose(same, want, rtol=1e-4, atol=1e-4)


def _product(a: Constant, *shape: int, **attrs: bool) -> Expr:
    return apply("matmul", a, var("x", *shape), **attrs)


@pytest.mark.parametrize("pixels", [2, 5, 9, 13])
@pytest.mark.parametrize("outputs", [8, 11, 20])
def test_tiles_are_transposed_when_they_are_stored(outputs: int, pixels: int) -> None:
    _agree(_product(weight(outputs, 64), 64, pixels))


@pytest.mark.parametrize("outer", [(1,), (3,), (2, 2)])
def test_several_images(outer: tuple[int, ...]) -> None:
    _agree(_product(weight(12, 48), *outer, 48, 9))


def test_the_constant_may_be_transposed() -> None:
    _agree(_product(weight(48, 12), 2, 48, 9, transpose_a=True))


def test_pixels_are_copied_where_rows_lie_a_page_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_dense, "_PAGE_BYTES", 32)
    _agree(_product(weight(48, 48), 2, 48, 9))


def test_what_follows_is_computed_on_pixels() -> None:
    product = _product(weight(12, 48), 2, 48, 9)
    body = apply("add", apply("add", product, weight(12, 1)), var("y", 2, 12, 9))
    _agree(apply("nn.relu", body))


@pytest.mark.parametrize(
    ("sizes", "tiling", "gains"),
    [
        ((256, 1024, 196), WIDE, True),  # rows of the constant in one set of a cache
        ((256, 1024, 196), NARROW, False),  # a tile of 6 rows, which a set holds
        ((128, 1024, 1024), WIDE, True),
        ((64, 1024, 1024), WIDE, False),  # the copy of pixels costs more
        ((128, 512, 1089), WIDE, False),
        ((96, 576, 196), WIDE, True),  # 12.25 vectors of pixels
        ((576, 96, 196), WIDE, False),  # transposes cost what vectors save
        ((256, 512, 784), WIDE, False),  # 49 vectors
        ((256, 256, 9), WIDE, True),
        ((256, 256, 9), NARROW, True),
        ((3, 256, 9), WIDE, False),  # outputs fill vectors less than pixels do
    ],
)
def test_pixels_that_fill_their_vectors_are_columns(
    sizes: tuple[int, int, int], tiling: CpuTiling, *, gains: bool
) -> None:
    outputs, depth, pixels = sizes
    (node,) = calls(function_of(_product(weight(outputs, depth), 1, depth, pixels)))
    assert isinstance(node.attrs, Matmul.Attrs)
    assert suits_column_dense(node, node.attrs, tiling) is gains


@pytest.mark.parametrize(
    "body",
    [
        apply("matmul", var("a", 12, 48), var("x", 48, 9)),
        apply("matmul", weight(2, 12, 48), var("x", 2, 48, 9)),
        apply("matmul", weight(12, 48), var("x", 9, 48), transpose_b=True),
        apply("matmul", weight(12, 48), var("x", 0, 48, 9)),
    ],
    ids=["run time", "several", "transposed", "no image"],
)
def test_others_are_left(body: Expr) -> None:
    names = [node.name for node in calls(_changed(function_of(body)))]
    assert "cpu.column_dense" not in names
