# SPDX-License-Identifier: Apache-2.0
"""A part of the graph that one accelerator takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

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
    """

    name: str
    kind: str
    function: Function
    rows: Mapping[Call, str]
    nodes: tuple[str, ...]
    origins: Mapping[Call, Call] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def calls(self) -> tuple[Call, ...]:
        """Operator calls in the region, operands before users."""
        return tuple(calls(self.function))
