# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers, its code and its documentation."""

from __future__ import annotations

from intarsia.partition.support import SupportTable

from .operators import convolution, elementwise, pooling, shape
from .operators.row import Row


def all_rows() -> tuple[Row, ...]:
    """Return every row."""
    return (*convolution.ROWS, *pooling.ROWS, *elementwise.ROWS, *shape.ROWS)


def support_table() -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook."""
    return SupportTable(tuple(row.support_row() for row in all_rows()))


def support_text() -> str:
    """Return the table as Markdown, for the README."""
    lines = ["| operator | taken with |", "|---|---|"]
    lines += [f"| `{row.op}` | {row.limits} |" for row in all_rows()]
    return "\n".join(lines) + "\n"
