# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its code: larger patterns before their parts."""

from __future__ import annotations

from intarsia.ir.pattern import Match
from intarsia.partition.support import Code, Support, SupportRow, SupportTable

from .operators import (
    composite,
    convolution,
    elementwise,
    linear,
    normalization,
    pooling,
    quantised,
    shape,
)
from .operators.row import Row


def all_rows() -> tuple[Row, ...]:
    """Return every row in order of preference."""
    return (
        *quantised.ROWS,
        *composite.ROWS,
        *convolution.ROWS,
        *linear.ROWS,
        *elementwise.ROWS,
        *pooling.ROWS,
        *normalization.ROWS,
        *shape.ROWS,
    )


def support_table(*, products: bool = True) -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook.

    Args:
        products: Whether products of 8-bit integers are among it.
    """
    rows: list[SupportRow] = []
    for row in all_rows():
        refused = not products and row.name in quantised.PRODUCTS
        rows.append(SupportRow(row.name, row.pattern, _inexact if refused else row.predicate))
    return SupportTable(tuple(rows))


def _inexact(_match: Match) -> Support:
    return Support.no(
        Code.UNSUPPORTED_DTYPE,
        "without VNNI or dot products in the processor, sums of 8-bit products saturate"
        " (-int8=on takes them for another one)",
    )
