# SPDX-License-Identifier: Apache-2.0
"""What accelerators could compute and do not get, because the fallback is faster."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from intarsia_ir.regions.support import Code

from .report import LeftRow, Placement


def with_left(placement: Placement, greedy: Mapping[str, int], fallback: str) -> Placement:
    """Return the report with what cost leaves to the fallback.

    Args:
        placement: The report.
        greedy: How many nodes each accelerator would get if cost did not count.
        fallback: What the report calls the fallback.
    """
    taken = {node for region in placement.regions for node in region.nodes}
    slower = [
        row for row in placement.verdicts if row.code == Code.SLOWER.value and row.node not in taken
    ]
    counts: dict[str, int] = {}
    for row in slower:
        counts[row.accelerator] = counts.get(row.accelerator, 0) + 1
    rows = tuple(
        LeftRow(kind, counts.get(kind, 0), greedy.get(kind, 0))
        for kind in dict.fromkeys(row.accelerator for row in placement.verdicts)
        if kind in counts or greedy.get(kind, 0)
    )
    faster = len({row.node for row in slower})
    if not faster:
        return placement
    return replace(placement, left=rows, faster=faster, fallback=fallback)
