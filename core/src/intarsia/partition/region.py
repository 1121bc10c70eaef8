# SPDX-License-Identifier: Apache-2.0
"""A part of the graph that one accelerator takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ir.expr import Call, Function


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A convex part of ``main``, outlined as a function.

    Attributes:
        name: Unique in the module and a C identifier, e.g. ``acme_0``; also the name of the function.
        kind: Target kind that takes it.
        function: Its parameters are what crosses the border inwards; constants are inside. A tuple body
            means several outputs.
        rows: For each operator call that is the root of a match, the name of the support row.
        nodes: Names of the model's nodes in it, in topological order.
    """

    name: str
    kind: str
    function: Function
    rows: Mapping[Call, str]
    nodes: tuple[str, ...]
