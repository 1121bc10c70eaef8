# SPDX-License-Identifier: Apache-2.0
"""A row of the plugin's table, and the limits that all rows share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from intarsia.dtype import DType
from intarsia.ir.expr import Call, Constant, Expr
from intarsia.ir.pattern import Match, op
from intarsia.ir.types import TensorType
from intarsia.partition.support import Code, Support, SupportRow

from ..draft import Draft, Value, constant_of
from ..tosa.scale import fits

Lower: TypeAlias = "Callable[[Draft, Call], Value]"
Rule: TypeAlias = "Callable[[Call], Support]"

MAX_RANK = 4
MAX_SIZE = 65536
MAX_STRIDE = 3
BYTES = (DType.INT8, DType.UINT8)
YES = Support.yes()


class Row(Struct, frozen=True):
    """One operator that the plugin knows.

    Attributes:
        op: Its name.
        data: Which arguments, and the result, are 8-bit tensors.
        constant: Arguments that must be known at compile time.
        rules: Asked in order; the first no counts.
        lower: Appends nodes for a call, returns its value.
        limits: The rules in words, for the table of what is supported.
    """

    op: str
    data: tuple[int, ...]
    constant: tuple[int, ...]
    rules: tuple[Rule, ...]
    lower: Lower
    limits: str

    def support_row(self) -> SupportRow:
        """Return the row for the ``annotate`` hook."""
        return SupportRow(self.op, op(self.op), self.predicate)

    def predicate(self, match: Match) -> Support:
        """Say whether the plugin takes a call."""
        call = match.root
        for rule in (self._tensors, self._constants, *self.rules):
            verdict = rule(call)
            if not verdict:
                return verdict
        return YES

    def _tensors(self, call: Call) -> Support:
        chosen = [call.args[index] for index in self.data if index < len(call.args)]
        everything = call.args if not self.data else chosen
        for expr in (*everything, call):
            verdict = check_tensor(expr)
            if not verdict:
                return verdict
        return YES

    def _constants(self, call: Call) -> Support:
        for index in self.constant:
            if index < len(call.args) and not isinstance(call.args[index], Constant):
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE,
                    f"argument {index} of {call.name} must be known at compile time",
                )
        return YES


def check_tensor(expr: Expr) -> Support:
    """Refuse what is no 8-bit tensor of at most four static dimensions."""
    match expr.type:
        case TensorType() as type_:
            pass
        case _:
            return Support.no(Code.UNSUPPORTED_OP, "tuples are not taken")
    if type_.dtype not in BYTES:
        return Support.no(Code.UNSUPPORTED_DTYPE, f"only int8 and uint8 are taken, not {type_}")
    if not type_.is_static:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"the shape of {type_} is not static")
    shape = type_.static_shape
    if not 1 <= len(shape) <= MAX_RANK:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {len(shape)}, 1 to {MAX_RANK} are taken")
    if min(shape) < 1 or max(shape) > MAX_SIZE:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"sizes {list(shape)}, 1 to {MAX_SIZE} are taken")
    return YES


def check_factors(name: str, factors: np.ndarray) -> Support:
    """Refuse scales whose quotient cannot be written as multiplier and shift."""
    for factor in factors.reshape(-1).tolist():
        if not fits(factor):
            return Support.no(
                Code.UNSUPPORTED_ATTRIBUTE,
                f"{name}: the results are scaled by {factor:g}; it must be above 0 and below 2**29",
            )
    return YES


def wide(expr: Expr) -> np.ndarray:
    """Return constant scales in float64."""
    return constant_of(expr).astype(np.float64)


def is_image(call: Call) -> Support:
    """Take images only: rank 4."""
    match call.args[0].type:
        case TensorType(rank=4):
            return YES
        case other:
            return Support.no(
                Code.UNSUPPORTED_SHAPE, f"only images (N, C, H, W) are taken, not {other}"
            )
