# SPDX-License-Identifier: Apache-2.0
"""Which calls become one kernel."""

from __future__ import annotations

import pytest

from intarsia_ir.graph.expr import Function, Var
from intarsia_ir.graph.types import Size, TensorType, variable
from intarsia_loops.fuse import KernelCall, fuse
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply

TAKEN = "cast_nn_relu_take"


@pytest.mark.parametrize(
    ("shape", "axis", "names"),
    [
        ((64, 32), 1, ["cast_nn_relu", "take"]),
        ((variable("n"), 32), 1, ["cast_nn_relu", "take"]),
        ((64, 32), 0, [TAKEN]),  # the same index for a whole row
        ((2, 32), 1, [TAKEN]),
    ],
    ids=["many rows", "open rows", "along columns", "two rows"],
)
def test_indices_of_a_gather_along_many_rows_are_computed_once(
    shape: tuple[Size, ...], axis: int, names: list[str]
) -> None:
    x = Var("x", TensorType(shape, DType.FLOAT32))
    places = Var("places", TensorType((50,), DType.FLOAT64))
    index = apply("nn.relu", apply("cast", places, dtype=DType.INT64))
    found = fuse(Function((x, places), apply("take", x, index, axis=axis))).items
    assert [item.group.name for item in found if isinstance(item, KernelCall)] == names
