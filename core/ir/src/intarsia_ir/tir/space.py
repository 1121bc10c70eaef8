# SPDX-License-Identifier: Apache-2.0
"""Schedule spaces: the sizes that a backend's schedules choose by rules, and that can be measured.

A rule knows a machine's registers and caches; what is fastest for one operator at one size only a
measurement tells. A space names the choices, so that a search can try them and a later build can
make the one that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

from ..graph.text import print_function

if TYPE_CHECKING:
    from .func import PrimFunc
    from .module import FusedGroup

Choice: TypeAlias = Mapping[str, int]
"""Knob to its value; a knob that is left out stays with the backend's rule."""


class Knob(Struct, frozen=True):
    """One size, or one of several ways, that a schedule can be told.

    Attributes:
        name: In snake case.
        values: What it can be. The first one leaves it to the backend's rule.
        doc: What it decides, and its unit.
    """

    name: str
    values: tuple[int, ...]
    doc: str


class ScheduleSpace(Struct, frozen=True):
    """What can be chosen for the kernels of one operator.

    Attributes:
        operator: Name of the anchor of the fused groups that it is for.
        version: Changes when a knob means something else; what was measured before is then not
            used any more.
        knobs: The choices, no two of one name.
        schedule: ``schedule(group, target, choice)``: the kernel, as of
            the hook ``lower``; ``Any`` is the backend's target.
    """

    operator: str
    version: int
    knobs: tuple[Knob, ...]
    schedule: Callable[[FusedGroup, Any, Choice], PrimFunc | None]

    def allows(self, choice: Choice) -> bool:
        """Whether every knob of a choice exists and can have the value."""
        values_by_knob = {knob.name: knob.values for knob in self.knobs}
        return all(
            name in values_by_knob and value in values_by_knob[name]
            for name, value in choice.items()
        )


class ScheduleSpaces(Struct, frozen=True):
    """What a backend lets be tuned for a target.

    Attributes:
        machine: Names what times depend on: instruction set, microarchitecture, width of vectors,
            a matrix unit. What was measured for one machine is used for no other.
        spaces: One for each operator.
    """

    machine: str
    spaces: tuple[ScheduleSpace, ...]

    def of(self, operator: str) -> ScheduleSpace | None:
        """The space of an operator; ``None`` if its kernels cannot be tuned."""
        return next((space for space in self.spaces if space.operator == operator), None)


class Tuned(Struct, frozen=True):
    """The schedule spaces of a backend, with the best measured choices.

    Attributes:
        spaces: The spaces of the backend.
        best: ``best(space, signature)`` returns the best choice; ``None`` if there is none.
    """

    spaces: ScheduleSpaces
    best: Callable[[ScheduleSpace, str], Choice | None]

    def choice(self, group: FusedGroup) -> tuple[ScheduleSpace, Choice] | None:
        """The space of a group and the best choice in it; ``None`` leaves it to the rules."""
        space = None if group.anchor is None else self.spaces.of(group.anchor.name)
        if space is None:
            return None
        choice = self.best(space, signature_of(group))
        return (space, choice) if choice and space.allows(choice) else None


class ChosenKernel(Struct, frozen=True):
    """A kernel whose schedule was measured.

    Attributes:
        operator: Anchor of its group.
        signature: Of its group.
        choice: What was chosen.
    """

    operator: str
    signature: str
    choice: Choice = field(default_factory=lambda: MappingProxyType[str, int]({}))


def signature_of(group: FusedGroup) -> str:
    """Return a text that is equal for groups of the same operators, types and attributes.

    It begins with the operators and ends with a digest of all that decides; values of weights do
    not, single numbers in a group do.
    """
    text = print_function(group.function)
    plain = "\n".join(line.partition("  // ")[0] for line in text.splitlines())  # no names of nodes
    return f"{group.label}#{sha256(plain.encode()).hexdigest()[:16]}"
