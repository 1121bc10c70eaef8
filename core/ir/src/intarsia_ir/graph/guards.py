# SPDX-License-Identifier: Apache-2.0
"""What must hold of sizes that only the run knows, where arithmetic cannot decide it.

Type rules say so by :func:`require_equal`. Whoever builds a model with open sizes collects the
guards with :func:`collecting_guards`; without a collector nobody could check them, and a rule that
needs one refuses.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from intarsia_runtime.size import Dim, Size, SizeOp, maximum, minimum

_COLLECTOR: ContextVar[dict[Guard, None] | None] = ContextVar("guards", default=None)


COMPUTED = "#"
"""In the name of each size variable that a call of an imported model defines."""


class Guard(Struct, frozen=True):
    """Two sizes that must be equal, and the sentence that says why.

    ``a <= b`` is ``min(a, b) == a``.
    """

    left: Size
    right: Size
    why: str

    def variables(self) -> frozenset[str]:
        """Return the names of the size variables in both."""
        sizes = (self.left, self.right)
        return frozenset[str]().union(*(s.variables() for s in sizes if isinstance(s, Dim)))


class RequiredSizes(Struct, frozen=True):
    """A module-level setting: what must hold of sizes for the module to be right.

    Attributes:
        guards: The sizes that must be equal.
    """

    guards: tuple[Guard, ...]


@contextmanager
def collecting_guards(known: Iterable[Guard] = ()) -> Generator[dict[Guard, None]]:
    """Collect the guards of everything that is built inside, each once, in order.

    Args:
        known: Guards that are there from the beginning.
    """
    found = dict.fromkeys(known)
    token = _COLLECTOR.set(found)
    try:
        yield found
    finally:
        _COLLECTOR.reset(token)


class BranchGuards(Struct):
    """What must hold of sizes for a part of a model that may not be carried out.

    Attributes:
        guards: The sizes that must be equal, and need not be for the rest; there at the end.
    """

    guards: tuple[Guard, ...] = ()


@contextmanager
def guards_apart() -> Generator[BranchGuards]:
    """Collect what a part of a model requires of sizes apart from the rest.

    Nothing is collected if nobody collects.
    """
    known, found = _COLLECTOR.get(), BranchGuards()
    if known is None:
        yield found
        return
    pairs = {(guard.left, guard.right): guard for guard in known}
    own = dict(known)
    token = _COLLECTOR.set(own)
    try:
        yield found
    finally:
        _COLLECTOR.reset(token)
    own = {guard: None for guard in own if guard not in known}
    found.guards = tuple(g for g in own if pairs.setdefault((g.left, g.right), g) is g)


def require_all(guards: Iterable[Guard]) -> None:
    """Require sizes to be equal that were collected apart."""
    for guard in guards:
        require_equal(guard.left, guard.right, guard.why)


def is_collecting() -> bool:
    """Whether a model is built with open sizes, so that somebody collects guards."""
    return _COLLECTOR.get() is not None


def collected_guards() -> tuple[Guard, ...]:
    """Return the guards that were collected by now; none if nobody collects."""
    return tuple(_COLLECTOR.get() or ())


def require_equal(left: Size, right: Size, why: str) -> bool:
    """Require two sizes to be equal when a model runs.

    Returns:
        Whether that can hold: they are equal, or somebody collects the guard.
    """
    if left == right:
        return True
    collector = _COLLECTOR.get()
    if collector is None or (isinstance(left, int) and isinstance(right, int)):
        return False
    collector[Guard(left, right, why)] = None
    return True


def require_at_most(low: Size, high: Size, why: str) -> bool:
    """Require a size not to exceed another when a model runs.

    Returns:
        Whether that can hold: of two numbers it does. Of others the guard is collected, if
        somebody collects; what is typed for later, when its sizes are numbers, may be anything.
    """
    if isinstance(low, int) and isinstance(high, int):
        return low <= high
    smaller = minimum(low, high)
    if smaller != low and not _is_part_of_minimum(high, low):
        require_equal(smaller, low, why)
    return True


def is_required_natural(size: Size) -> bool:
    """Whether a guard that was collected by now says that a size is not negative.

    Type rules ask, so a guard must name the size itself: what follows from guards of later nodes
    would give a node another type when it is typed again.
    """
    return is_required_at_least(size, 0)


def is_required_at_least(size: Size, low: int) -> bool:
    """Whether a guard that was collected by now says that a size is not below a number."""
    if isinstance(size, int):
        return size >= low
    collector = _COLLECTOR.get() or {}
    return any(
        isinstance(guard.right, int)
        and guard.right >= low
        and _is_part_of_minimum(size, guard.left)
        for guard in collector
    )


def is_implied_natural(size: Size) -> bool:
    """Whether it follows from a guard that was collected by now that a size is not negative.

    ``min(400, N) == 400`` says so of ``N - 400``.
    """
    for guard in _COLLECTOR.get() or ():
        for part in _parts_of_minimum(guard.left):  # none is below the minimum
            above = size - (part - guard.right)
            if maximum(above, 0) == above:
                return True
    return False


def fixed_sizes(guards: Iterable[Guard]) -> dict[Dim, int]:
    """Return the size variables of inputs that guards say are numbers; of two numbers the first."""
    fixed: dict[Dim, int] = {}
    for guard in guards:
        sides = (guard.left, guard.right)
        for size, number in (sides, sides[::-1]):
            is_variable = isinstance(size, Dim) and size.is_variable and COMPUTED not in size.name
            if isinstance(size, Dim) and is_variable and isinstance(number, int):
                fixed.setdefault(size, number)
    return fixed


def _is_part_of_minimum(part: Size, size: Size) -> bool:
    """Whether a size is ``min(part, ...)``, which never exceeds the part."""
    return part in _parts_of_minimum(size)


def _parts_of_minimum(size: Size) -> tuple[Size, ...]:
    """Return ``a`` and ``b`` of ``min(a, b)``; nothing of other sizes."""
    match size:
        case Dim(terms=((((SizeOp(op="min", a=a, b=b),), 1)),)):
            return a, b
        case _:
            return ()
