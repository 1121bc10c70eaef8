# SPDX-License-Identifier: Apache-2.0
"""The one table behind the plugin's answers, its code and its documentation."""

from __future__ import annotations

from intarsia.plugin.accelerator import AcceleratorTable, Row

from .draft import TosaDraft, TosaValue
from .operators import convolution, elementwise, pooling, shape
from .operators.row import LIMITS

TABLE = AcceleratorTable[Row[TosaDraft, TosaValue]](
    (*convolution.ROWS, *pooling.ROWS, *elementwise.ROWS, *shape.ROWS), LIMITS
)
