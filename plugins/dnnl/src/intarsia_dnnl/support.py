# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its code: larger patterns before their parts."""

from __future__ import annotations

from intarsia.plugin.accelerator import AcceleratorTable, Code, Match, Support, SupportTable

from .operators import (
    composite,
    convolution,
    elementwise,
    linear,
    normalization,
    pooling,
    quantized,
    shape,
)
from .operators.row import LIMITS, DnnlRow

TABLE = AcceleratorTable[DnnlRow](
    (
        *quantized.ROWS,
        *composite.ROWS,
        *convolution.ROWS,
        *linear.ROWS,
        *elementwise.ROWS,
        *pooling.ROWS,
        *normalization.ROWS,
        *shape.ROWS,
    ),
    LIMITS,
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

    def allowed(row: DnnlRow, _match: Match) -> Support:
        if without_products and row.name in quantized.PRODUCTS:
            return Support.no(Code.UNSUPPORTED_DTYPE, without_products)
        return Support.yes()

    return TABLE.support(first=allowed, last=DnnlRow.is_exact if exact else DnnlRow.with_caution)
