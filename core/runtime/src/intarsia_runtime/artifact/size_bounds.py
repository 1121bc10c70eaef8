# SPDX-License-Identifier: Apache-2.0
"""Between which numbers the guards of a plan keep its size variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from ..size import Atom, Dim, Size, SizeOp
from .plan import CallPlan, SizeGuard
from .plan_sizes import slot_offsets


class SizeBounds(Struct, frozen=True):
    """The least and the largest value of a size variable; ``None`` if there is no largest."""

    low: int = 0
    high: int | None = None

    def __str__(self) -> str:
        if self.high is None:
            return f"from {self.low} on"
        return f"up to {self.high}" if not self.low else f"from {self.low} to {self.high}"


def size_bounds(guards: Iterable[SizeGuard]) -> dict[str, SizeBounds]:
    """Return the bounds of each size variable that guards alone bound, by its name.

    ``min(number, size) == number`` is a lower bound, ``min(number, size) == size`` an upper one.
    """
    found: dict[str, SizeBounds] = {}
    for guard in guards:
        for left, right in ((guard.left, guard.right), (guard.right, guard.left)):
            name, number, is_low, is_high = _bound(left, right)
            if name and number >= 0:
                known = found.get(name, SizeBounds())
                high = number if known.high is None else min(number, known.high)
                found[name] = SizeBounds(
                    max(number, known.low) if is_low else known.low,
                    high if is_high else known.high,
                )
    return found


def _bound(left: Size, right: Size) -> tuple[str, int, bool, bool]:
    """Return the variable and the number of ``left == right``, and which bounds that is."""
    if isinstance(left, Dim) and left.is_variable and isinstance(right, int):
        return left.name, right, True, True
    match left:
        case Dim(terms=((((SizeOp(op="min", a=a, b=b),), 1)),)):
            for number, size in ((a, b), (b, a)):
                if isinstance(number, int) and isinstance(size, Dim) and size.is_variable:
                    return size.name, number, right == number, right == size
        case _:
            pass
    return "", 0, False, False


def bounds_of(plan: CallPlan) -> dict[str, SizeBounds]:
    """Return the bounds of the open sizes of a plan's inputs."""
    return {} if plan.open is None else size_bounds(plan.open.guards)


def upper_bound(size: Size, bounds: Mapping[str, SizeBounds]) -> int | None:
    """Return a number that a size does not exceed; ``None`` if a variable has no largest value."""
    interval = _interval(size, bounds)
    return None if interval is None else interval[1]


def workspace_bound(plan: CallPlan) -> int | None:
    """Return the most bytes that the workspace of an open plan takes; ``None`` if any number.

    A slot ends no later than if it and those before it were as large as they can be.
    """
    if plan.open is None or plan.open.stages:
        return None
    bounds = bounds_of(plan)
    slots = [upper_bound(slot, bounds) for slot in plan.open.slots]
    known = tuple([slot for slot in slots if slot is not None])
    if len(known) < len(slots):
        return None
    return slot_offsets(replace(plan.open, slots=known), {})[1]


def _interval(size: Size, bounds: Mapping[str, SizeBounds]) -> tuple[int, int] | None:
    """Return the least and the largest value by interval arithmetic (Moore, 1966)."""
    if isinstance(size, int):
        return size, size
    low = high = 0
    for atoms, factor in size.terms:
        term = factor, factor
        for atom in atoms:
            other = _of_atom(atom, bounds)
            if other is None:
                return None
            ends = [a * b for a, b in product(term, other)]
            term = min(ends), max(ends)
        low, high = low + term[0], high + term[1]
    return low, high


def _of_atom(atom: Atom, bounds: Mapping[str, SizeBounds]) -> tuple[int, int] | None:
    if isinstance(atom, str):
        found = bounds.get(atom)
        return None if found is None or found.high is None else (found.low, found.high)
    a, b = _interval(atom.a, bounds), _interval(atom.b, bounds)
    if a is None or b is None:
        return _of_one(atom, a or b)
    match atom.op:
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "//" if b[0] > 0:
            ends = [x // y for x, y in product(a, b)]
            return min(ends), max(ends)
        case "%" if b[0] > 0:
            return 0, b[1] - 1
        case _:
            return None


def _of_one(atom: SizeOp, known: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the bounds of ``min`` with something that has none: a size is not negative."""
    if atom.op == "min" and known is not None and known[0] >= 0:
        return 0, known[1]
    return None
