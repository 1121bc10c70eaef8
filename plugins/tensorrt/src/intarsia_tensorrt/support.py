# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its networks."""

from __future__ import annotations

from msgspec import Struct

from intarsia.ir.pattern import Match, op
from intarsia.partition.support import Support, SupportRow, SupportTable

from .operators import (
    activation,
    convolution,
    elementwise,
    indexing,
    linear,
    normalization,
    pooling,
    quantized,
    shape,
)
from .operators.row import Row


def all_rows() -> tuple[Row, ...]:
    """Return every row; an operator has one."""
    return (
        *convolution.ROWS,
        *linear.ROWS,
        *pooling.ROWS,
        *elementwise.ROWS,
        *activation.ROWS,
        *normalization.ROWS,
        *shape.ROWS,
        *indexing.ROWS,
        *quantized.ROWS,
    )


class Judge(Struct, frozen=True):
    """Says yes or no to the calls of one operator.

    Attributes:
        row: The operator.
        int8: Whether quantised operators are taken.
    """

    row: Row
    int8: bool = True

    def __call__(self, match: Match) -> Support:
        """Ask the row."""
        if not self.int8 and self.row.op.startswith("qnn."):
            return Support.no("excluded-by-user", "-int8=false: quantised operators are not taken")
        return self.row.check(match.root)


def support_table(*, int8: bool = True) -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook."""
    return SupportTable(
        tuple(SupportRow(row.op, op(row.op), Judge(row, int8)) for row in all_rows())
    )


def support_markdown() -> str:
    """Return the table as the README shows it; a test compares."""
    lines = ["| operator | element types | asks for |", "|---|---|---|"]
    for row in all_rows():
        limits = "; ".join(filter(None, (row.limits, _constants(row.constant))))
        refused = row.limits.startswith("never")
        dtypes = "" if refused else ", ".join(dtype.value for dtype in row.dtypes)
        lines.append(f"| `{row.op}` | {dtypes} | {limits} |")
    return "\n".join(lines) + "\n"


def _constants(indices: tuple[int, ...]) -> str:
    if not indices:
        return ""
    word = "argument" if len(indices) == 1 else "arguments"
    return f"{word} {', '.join(str(index) for index in sorted(indices))} constant"
