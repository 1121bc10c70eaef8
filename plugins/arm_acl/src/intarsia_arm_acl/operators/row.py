# SPDX-License-Identifier: Apache-2.0
"""A row of the plugin's table: pattern, who says yes or no, and the functions it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from intarsia.dtype import DType
from intarsia.ir.expr import Call
from intarsia.ir.pattern import Match, Pattern
from intarsia.ir.types import TensorType
from intarsia.partition.support import Code, Support

from ..draft import Draft, Tensor

Verdict: TypeAlias = "Callable[[Match], Support]"
Lower: TypeAlias = "Callable[[Draft, Match], Tensor]"

MAX_RANK = 6
FLOATS = (DType.FLOAT32,)
BYTES = (DType.INT8, DType.UINT8)
PICKED = (*FLOATS, *BYTES)
"""Element types of what keeps the largest elements."""
MOVED = (*PICKED, DType.FLOAT16)
"""Element types of what moves elements and computes nothing."""

_NO_HALVES = (
    "float16 is not taken: the library computes in half precision only where it was built for "
    "Armv8.2, and here it only moves such elements"
)


def is_of_bytes(call: Call) -> bool:
    """Whether a call gives 8-bit integers."""
    return isinstance(call.type, TensorType) and call.type.dtype in BYTES


def always(_match: Match) -> Support:
    """Take every match."""
    return Support.yes()


class Row(Struct, frozen=True):
    """One pattern that the plugin knows.

    Attributes:
        name: Unique in the table.
        pattern: What it matches.
        lower: Appends functions for a match, returns the tensor of its result.
        supports: Whether the library's functions can say what the operator means.
        accepts: What the library's ``validate()`` answers about those functions; a test compares.
        constant: Arguments of the root that must be known at compile time.
        dtypes: Element types it takes.
        limits: In words, for the documentation: what ``supports`` and ``accepts`` ask for.
    """

    name: str
    pattern: Pattern
    lower: Lower
    supports: Verdict = always
    accepts: Verdict = always
    constant: tuple[int, ...] = ()
    dtypes: tuple[DType, ...] = FLOATS
    limits: str = ""

    def predicate(self, match: Match) -> Support:
        """Say whether the plugin takes ``match``; the support table's predicate."""
        verdict = self.expresses(match)
        return self.accepts(match) if verdict else verdict

    def expresses(self, match: Match) -> Support:
        """Say whether there is a call of the library that means the match, taken or not."""
        verdict = self._check_tensors(match)
        if not verdict:
            return verdict
        for index in self.constant:
            if index < len(match.root.args) and not match.is_constant(index):
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE,
                    f"argument {index} of {match.root.name} must be known at compile time",
                )
        return self.supports(match)

    def _check_tensors(self, match: Match) -> Support:
        for expr in (*match.inputs, *match.calls):
            if not isinstance(expr.type, TensorType):
                return Support.no(Code.UNSUPPORTED_OP, "tuples are not taken")
            if expr.type.dtype not in self.dtypes:
                taken = ", ".join(dtype.value for dtype in self.dtypes)
                halves = expr.type.dtype is DType.FLOAT16
                return Support.no(
                    Code.UNSUPPORTED_DTYPE,
                    _NO_HALVES if halves else f"{expr.type.dtype} is not taken, only {taken}",
                )
            if not expr.type.is_static:
                return Support.no(Code.UNSUPPORTED_SHAPE, f"the shape of {expr.type} is not static")
            if 0 in expr.type.static_shape:
                return Support.no(Code.UNSUPPORTED_SHAPE, f"{expr.type} has no elements")
            if len(expr.type.static_shape) > MAX_RANK:
                return Support.no(
                    Code.UNSUPPORTED_SHAPE,
                    f"rank {len(expr.type.static_shape)} is more than {MAX_RANK}",
                )
        return Support.yes()
