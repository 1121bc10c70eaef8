# SPDX-License-Identifier: Apache-2.0
"""Sizes that a model computes: elements of integer tensors that become size variables."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import COMPUTED
from intarsia_ir.graph.op import OpAttrs
from intarsia_ir.graph.size_scopes import defined_sizes, sizes_in
from intarsia_ir.graph.types import Dim, Size, variable
from intarsia_ir.graph.walk import children


class Hole(Struct, frozen=True):
    """An element of an integer tensor that is not known while a model is read."""

    expr: Expr
    index: int


Partial: TypeAlias = "Size | Hole"
"""An element of a tensor that may be a size."""


class RunSizes:
    """The size variables that calls of one model define.

    Attributes:
        names: Of all variables that were made.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._variables: dict[Hole, Dim] = {}
        self._definers: dict[str, Expr] = {}
        self._carried: dict[Expr, frozenset[str]] = {}
        self._depth = 0
        self._optional = 0
        self._depths: dict[str, int] = {}

    @property
    def definers(self) -> set[Expr]:
        """The calls that define variables here, not in branches that were imported apart."""
        names = self._definers.items()
        return {definer for name, definer in names if self._depths[name] <= self._depth}

    @property
    def definitions(self) -> Mapping[str, Expr]:
        """The call that defines each variable."""
        return self._definers

    @property
    def is_apart(self) -> bool:
        """Whether a branch is imported that may not be taken."""
        return self._optional > 0

    def known(self, hole: Hole) -> Dim | None:
        """Return the variable of an element that has one."""
        return self._variables.get(hole)

    def new_name(self, base: str) -> Dim:
        """Return a variable that nothing else has."""
        made = variable(f"{base}{COMPUTED}{len(self.names)}")
        self.names.add(made.name)
        return made

    def define(self, hole: Hole, size: Dim, definer: Expr) -> None:
        """Note that a call makes an element a size variable."""
        self._variables[hole] = size
        self.define_result(size, definer)

    def define_result(self, size: Dim, definer: Expr) -> None:
        """Note that a size variable is the value of a result of control flow."""
        self._definers[size.name] = definer
        self._depths[size.name] = self._depth

    @contextmanager
    def apart(self, *, is_optional: bool = True) -> Generator[None]:
        """Forget at the end which elements got a variable meanwhile: a branch defines its own.

        Args:
            is_optional: Whether what the branch requires of sizes need not hold for the model.
        """
        before = dict(self._variables)
        self._depth += 1
        self._optional += is_optional
        try:
            yield
        finally:
            self._variables = before
            self._depth -= 1
            self._optional -= is_optional

    def missing(self, attrs: OpAttrs, operands: Iterable[Expr]) -> list[Expr]:
        """Return the calls that define sizes of attributes and that no operand depends on."""
        if not self._definers:
            return []
        wanted = self._definers.keys() & set(sizes_in(attrs))
        for operand in operands if wanted else ():
            wanted -= self._sizes_behind(operand)
        return [self._definers[name] for name in self._definers if name in wanted]

    def _sizes_behind(self, root: Expr) -> frozenset[str]:
        """Return the variables that a value depends on the definitions of."""
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in self._carried:
                continue
            if not ready:
                stack.append((node, True))
                stack += [(c, False) for c in children(node) if c not in self._carried]
                continue
            found = frozenset(defined_sizes(node))
            for child in children(node):
                found = found if self._carried[child] <= found else found | self._carried[child]
            self._carried[node] = found
        return self._carried[root]
