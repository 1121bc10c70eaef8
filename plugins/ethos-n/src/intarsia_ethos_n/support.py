# SPDX-License-Identifier: Apache-2.0
"""What an Ethos-N takes of a model: a call is described as operations, and each is checked."""

from __future__ import annotations

from intarsia.plugin.accelerator import (
    AcceleratorTable,
    Code,
    Match,
    Support,
    SupportTable,
)

from .constraints import check
from .describe import Sketch
from .operators import all_rows
from .row import LIMITS, NetworkRow
from .target import EthosNOptions
from .verdict import Level

TABLE = AcceleratorTable[NetworkRow](all_rows(), LIMITS)


def support_table(options: EthosNOptions) -> SupportTable:
    """Return what the variant takes, for the ``annotate`` hook."""

    def can_do(row: NetworkRow, match: Match) -> Support:
        """Describe the call, then check each operation; the first no counts."""
        sketch = Sketch()
        described = row.lower(sketch, match)
        if isinstance(described, Support):
            return described
        for operation in sketch.operations:
            if operation.kind == "reinterpret":
                continue
            verdict = check(operation, sketch.tensors, options.memory)
            if verdict.level is not Level.SUPPORTED:
                words = " (can be estimated only)" if verdict.level is Level.ESTIMATE_ONLY else ""
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE, f"{operation.kind}: {verdict.reason}{words}"
                )
        return Support.yes()

    return TABLE.support(last=can_do)
