# SPDX-License-Identifier: Apache-2.0
"""Typical values of symbolic dimensions, for decisions of schedules about speed.

Results never depend on them: the loops are correct for every size.
"""

from __future__ import annotations

from intarsia_ir.graph.expr import Call
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.typical import TYPICAL as TYPICAL
from intarsia_ir.graph.typical import typical as typical
from intarsia_ir.tir.tensor import extents as tensor_extents
from intarsia_runtime.size import Dim


def is_open(kind: TensorType) -> bool:
    """Whether a size is only known at run time."""
    return any(isinstance(size, Dim) for size in kind.shape)


def has_open_size(node: Call) -> bool:
    """Whether a size of a call, or of what it is given, is only known at run time."""
    kinds = (node.type, *(arg.type for arg in node.args))
    return any(isinstance(kind, TensorType) and is_open(kind) for kind in kinds)


def extents(kind: TensorType) -> tuple[int, ...]:
    """Return the shape for tensor expressions, where an expression stands for a number."""
    return tensor_extents(kind.shape)
