# SPDX-License-Identifier: Apache-2.0
"""A part of the graph that one accelerator takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..errors import PluginError
from ..ir.walk import calls

if TYPE_CHECKING:
    from ..ir.expr import Call, Function


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A convex part of ``main``, outlined as a function.

    Attributes:
        name: Unique in the module and a C identifier, e.g. ``acme_0``; also the name of the
            function.
        kind: Target kind that takes it.
        function: Its parameters are what crosses the border inwards; constants are inside. A tuple
            body means several outputs.
        rows: For each operator call that is the root of a match, the name of the support row.
        nodes: Names of the model's nodes in it, in topological order.
        origins: For each operator call, the call of the function it was cut from.
        why: Of an answer to the ``partition`` hook: why calls are given back, in words.
    """

    name: str
    kind: str
    function: Function
    rows: Mapping[Call, str]
    nodes: tuple[str, ...]
    origins: Mapping[Call, Call] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    why: str = ""

    def calls(self) -> tuple[Call, ...]:
        """Operator calls in the region, operands before users."""
        return tuple(calls(self.function))


def keep_calls(region: Region, calls: Sequence[Call], why: str = "") -> Region:
    """Return the region reduced to some of its calls, as an answer to the ``partition`` hook.

    The host cuts the graph anew, so the result's function is the one that was offered; only which
    calls stay is read from it.

    Args:
        region: A region that was offered.
        calls: Operator calls of its function that the accelerator keeps; none gives all back.
        why: Why it gives the others back, in words and numbers; users read it.

    Raises:
        PluginError: A call is not of this region.
    """
    foreign = [call for call in calls if call not in region.origins]
    if foreign:
        raise PluginError(
            f"call of '{foreign[0].name}' is not in region '{region.name}'", where=region.kind
        )
    return replace(region, origins={call: region.origins[call] for call in calls}, why=why)
