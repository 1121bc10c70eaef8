# SPDX-License-Identifier: Apache-2.0
"""Which transposes are kernels of their own."""

from __future__ import annotations

import pytest

from intarsia_ir.graph.expr import Expr, Function, Var
from intarsia_ir.graph.types import TensorType, variable
from intarsia_loops.fuse import KernelCall, fuse
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size
from intarsia_testkit.expressions import apply


def kernels(body: Expr, *params: Var, apart: bool = True) -> list[str]:
    """The names of the kernels of a function."""
    items = fuse(Function(params, body), matrices_apart=apart).items
    return [item.group.name for item in items if isinstance(item, KernelCall)]


def var(*shape: Size) -> Var:
    """A parameter."""
    return Var("x", TensorType(shape, DType.FLOAT32))


N = variable("N")
LAST = (0, 2, 3, 1)


@pytest.mark.parametrize("x", [var(1, 64, 32, 32), var(N, 64, 32, 32), var(1, 64, N, 32)])
def test_large_matrices_are_transposed_alone(x: Var) -> None:
    body = apply("exp", apply("transpose", apply("tanh", x), axes=LAST))
    assert kernels(body, x) == ["tanh", "transpose", "exp"]
    assert kernels(body, x, apart=False) == ["tanh_transpose_exp"]


@pytest.mark.parametrize(
    ("x", "axes"),
    [
        (var(1, 64, 8, 8), LAST),  # in the first-level cache
        (var(1, 3, 256, 256), LAST),  # of three rows
        (var(2, 8, 64, 64), (0, 2, 1, 3)),  # rows stay whole
    ],
)
def test_other_transposes_join_their_neighbors(x: Var, axes: tuple[int, ...]) -> None:
    body = apply("exp", apply("transpose", apply("tanh", x), axes=axes))
    assert kernels(body, x) == ["tanh_transpose_exp"]


def test_a_part_of_a_transposed_matrix_is_read_where_it_is() -> None:
    x = var(64, 1024)
    moved = apply("transpose", x, axes=(1, 0))
    body = apply("strided_slice", moved, begin=(0, 0), end=(8, 64), strides=(1, 1))
    assert kernels(body, x) == ["transpose_strided_slice"]
