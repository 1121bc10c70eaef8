# SPDX-License-Identifier: Apache-2.0
"""Between which numbers the guards of a plan keep its size variables."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..size import Dim, Size, SizeOp
from .passport import Passport
from .plan import CallPlan, SizeGuard


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


def example_sizes(passport: Passport) -> dict[str, int]:
    """Return a value that each named size of an artifact's inputs may have.

    It is the largest of a list or a range, else the least.
    """
    found = {choice.name: choice.sizes[-1] for choice in passport.sizes}
    for plan in (passport.plan, *(part.passport.plan for part in passport.parts)):
        for name, bounds in bounds_of(plan).items():
            found.setdefault(name, max(1, bounds.low) if bounds.high is None else bounds.high)
    return found
