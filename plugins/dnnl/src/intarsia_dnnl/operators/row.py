# SPDX-License-Identifier: Apache-2.0
"""A row of the plugin's table: pattern, who says yes or no, and what it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from intarsia.dtype import DType
from intarsia.ir.expr import Constant, tensor_type
from intarsia.ir.pattern import Match, Pattern, op
from intarsia.ir.types import TensorType
from intarsia.partition.support import Code, Support

from ..draft import Draft

Lower: TypeAlias = "Callable[[Draft, Match], int]"

MAX_RANK = 6


class Row(Struct, frozen=True):
    """One pattern that the plugin knows.

    Attributes:
        name: Unique in the table.
        pattern: What it matches.
        supports: Whether a match is taken, beyond what :func:`check_tensors` asks of all.
        lower: Appends nodes for a match, returns the value of its result.
        constant: Arguments of the root that must be known at compile time.
        integers: Tensors of other types than float32 are taken, as far as ``supports`` says.
        limits: What ``supports`` asks for, in words for the table of what is taken.
        special: What the library makes of NaN and infinities where the definition gives something
            else; ``-special=exact`` refuses the row.
    """

    name: str
    pattern: Pattern
    supports: Callable[[Match], Support]
    lower: Lower
    constant: tuple[int, ...] = ()
    integers: bool = False
    limits: str = ""
    special: str = ""

    def exactly(self, match: Match) -> Support:
        """Say whether the plugin takes ``match`` if NaN and infinities must come out right."""
        verdict = self.predicate(match)
        if verdict and self.special and tensor_type(match.root).dtype is DType.FLOAT32:
            return Support.no(Code.UNSUPPORTED_OP, f"{self.special} (-special=exact)")
        return verdict

    def predicate(self, match: Match) -> Support:
        """Say whether the plugin takes ``match``; the support table's predicate."""
        verdict = check_tensors(match, integers=self.integers)
        if not verdict:
            return verdict
        for index in self.constant:
            if index < len(match.root.args) and not match.is_constant(index):
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE,
                    f"argument {index} of {match.root.name} must be known at compile time",
                )
        return self.supports(match)


class _Never(Struct, frozen=True):
    """An operator that is refused, always with the same reason."""

    reason: str

    def supports(self, _match: Match) -> Support:
        return Support.no(Code.UNSUPPORTED_OP, self.reason)

    def lower(self, _draft: Draft, match: Match) -> int:
        raise NotImplementedError(f"{match.root.name} is never taken: {self.reason}")


def never(name: str, reason: str) -> Row:
    """Return the row of an operator that is not taken, and why."""
    refusal = _Never(reason)
    limits = f"never: {reason}"
    return Row(name, op(name), refusal.supports, refusal.lower, integers=True, limits=limits)


def always(_match: Match) -> Support:
    """Take every match of tensors that the library accepts."""
    return Support.yes()


def check_tensors(match: Match, *, integers: bool = False) -> Support:
    """Refuse what no primitive takes: not fp32, or a symbolic, empty or high-rank shape."""
    for expr in (*match.inputs, *match.calls):
        if not isinstance(expr.type, TensorType):
            return Support.no(Code.UNSUPPORTED_OP, "tuples are not taken")
        if not integers and expr.type.dtype is not DType.FLOAT32:
            return Support.no(
                Code.UNSUPPORTED_DTYPE, f"only float32 is taken, not {expr.type.dtype}"
            )
        if not expr.type.is_static:
            return Support.no(Code.UNSUPPORTED_SHAPE, f"the shape of {expr.type} is not static")
        shape = expr.type.static_shape
        if 0 in shape:
            return Support.no(Code.UNSUPPORTED_SHAPE, f"{expr.type} has no elements")
        if not shape and not isinstance(expr, Constant):
            return Support.no(Code.UNSUPPORTED_SHAPE, "scalars computed at run time are not taken")
        if len(shape) > MAX_RANK:
            return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {len(shape)} is more than {MAX_RANK}")
    return Support.yes()
