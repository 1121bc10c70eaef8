# SPDX-License-Identifier: Apache-2.0
"""Integer tensors of which some elements are known while a model is read, and others are not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.ops.compare import Equal, NotEqual, Where
from intarsia_ir.ops.indexing import Take
from intarsia_ir.ops.run_sizes import WithSizes
from intarsia_ir.ops.shape import BroadcastTo, Concatenate, Reshape, Transpose
from intarsia_ir.ops.slicing import StridedSlice
from intarsia_ir.ops.unary import Cast
from intarsia_runtime.size import Dim

from .run_sizes import Hole

BY_ELEMENT = (Equal, NotEqual, Where)
"""Operators on shapes of which an element may be known though others are not."""

_MOVES = (WithSizes, Concatenate, Reshape, Take, StridedSlice, Transpose, BroadcastTo)


def moves(node: Call) -> bool:
    """Whether an operator gives elements of its operands as they are."""
    if node.op is Cast:
        before, after = tensor_type(node.args[0]).dtype, tensor_type(node).dtype
        return before.is_integer and after.is_integer and before.bits <= after.bits
    return node.op in _MOVES or node.op in BY_ELEMENT


def by_element(node: Call, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Return the elements of a comparison or a choice; a hole for each that is not known."""
    shape = tensor_type(node).static_shape
    columns = [np.broadcast_to(array, shape).reshape(-1) for array in operands]
    made = [_element(node, index, items) for index, items in enumerate(zip(*columns, strict=True))]
    return np.array([*made, None], object)[:-1].reshape(shape)


def _element(node: Call, index: int, items: tuple[object, ...]) -> object:
    """Return an element of a comparison or a choice; a symbol is never -1."""
    match node.op is Where, items:
        case True, (Hole(), _, _):
            return Hole(node, index)
        case True, (condition, a, b):
            return a if condition else b
        case _, ((Hole(), _) | (_, Hole())):
            return Hole(node, index)
        case _, ((Dim(), other) | (other, Dim())) if other != -1 and items[0] != items[1]:
            return Hole(node, index)
        case _:
            return (items[0] == items[1]) is (node.op is Equal)
