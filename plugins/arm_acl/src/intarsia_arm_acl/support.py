# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its code: larger patterns before their parts."""

from __future__ import annotations

from intarsia.partition.support import SupportRow, SupportTable

from .operators import (
    convolution,
    elementwise,
    integers,
    linear,
    normalization,
    pooling,
    quantized,
    shape,
)
from .operators.row import Row


def all_rows() -> tuple[Row, ...]:
    """Return every row in order of preference."""
    return (
        *convolution.ROWS,
        *linear.ROWS,
        *pooling.ROWS,
        *elementwise.ROWS,
        *normalization.ROWS,
        *shape.ROWS,
        *quantized.ROWS,
        *integers.ROWS,
    )


def support_table() -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook."""
    return SupportTable(
        tuple(SupportRow(row.name, row.pattern, row.predicate) for row in all_rows())
    )


def support_markdown() -> str:
    """Return the table as the README shows it; a test compares."""
    lines = ["| operator or pattern | element types | asks for |", "|---|---|---|"]
    for row in all_rows():
        dtypes = ", ".join(dtype.value for dtype in row.dtypes)
        known = [f"argument {index} constant" for index in row.constant]
        limits = "; ".join(filter(None, (row.limits, ", ".join(known))))
        lines.append(f"| {row.name} | {dtypes} | {limits} |")
    return "\n".join(lines) + "\n"
