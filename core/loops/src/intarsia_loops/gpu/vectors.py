# SPDX-License-Identifier: Apache-2.0
"""Element-wise kernels on 16 bytes at a time, for operands with the layout of the result."""

from __future__ import annotations

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.build import allocate, load, seq, store, unrolled
from intarsia_ir.tir.expr import IfThenElse, Load, PrimExpr, TirVar
from intarsia_ir.tir.stmt import Invoke, Stmt
from intarsia_ir.tir.walk import post_order, rewrite, substitute, variables

from .traits import GridTraits

VECTOR = 16
"""Bytes that a thread moves in one instruction."""


class VectorStage(Struct, frozen=True):
    """Element-wise work on 16 bytes at a time.

    Attributes:
        target: Where elements go.
        value: An element.
        last: Variable of the innermost dimension.
        lanes: Elements of 16 bytes of the widest type.
        wide: Loads that move whole vectors.
    """

    target: Buffer
    value: PrimExpr
    last: TirVar
    lanes: int
    wide: tuple[Load, ...]

    @staticmethod
    def of(target: Buffer, value: PrimExpr, last: TirVar) -> VectorStage | None:
        """Return the plan; ``None`` if the elements do not lie side by side."""
        nodes = tuple(post_order(value))
        found = [node for node in nodes if isinstance(node, Load)]
        if any(isinstance(node, IfThenElse) for node in nodes):
            return None  # what it guards may lie outside of the buffer
        lanes = VECTOR // max(node.dtype.bytes for node in (target, *found))
        if (
            lanes < 2
            or target.shape[-1] % lanes
            or any(node.dtype.bytes != target.dtype.bytes for node in found)
        ):
            return None
        wide = tuple(node for node in found if _side_by_side(node, last, lanes))
        scattered = [
            node
            for node in found
            if node not in wide and any(last in variables(at) for at in node.indices)
        ]
        return None if scattered or not wide else VectorStage(target, value, last, lanes, wide)

    def body(self, place: tuple[PrimExpr, ...], traits: GridTraits) -> Stmt:
        """Return what the thread does that starts at ``place``."""
        own = {
            node: Buffer(f"in{n}", (self.lanes,), node.dtype, MemoryScope.REGISTER)
            for n, node in enumerate(self.wide)
        }
        result = Buffer("result", (self.lanes,), self.target.dtype, MemoryScope.REGISTER)
        moved = [
            Invoke(traits.kind, traits.load_16, (load(buffer, 0), node))
            for node, buffer in own.items()
        ]

        def lane(at: PrimExpr) -> Stmt:
            value = rewrite(self.value, _keep, {n: load(b, at) for n, b in own.items()})
            return store(result, (at,), substitute(value, {self.last: self.last + at}))

        elements = (load(self.target, *place), load(result, 0))
        out = Invoke(traits.kind, traits.store_16, elements)
        parts = seq(*moved, unrolled(self.lanes, lane, "v"), out)
        return allocate([*own.values(), result], parts)


def _side_by_side(node: Load, last: TirVar, lanes: int) -> bool:
    if not node.indices or node.indices[-1] is not last or node.buffer.shape[-1] % lanes:
        return False
    return not any(last in variables(at) for at in node.indices[:-1])


def _keep(_node: PrimExpr) -> PrimExpr | None:
    return None
