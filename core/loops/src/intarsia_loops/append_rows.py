# SPDX-License-Identifier: Apache-2.0
"""The kernel that appends rows to a value which a loop hands on, where it lies."""

from __future__ import annotations

from math import prod

import numpy as np

from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import TensorType, Type
from intarsia_ir.ops.type_rules import operands
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.build import load, seq, serial, store
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Stmt
from intarsia_ir.tir.tensor import extents

from .fuse import KernelCall


@operator("append_rows", OpKind.OPAQUE)
class AppendRows(Op):
    """A value with rows behind those that it has, and room behind these.

    Operands are the value ``[..., room, ...]``, whether a room of the loop must grow (bool
    ``[1]``), and the parts. Plans keep the value where it is: the kernel writes the parts alone.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension, before which all have size 1; ``start``: the rows that are
        there; ``room``: those of the result.
        """

        axis: int
        start: int
        room: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The value with other room."""
        x, _, *_ = operands(cls.name, types, 3, max(3, len(types)))
        shape = list(x.shape)
        shape[attrs.axis] = attrs.room
        return x.with_shape(shape)

    @staticmethod
    def reference(
        attrs: Attrs, x: np.ndarray, _grows: np.ndarray, *parts: np.ndarray
    ) -> np.ndarray:
        """Rows, parts, and zeros."""
        axis = attrs.axis
        rows = np.concatenate([np.take(x, range(attrs.start), axis), *parts], axis)
        shape = list(rows.shape)
        shape[axis] = attrs.room - shape[axis]
        return np.concatenate([rows, np.zeros(shape, x.dtype)], axis)

    @staticmethod
    def loops(attrs: Attrs, x: TensorType, grows: TensorType, *parts: TensorType) -> PrimFunc:
        """Copy the parts, each one contiguous, behind the rows that are there."""
        inner = prod(extents(x.shape[attrs.axis + 1 :]))
        given = [
            Buffer(f"p{number}", (prod(extents(type_.shape)),), type_.dtype)
            for number, type_ in enumerate((x, grows, *parts))
        ]
        made = Buffer("rows", (attrs.room * inner,), x.dtype)
        copies: list[Stmt] = []
        start = attrs.start * inner
        for part in given[2:]:

            def copied(at: PrimExpr, part: Buffer = part, start: int = start) -> Stmt:
                return store(made, (at + start,), load(part, at))

            copies.append(serial(part.shape[0], copied, "at"))
            start += part.shape[0]
        return PrimFunc("append_rows", (*given, made), 1, seq(*copies))


def appends_rows(item: object) -> bool:
    """Whether a kernel appends rows to a value that a loop hands on."""
    anchor = item.group.anchor if isinstance(item, KernelCall) else None
    return anchor is not None and anchor.op is AppendRows
