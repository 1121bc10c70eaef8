# SPDX-License-Identifier: Apache-2.0
"""Sizes that an artifact's inputs may have, for inputs that are made up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.artifact.plan import SizeGuard
from intarsia_runtime.artifact.plan_walk import guards_of_steps
from intarsia_runtime.artifact.signature import ANY_SIZE
from intarsia_runtime.artifact.size_bounds import bounds_of
from intarsia_runtime.size import Dim, value_of

_TRIED = tuple(
    sorted({factor << n for n in range(17) for factor in (2, 3, 5, 7)} | {33, 65, 129, 257})
)
"""Sizes for guards that their lower bounds alone do not meet: windows behind strides, halves and
quarters that must be whole, 2**n + 1 pixels.
"""
_LARGEST = 1024
"""Ranges that end above it are limits, not sizes that anybody has: exporters mean the end of a
dimension when they slice up to 10**9, which is then the largest size that a model takes.
"""


def example_sizes(
    passport: Passport, given: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """Return a value for each named size of an artifact's inputs that its guards allow.

    It is the largest of a list, or of a range that ends at 1024 or below, else the least; sizes of
    guards that do not hold then are made larger, all of them alike, until most guards hold.

    Args:
        passport: Of the artifact.
        given: Values that are to stay.
    """
    found = {choice.name: choice.sizes[-1] for choice in passport.sizes} | dict(given)
    fixed, guards = set(found), list[SizeGuard]()
    sizes = {size for spec in passport.signature.inputs for size in spec.shape or ()}
    names = sorted(size for size in sizes - {ANY_SIZE} if isinstance(size, str))
    for plan in (passport.plan, *(part.passport.plan for part in passport.parts)):
        own = bounds_of(plan)
        for name, bounds in ((name, own[name]) for name in names if name in own):
            if bounds.high is not None and bounds.high <= _LARGEST:
                fixed.add(name)
                found.setdefault(name, bounds.high)
            found.setdefault(name, max(1, bounds.low))
        if plan.open is not None:
            guards += [*plan.open.guards, *guards_of_steps(plan)]
    found = dict.fromkeys(names, 1) | found
    return _grown(found, fixed, [guard for guard in guards if _variables(guard) <= found.keys()])


def _grown(
    sizes: dict[str, int], fixed: Iterable[str], guards: Sequence[SizeGuard]
) -> dict[str, int]:
    """Return sizes for which the fewest guards fail, the smallest of those that are tried."""
    failing = _failing(guards, sizes)
    names = frozenset[str]().union(*map(_variables, failing)) - set(fixed)
    best, least = sizes, len(failing)
    for size in _TRIED:
        if not least or not names:
            break
        tried = {**sizes, **{name: max(size, sizes[name]) for name in names}}
        count = len(_failing(guards, tried))
        if count < least:
            best, least = tried, count
    return best


def _failing(guards: Iterable[SizeGuard], sizes: Mapping[str, int]) -> list[SizeGuard]:
    return [one for one in guards if value_of(one.left, sizes) != value_of(one.right, sizes)]


def _variables(guard: SizeGuard) -> frozenset[str]:
    sizes = [size for size in (guard.left, guard.right) if isinstance(size, Dim)]
    return frozenset[str]().union(*(size.variables() for size in sizes))
