# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers and its code: larger patterns before their parts."""

from __future__ import annotations

from intarsia.plugin.accelerator import AcceleratorTable, SupportTable

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
from .operators.row import LIMITS, AclRow

TABLE = AcceleratorTable[AclRow](
    (
        *convolution.ROWS,
        *linear.ROWS,
        *pooling.ROWS,
        *elementwise.ROWS,
        *normalization.ROWS,
        *shape.ROWS,
        *quantized.ROWS,
        *integers.ROWS,
    ),
    LIMITS,
)


def support_table() -> SupportTable:
    """Return what the plugin takes, for the ``annotate`` hook."""
    return TABLE.support(last=AclRow.is_valid)
