# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its code: larger patterns before their parts."""

from __future__ import annotations

from collections import Counter

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


INEXACT = (
    "without VNNI or dot products in the processor, sums of 8-bit products saturate"
    " (-int8=on takes them for another one)"
)
"""Why products of 8-bit integers are not taken."""


def support_table(*, without_products: str = "", exact: bool = False) -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook.

    Args:
        without_products: Why products of 8-bit integers are not among it; empty if they are.
        exact: Refuse what the library does not compute as defined for NaN and infinities.
    """

    def refuse(_match: Match) -> Support:
        return Support.no(Code.UNSUPPORTED_DTYPE, without_products)

    rows: list[SupportRow] = []
    for row in all_rows():
        predicate = row.exactly if exact else row.predicate
        refused = without_products and row.name in quantised.PRODUCTS
        rows.append(SupportRow(row.name, row.pattern, refuse if refused else predicate))
    return SupportTable(tuple(rows))


def support_markdown() -> str:
    """Return the table as the README shows it; a test compares."""
    lines = ["| operator | element types | asks for |", "|---|---|---|"]
    spelled = Counter(_function_of(row.name) for row in composite.ROWS)
    written = {row.name for row in composite.ROWS}
    for row in all_rows():
        if row.name in written:
            continue
        constants = [f"argument {index} constant" for index in row.constant]
        limits = "; ".join(filter(None, (row.limits, ", ".join(constants), row.special)))
        never = row.limits.startswith("never")
        types = "" if never else "float32, int8, uint8" if row.integers else "float32"
        lines.append(f"| `{row.name}` | {types} | {limits} |")
    lines += [
        f"| {name}, spelled out | float32 | {count} ways to spell it |"
        for name, count in spelled.items()
    ]
    return "\n".join(lines) + "\n"


def _function_of(name: str) -> str:
    """Return the function that a row of several operators is: ``gelu_erf_divide_0``."""
    for function in ("gelu_erf", "gelu_tanh", "hard_swish"):
        if name.startswith(function):
            return function
    return name
