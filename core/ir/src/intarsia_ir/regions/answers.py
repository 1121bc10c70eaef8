# SPDX-License-Identifier: Apache-2.0
"""What plugins have in common: which regions they give back, and how they read those they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from intarsia_runtime.errors import PluginError

from ..graph.match import match_pattern
from ..graph.walk import calls, count_uses
from .region import Region, keep_calls
from .support import Code
from .work import count_products

if TYPE_CHECKING:
    from ..graph.expr import Call, Expr
    from ..graph.pattern import Match, Pattern


class PatternRow(Protocol):
    """A row of a plugin's own table; what else it has is the plugin's."""

    @property
    def name(self) -> str:
        """The name of its row in the support table."""
        ...

    @property
    def pattern(self) -> Pattern:
        """What it matches."""
        ...


R = TypeVar("R", bound=PatternRow)


def drop_regions(
    regions: Iterable[Region],
    objection: Callable[[Region], str],
    *,
    code: Code | str = Code.DROPPED,
) -> tuple[Region, ...]:
    """Answer the ``partition`` hook: drop all calls of each region that has an objection.

    Args:
        regions: The regions that the hook got.
        objection: Returns the objection to a region in words and numbers; empty if there is none.
        code: Code of the reason; ``slower`` if the accelerator could compute the region.
    """
    objections = [(region, objection(region)) for region in regions]
    return tuple(
        keep_calls(region, (), why, code=code) if why else region for region, why in objections
    )


def count_macs(region: Region) -> int:
    """Return the multiply-accumulates of a region's convolutions and products."""
    return sum(map(count_products, calls(region.function)))


def too_few_macs(region: Region, least: int) -> str:
    """Object to a region with fewer multiply-accumulates than the option ``-min-macs``."""
    count = count_macs(region)
    if count >= least:
        return ""
    return f"its region does {count} multiply-accumulates, fewer than -min-macs={least}"


def region_matches(region: Region, rows: Iterable[R]) -> Sequence[tuple[R, Match]]:
    """Return the matches that cover a region, with their rows, operands before users.

    Raises:
        PluginError: It holds a call that no row takes.
    """
    by_name = {row.name: row for row in rows}
    uses = count_uses(region.function.outputs)
    found: list[tuple[R, Match]] = []
    covered: set[Expr] = set()
    for call in reversed(list(calls(region.function))):
        if call in covered:
            continue
        row = by_name.get(region.rows.get(call, ""))
        match = None if row is None else match_pattern(row.pattern, call, uses)
        if row is None or match is None:
            raise unknown_call(region, call)
        covered.update(match.calls)
        found.append((row, match))
    return found[::-1]


def unknown_call(region: Region, call: Call) -> PluginError:
    """Return the error for a call of a region that no row of its plugin takes."""
    return PluginError(
        f"region '{region.name}' has a {call.name} that no row of the support table takes",
        where=str(call.span),
    )
