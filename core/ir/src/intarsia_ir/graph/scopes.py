# SPDX-License-Identifier: Apache-2.0
"""Scopes: which values belong to a branch of an :class:`If` or the body of a :class:`Let` alone."""

from __future__ import annotations

from .expr import Expr, If, Let
from .walk import children, post_order


class ExprScope:
    """The function's body, one branch of an ``If``, or the body of a ``Let``.

    Attributes:
        parent: The scope around; ``None`` for the function's body.
        owner: The ``If`` or ``Let``.
        slot: ``then``, ``else`` or ``body``.
        depth: How many scopes are around.
    """

    __slots__ = ("_jump", "depth", "owner", "parent", "slot")

    def __init__(
        self, parent: ExprScope | None = None, owner: Expr | None = None, slot: str = ""
    ) -> None:
        self.parent = parent
        self.owner = owner
        self.slot = slot
        self.depth = 0
        self._jump: ExprScope = self
        if parent is not None:
            self.depth = parent.depth + 1
            far = parent._jump
            even = parent.depth - far.depth == far.depth - far._jump.depth
            self._jump = far._jump if even else parent

    def common(self, other: ExprScope) -> ExprScope:
        """Return the innermost scope that holds both, in logarithmic time."""
        a: ExprScope = self
        b: ExprScope = other
        while a.depth != b.depth:
            if a.depth < b.depth:
                a, b = b, a
            a = a._jump if a._jump.depth >= b.depth else a._outer()
        while a is not b:
            if a._jump is not b._jump:
                a, b = a._jump, b._jump
            else:
                a, b = a._outer(), b._outer()
        return a

    def _outer(self) -> ExprScope:
        return self if self.parent is None else self.parent


def scopes(body: Expr) -> dict[Expr, ExprScope]:
    """Return the innermost scope of each node below ``body`` that holds all its users."""
    order = list(post_order(body))
    found: dict[Expr, ExprScope] = {body: ExprScope()}
    for node in reversed(order):
        here = found[node]
        inner: dict[int, ExprScope] = {}
        if isinstance(node, If):
            inner = {1: ExprScope(here, node, "then"), 2: ExprScope(here, node, "else")}
        elif isinstance(node, Let):
            inside = ExprScope(here, node, "body")
            inner = {0: inside, 2: inside}
        for slot, child in enumerate(children(node)):
            scope = inner.get(slot, here)
            known = found.get(child)
            found[child] = scope if known is None else known.common(scope)
    return found
