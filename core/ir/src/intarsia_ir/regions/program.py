# SPDX-License-Identifier: Apache-2.0
"""A region as a program: one step for each match, in order, with the place of every operand.

For accelerators that carry out a region match by match, in Python or by a table of calls. A place
is ``("input", n)``, ``("constant", name)``, ``("step", n)`` or, for one of several results of a
step, ``("field", n, index)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import asdict

from intarsia_runtime.dtype import DType

from ..graph.expr import Call, Constant, Expr, TupleGetItem
from .region import Region

if TYPE_CHECKING:
    import numpy as np

Place: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MatchStep:
    """One match.

    Attributes:
        row: Name of its support row.
        call: The root of the match, with the attributes.
        operands: Where its inputs are: those of the calls inside its pattern first, then the
            root's own.
    """

    row: str
    call: Call
    operands: tuple[Place, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RegionProgram:
    """A region, match by match.

    Attributes:
        steps: In an order in which they can run.
        outputs: Places of the region's results.
        constants: The weights that steps read, by names unique in the artifact.
    """

    steps: tuple[MatchStep, ...]
    outputs: tuple[Place, ...]
    constants: Mapping[str, np.ndarray]

    def to_json(self) -> dict[str, object]:
        """Return steps (``kernel``, ``operands``, ``attrs`` of the root) and outputs as JSON."""
        steps = [
            {"kernel": step.row, "operands": step.operands, "attrs": _attributes(step.call)}
            for step in self.steps
        ]
        return {"steps": steps, "outputs": self.outputs}


def region_program(region: Region) -> RegionProgram:
    """Number the matches of a region, and give each operand its place."""
    places: dict[Expr, Place] = {p: ("input", n) for n, p in enumerate(region.function.params)}
    constants: dict[str, np.ndarray] = {}

    def place(value: Expr) -> Place:
        if isinstance(value, Constant) and value not in places:
            name = f"{region.name}_{len(constants)}"
            constants[name] = value.data
            places[value] = ("constant", name)
        if isinstance(value, TupleGetItem) and value not in places:
            places[value] = ("field", places[value.tuple][1], value.index)
        return places[value]

    steps: list[MatchStep] = []
    for call in region.calls():
        row = region.rows.get(call)
        if row is None:  # inside a pattern: its root is the step
            continue
        steps.append(MatchStep(row, call, tuple(place(value) for value in _inputs(call, region))))
        places[call] = ("step", len(steps) - 1)
    outputs = tuple(place(value) for value in region.function.outputs)
    return RegionProgram(tuple(steps), outputs, constants)


def _inputs(root: Call, region: Region) -> Iterator[Expr]:
    """Yield what a match reads: first what the calls inside it read, then the root's operands."""
    pending: list[Expr] = [root]
    while pending:
        top = pending.pop()
        if isinstance(top, Call) and (top is root or top not in region.rows):
            inner = [a for a in top.args if isinstance(a, Call) and a not in region.rows]
            own = [a for a in top.args if a not in inner]
            pending += [*inner, *own][::-1]
        else:
            yield top


def _attributes(call: Call) -> dict[str, object]:
    found = asdict(call.attrs)
    return {name: v.value if isinstance(v, DType) else v for name, v in found.items()}
