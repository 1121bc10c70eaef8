# SPDX-License-Identifier: Apache-2.0
"""A part of the graph that one accelerator takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from intarsia_runtime.errors import PluginError

from ..graph.typical import TYPICAL_VALUES
from ..graph.walk import calls, size_variables
from .support import Code

if TYPE_CHECKING:
    from ..graph.expr import Call, Function


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A convex part of ``main``, outlined as a function.

    Attributes:
        name: Unique in the module and a C identifier, e.g. ``acme_0``; also the name of the
            function.
        kind: Target kind that takes it.
        function: Its parameters are the values that enter the region; constants are inside. A tuple
            body means several outputs.
        rows: For each operator call that is the root of a match, the name of the support row.
        nodes: Names of the model's nodes in it, in topological order.
        origins: For each operator call, the call of the original function.
        why: In an answer to the ``partition`` hook: the reason for dropped calls, in words.
        code: In such an answer: the code of the reason. ``slower`` is a cost, which ``--plan
            greedy`` and ``--place`` override; any other code is final.
        is_exact: In such an answer: the region is built as it is, and not merged with others.
        typical: Typical values of the size variables, where only speed depends on them.
    """

    name: str
    kind: str
    function: Function
    rows: Mapping[Call, str]
    nodes: tuple[str, ...]
    origins: Mapping[Call, Call] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    why: str = ""
    code: str = Code.DROPPED.value
    is_exact: bool = False
    typical: Mapping[str, int] = field(default_factory=lambda: TYPICAL_VALUES, repr=False)

    @property
    def sizes(self) -> tuple[str, ...]:
        """Size variables of its types and attributes, in order; they are arguments of its call."""
        return size_variables(self.function)

    def calls(self) -> tuple[Call, ...]:
        """Operator calls in the region, operands before users."""
        return tuple(calls(self.function))


def keep_calls(
    region: Region, calls: Sequence[Call], why: str = "", *, code: Code | str = Code.DROPPED
) -> Region:
    """Return the region reduced to some of its calls, as an answer to the ``partition`` hook.

    The function of the result is unchanged: the host reads only the kept calls, and partitions
    the graph again.

    Args:
        region: A region that the hook got.
        calls: Operator calls of its function that the accelerator keeps; none drops all.
        why: The reason for dropping the others, in words and numbers; users read it.
        code: Code of the reason; ``slower`` if the accelerator could compute them.

    Raises:
        PluginError: A call is not of this region.
    """
    return _reduced(region, calls, why, code)


def split_region(
    region: Region,
    parts: Sequence[Sequence[Call]],
    why: str = "",
    *,
    code: Code | str = Code.DROPPED,
) -> tuple[Region, ...]:
    """Return a region split into several, as a part of an answer to the ``partition`` hook.

    Each part becomes one region, as it is. Calls in no part are dropped.

    Args:
        region: A region that the hook got.
        parts: Operator calls of its function, part by part. A match of several calls stays whole,
            and the parts may not depend on each other in a cycle.
        why: The reason for dropping the other calls, in words and numbers; users read it.
        code: Code of that reason, as in :func:`keep_calls`.

    Raises:
        PluginError: A call is not of this region.
    """
    cut = (_reduced(region, part, why, code) for part in parts)
    return tuple(replace(part, is_exact=True) for part in cut)


def _reduced(region: Region, calls: Sequence[Call], why: str, code: Code | str) -> Region:
    foreign = [call for call in calls if call not in region.origins]
    if foreign:
        raise PluginError(
            f"call of '{foreign[0].name}' is not in region '{region.name}'", where=region.kind
        )
    origins = {call: region.origins[call] for call in calls}
    return replace(region, origins=origins, why=why, code=Code(code).value)
