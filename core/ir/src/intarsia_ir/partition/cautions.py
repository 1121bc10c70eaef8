# SPDX-License-Identifier: Apache-2.0
"""What accelerators compute otherwise than operators are defined, of the nodes that they get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import RegionRow, Verdict


def cautions_of(
    regions: Iterable[RegionRow], verdicts: Iterable[Verdict]
) -> dict[str, list[dict[str, object]]]:
    """Return a part of a report's summary: accelerator, caution, how many nodes; {} if none."""
    placed = {(row.accelerator, node) for row in regions for node in row.nodes}
    counts = Counter(
        (row.accelerator, row.caution)
        for row in verdicts
        if row.caution and (row.accelerator, row.node) in placed
    )
    rows: list[dict[str, object]] = [
        {"accelerator": name, "caution": caution, "nodes": nodes}
        for (name, caution), nodes in counts.items()
    ]
    return {"cautions": rows} if rows else {}
