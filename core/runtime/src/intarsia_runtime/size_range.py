# SPDX-License-Identifier: Apache-2.0
"""Whether the sizes of an open plan stay within 64 bits, which native code computes them in.

A shape costs nothing where a dimension is 0, so a small array may have a dimension of 2**40; a
product of two such wraps around in native code, and the workspace would be too small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from .artifact.plan import ALIGNMENT, MOST_BYTES, CallPlan
from .errors import ResourceError
from .size import Size, SizeOp, product

MOST = MOST_BYTES
"""Largest magnitude of a size, of a number of bytes, and of every step on the way to one."""


MOST_ALONG = 1 << 36
"""Largest dimension. Only an input without elements has a larger one, and loops go along it."""


def magnitude(size: Size, value: Callable[[str], int]) -> int:
    """Return a bound of a size, and of what is computed on the way to it, without its sign.

    Args:
        size: An expression.
        value: The value, or a bound, of a variable by its name.
    """
    if isinstance(size, int):
        return abs(size)
    total = 0
    for atoms, factor in size.terms:
        # Slices say "the end" by numbers like this; less than none of a size needs no more bits.
        term = 0 if not atoms and factor <= -MOST else abs(factor)
        for atom in atoms:
            term *= value(atom) if isinstance(atom, str) else _of_op(atom, value)
        total += term
    return total


def _of_op(op: SizeOp, value: Callable[[str], int]) -> int:
    a, b = (0 if _is_harmless(op.op, side) else magnitude(side, value) for side in (op.a, op.b))
    if not isinstance(op.b, int) or not b or op.op not in ("//", "%") or a >= MOST:
        return max(a, b)
    return b - 1 if op.op == "%" else -(-a // b)  # products of many such would pass any limit


def _is_harmless(op: str, side: Size) -> bool:
    # min(x, 2**63 - 1), as of a slice to the end, is no larger than x without its sign.
    return isinstance(side, int) and (side >= 0 if op == "min" else op == "max" and side <= 0)


class SizeRange:
    """Checks sizes of a plan before native code computes with them.

    All sizes up to some number are checked at once, so a run that meets a new shape checks little.

    Args:
        plan: A plan of open sizes.
    """

    def __init__(self, plan: CallPlan) -> None:
        sizes = plan.open
        assert sizes is not None  # the caller asks
        self._names = tuple(source.name for source in sizes.variables)
        guards = chain.from_iterable((g.left, g.right) for g in sizes.guards)
        outputs = [product(spec.shape) * spec.dtype.bytes for spec in plan.outputs]
        shapes = chain.from_iterable(spec.shape for spec in plan.outputs)
        # Compiled code counts what later stages need itself.
        self._slots = [size for size in sizes.slots if sizes.stage(size) == 0]
        self._others = [s for s in (*guards, *outputs, *shapes) if sizes.stage(s) == 0]
        self._checked = 0  # any sizes up to this one are within the range

    def check(self, values: Sequence[int]) -> None:
        """Refuse sizes for which a number does not fit.

        Raises:
            ResourceError: One does not.
        """
        largest = max(values) if values else 0  # a default takes longer than all of this
        if largest <= self._checked:
            return
        if largest > MOST_ALONG:
            name = self._names[values.index(largest)]
            raise ResourceError(
                f"{name} = {largest} is more than {MOST_ALONG}, the largest size of a dimension",
                hint="use a smaller batch or input",
            )
        above = 2 * largest
        if self._within(lambda name: above):
            self._checked = above
            return
        given: Mapping[str, int] = dict(zip(self._names, values, strict=True))
        if not self._within(given.__getitem__):
            sizes = ", ".join(f"{name} = {number}" for name, number in given.items())
            raise ResourceError(
                f"the memory for {sizes} is more bytes than 62 bits can count",
                hint="use a smaller batch or input",
            )

    def _within(self, value: Callable[[str], int]) -> bool:
        padded = [magnitude(size, value) + ALIGNMENT for size in self._slots]
        others = [magnitude(size, value) for size in self._others]
        return sum(padded) < MOST and max(others, default=0) < MOST
