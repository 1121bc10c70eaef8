# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its code: larger patterns before their parts."""

from __future__ import annotations

from intarsia.partition.support import SupportRow, SupportTable

from .operators import composite, convolution, elementwise, linear, normalization, pooling, shape
from .operators.row import Row


def all_rows() -> tuple[Row, ...]:
    """Return every row in order of preference."""
    return (
        *composite.ROWS,
        *convolution.ROWS,
        *linear.ROWS,
        *elementwise.ROWS,
        *pooling.ROWS,
        *normalization.ROWS,
        *shape.ROWS,
    )


def support_table() -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook."""
    return SupportTable(
        tuple(SupportRow(row.name, row.pattern, row.predicate) for row in all_rows())
    )
