# SPDX-License-Identifier: Apache-2.0
"""Patterns of expressions, written as such: ``op("add", op("nn.conv", ANY, CONST), ANY)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .expr import Call, Constant, Expr
from .op import OpAttrs
from .types import Type


@dataclass(frozen=True, slots=True)
class Wildcard:
    """Matches any value, which becomes an input of the match.

    Attributes:
        name: Key of the value in ``Match.bound``; empty for an anonymous one.
        constant: Match constants only.
    """

    name: str = ""
    constant: bool = False


@dataclass(frozen=True, slots=True)
class OpPattern:
    """Matches a call of ``op`` whose arguments match ``args``.

    Attributes:
        op: Operator name.
        args: One pattern for each argument; ``None`` accepts any number of any arguments.
        where: Further condition on the call, e.g. on its attributes.
        commutative: Try both orders of two arguments, as is done of operators that say so.
    """

    op: str
    args: tuple[Pattern, ...] | None = None
    where: Callable[[Call], bool] | None = None
    commutative: bool = False


@dataclass(frozen=True, slots=True)
class Optional:
    """Matches ``outer`` around ``inner`` if it is there, else ``inner`` alone.

    ``outer`` is a function from a pattern to a pattern, so that the same inner match is shared.
    """

    inner: Pattern
    outer: Callable[[Pattern], Pattern]


Pattern: TypeAlias = Wildcard | OpPattern | Optional

ANY = Wildcard()
CONST = Wildcard(constant=True)


def op(name: str, *args: Pattern, where: Callable[[Call], bool] | None = None) -> OpPattern:
    """Match a call of the operator ``name``; without ``args``, whatever its arguments."""
    return OpPattern(name, args or None, where)


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Where a pattern matched.

    Attributes:
        root: The call that gives the result.
        calls: All calls inside, operands before users; all but ``root`` are used inside only.
        inputs: Values from outside, in order of first use; constants included.
        bound: Values of the named wildcards.
    """

    root: Call
    calls: tuple[Call, ...]
    inputs: tuple[Expr, ...]
    bound: Mapping[str, Expr]

    @property
    def attrs(self) -> OpAttrs:
        """Attributes of the root."""
        return self.root.attrs

    @property
    def types(self) -> tuple[Type, ...]:
        """Types of the root's arguments."""
        return tuple(arg.type for arg in self.root.args)

    def is_constant(self, index: int) -> bool:
        """Whether argument ``index`` of the root is known at compile time."""
        return isinstance(self.root.args[index], Constant)
