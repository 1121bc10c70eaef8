# SPDX-License-Identifier: Apache-2.0
"""From a fused group to the buffers of its anchor and its epilogue."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from intarsia_ir.graph.op import OpAttrs
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_ir.tir.stmt import Stmt

from ..epilogue import Epilogue, epilogue
from .loops import store

A = TypeVar("A", bound=OpAttrs)


class GroupOperands(Struct, frozen=True):
    """What a schedule starts from.

    Attributes:
        group: The fused group.
        fused: Its buffers and epilogue.
        args: Buffers of the anchor's arguments, all of which are given.
    """

    group: FusedGroup
    fused: Epilogue
    args: tuple[Buffer, ...]

    def epilogue(self, value: PrimExpr, indices: tuple[PrimExpr, ...]) -> Stmt:
        """Store an element of the anchor's result after what is fused behind it."""
        return store(self.fused.output, indices, self.fused.apply(value, indices))

    def function(self, body: Stmt) -> PrimFunc:
        """Return the kernel."""
        return PrimFunc(self.group.name, self.fused.buffers, self.fused.outputs, body)


def operands(group: FusedGroup) -> GroupOperands | None:
    """Return the operands; ``None`` if the group computes one of them itself."""
    fused = epilogue(group)
    args = tuple(arg for arg in fused.anchor_args if arg is not None)
    return GroupOperands(group, fused, args) if len(args) == len(fused.anchor_args) else None


def anchored(group: FusedGroup, kind: type[A]) -> tuple[GroupOperands, A] | None:
    """Return the operands and the anchor's attributes.

    ``None`` if the attributes are of another kind, or the group computes an operand itself.
    """
    anchor = operands(group)
    if anchor is None or group.anchor is None or not isinstance(group.anchor.attrs, kind):
        return None
    return anchor, group.anchor.attrs
