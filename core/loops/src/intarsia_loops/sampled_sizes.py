# SPDX-License-Identifier: Apache-2.0
"""Open sizes as numbers, for several values of the size variables at a time.

A layer's sizes contain those of the layer before it as the same objects. Each object is evaluated
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from intarsia_runtime.size import Dim, Size, SizeOp


class SampledSizes(Struct):
    """Samples of the size variables.

    Attributes:
        variables: The values of each variable, one for each sample.
        count: How many samples there are.
        known: What was evaluated, by identity, and the object, which keeps its identity so.
    """

    variables: Mapping[str, Sequence[int]]
    count: int
    known: dict[int, tuple[Dim | SizeOp, Sequence[int]]] = field(
        default_factory=dict[int, "tuple[Dim | SizeOp, Sequence[int]]"]
    )

    def values(self, size: Size) -> Sequence[int]:
        """Return a size in each sample; never negative."""
        return [max(0, value) for value in self._values(size)]

    def _values(self, size: Size | SizeOp) -> Sequence[int]:
        if isinstance(size, int):
            return [size] * self.count
        if id(size) not in self.known:
            found = self._operation(size) if isinstance(size, SizeOp) else self._sum(size)
            self.known[id(size)] = size, found
        return self.known[id(size)][1]

    def _operation(self, size: SizeOp) -> Sequence[int]:
        rows = zip(self._values(size.a), self._values(size.b), strict=True)
        apply = _APPLY[size.op]
        return [apply(a, b) for a, b in rows]

    def _sum(self, size: Dim) -> Sequence[int]:
        total = [0] * self.count
        for atoms, factor in size.terms:
            term: Sequence[int] = [factor] * self.count
            for atom in atoms:
                row = self.variables[atom] if isinstance(atom, str) else self._values(atom)
                term = [a * b for a, b in zip(term, row, strict=True)]
            total = [a + b for a, b in zip(total, term, strict=True)]
        return total


_APPLY: Mapping[str, Callable[[int, int], int]] = {
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}
