# SPDX-License-Identifier: Apache-2.0
"""Open sizes that are broadcast: equal in one form of a model, one of them 1 in the other.

``x + y`` of ``[N, 8]`` and ``[M, 8]`` is right for ``N = M``, for ``N = 1`` and for ``M = 1``.
Kernels are fastest where sizes are known to be equal, so a model is read for that, and the pairs
of sizes are noted. Where there are some, it is read again for all sizes that broadcast: operands
get the size of the result in front of the operator. The run compares the sizes and takes a form.

``x + y`` of ``[N, 8]`` and ``[3, 8]`` is right for ``N = 3`` and for ``N = 1``. What else the model
requires mostly says that ``N`` is 3, or the first form has 3 in its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from intarsia_ir.graph.expr import Expr, call, tensor_type
from intarsia_ir.graph.guards import COMPUTED, require_equal
from intarsia_ir.graph.op import Op
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_ir.ops import generate, nn
from intarsia_ir.ops.indexing import Take
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.artifact.size_bounds import upper_bound
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import maximum, minimum, numbers, value_of, variable

if TYPE_CHECKING:
    from .builder import Builder

_INNER: Mapping[type[Op], int] = MappingProxyType({nn.Matmul: 2})
"""How many of the last dimensions of an operator do not broadcast."""

_TRIED = (1, 2, 3, 4, 5, 7, 8, 16, 17, 64)
"""Values of size variables that are tried to find out whether a size may be 1."""

_TRIED_ALONE = (*range(1, 65), *range(96, 1056, 32))
"""Those of a variable that no other is beside, as many as a stride of 32 and 32 windows need."""

_MOST_VARIABLES = 3
"""Most size variables of which all combinations are tried; of more, those of one size are equal."""


class Broadcasts:
    """What is known of the sizes that are broadcast in a model.

    Attributes:
        is_general: Whether one of two open sizes may be 1; if not, they are taken to be equal.
        pairs: The pairs of sizes that were taken to be equal, though one may be 1 alone.
        numbers: The size variables that broadcast with a number, which they are if they are not 1.
        may_choose: Whether the run may choose between forms; if not, such variables are numbers.
    """

    def __init__(self) -> None:
        self.is_general = False
        self.may_choose = False
        self.pairs: dict[tuple[Size, Size], None] = {}
        self.numbers: dict[Dim, int] = {}
        self._differ: dict[tuple[Size, Size], bool] = {}
        self._unequal: dict[tuple[Size, Size], bool] = {}

    @property
    def are_open(self) -> bool:
        """Whether there are sizes of which the run must say whether they are 1."""
        return bool(self.pairs or self.numbers)

    def decided(self, fixed: Mapping[Dim, int]) -> Mapping[Dim, int]:
        """Return which size variables are numbers in every form of the model.

        Args:
            fixed: Those that are where sizes of pairs are equal; noted for that form.
        """
        if not self.may_choose:
            return fixed
        paired = self._paired()
        self.numbers.update({size: fixed[size] for size in fixed if size.name in paired})
        return {size: number for size, number in fixed.items() if size.name not in paired}

    def _paired(self) -> frozenset[str]:
        return frozenset(name for pair in self.pairs for size in pair for name in names_of(size))

    def equal_numbers(self) -> Mapping[Size, int]:
        """Return the sizes that are numbers where sizes of pairs are equal."""
        known: dict[Size, int] = {**self.numbers}
        count = -1
        while count < len(known):
            count = len(known)
            for a, b in self.pairs:
                for size, other in ((a, b), (b, a)):
                    if other in known:
                        known.setdefault(size, known[other])
        return known

    def difference(self) -> Size:
        """Return a size that is 0 where all pairs are equal, and positive elsewhere."""
        total: Size = 0
        for a, b in (*self.pairs, *self.numbers.items()):
            total = total + (a - b) * (a - b)
        return total

    def expanded(self, builder: Builder, op: type[Op], args: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the operands of an operator, with the sizes that they are broadcast to.

        Only open sizes that may be 1 next to others are changed.
        """
        inner = _INNER.get(op, 0)
        if not (op.broadcasts or inner):
            return tuple(args)
        joined: list[Size] = []
        for arg in args:
            shape = tensor_type(arg).shape
            joined = self._joined(joined, shape[: max(len(shape) - inner, 0)])
        return tuple(self._grown(builder, arg, joined, op.name, inner) for arg in args)

    def spread(
        self, builder: Builder, x: Expr, wanted: Sequence[Size], *, to_numbers: bool = False
    ) -> tuple[Expr, Sequence[Size]]:
        """Return a tensor and the sizes to expand it to, which no longer differ but for 1.

        Args:
            builder: The node.
            x: The tensor.
            wanted: Sizes that it is broadcast with.
            to_numbers: Whether an expression next to a number, which is no weight's, may be 1.
        """
        for size, number in zip(tensor_type(x).shape[::-1], wanted[::-1], strict=False):
            if to_numbers and names_of(size) and numbers((number,)):
                self._unequal[size, number] = not any(COMPUTED in name for name in names_of(size))
        joined = self._joined(tensor_type(x).shape, wanted)
        for own, size in zip(wanted[::-1], joined[::-1], strict=False):
            if self._is_repeated(own, size):
                _require_repeated(own, size, str(builder.span))
        return self._grown(builder, x, joined, str(builder.span)), joined

    def _joined(self, a: Sequence[Size], b: Sequence[Size]) -> list[Size]:
        """Return the sizes that two shapes are broadcast to, as far as this is our business."""
        rank = max(len(a), len(b))
        sides = ((*[1] * (rank - len(side)), *side) for side in (a, b))
        return [self._joined_size(one, other) for one, other in zip(*sides, strict=True)]

    def _joined_size(self, a: Size, b: Size) -> Size:
        if a == b or b == 1:
            return a
        if a == 1:
            return b
        if is_at_most_one(a) != is_at_most_one(b):
            return b if is_at_most_one(a) else a
        if self._must_differ(a, b):
            return _larger(a, b)
        match a, b:
            case (Dim() as size, int() as number) | (int() as number, Dim() as size):
                if size.is_variable and self._is_alone(size, number):
                    self.numbers.setdefault(size, number)
                return number
            case _:
                pass
        if not self._is_ours(a, b):
            return a
        if self.is_general:
            return _larger(a, b)
        self.pairs[a, b] = None
        return a

    def _grown(
        self, builder: Builder, x: Expr, wanted: Sequence[Size], name: str, inner: int = 0
    ) -> Expr:
        """Repeat a tensor along dimensions of open sizes that are 1 where the result has more."""
        sizes = tensor_type(x).shape
        outer = len(sizes) - inner
        for axis, size in enumerate(wanted[len(wanted) - outer :] if outer > 0 else ()):
            own = sizes[axis]
            if self._is_repeated(own, size):
                _require_repeated(own, size, name)
                x = self._repeated(builder, x, axis, size)
        return x

    def _is_repeated(self, own: Size, size: Size) -> bool:
        """Whether an operand of one size is repeated where the result has another."""
        if own == size or own == 1:
            return False
        if is_at_most_one(own) or self._must_differ(own, size) or self._is_alone(own, size):
            return True
        return self.is_general and self._is_ours(own, size)

    def _must_differ(self, a: Size, b: Size) -> bool:
        """Whether two sizes are never equal, so that one of them must be 1.

        Asked of a number and a size, and of two sizes of the same variables.
        """
        known = len(numbers((a, b)))
        if known == 2 or (known == 0 and names_of(a) != names_of(b)):
            return False
        if (a, b) not in self._unequal:
            rows = [(one, other) for one, other in _tried(a, b) if one != other or one > 1]
            units = [1 in row for row in rows]
            self._unequal[a, b] = any(units) and all(one != other for one, other in rows)
        return self._unequal[a, b]

    def _is_alone(self, size: Size, number: Size) -> bool:
        """Whether a size that is broadcast with a number is one of an input, which may be 1.

        Not an expression, of whose size the weights of a network say what it is, but for that of
        several inputs where all sizes that broadcast are asked for.
        """
        names = names_of(size)
        is_asked = self.may_choose and names and numbers((number,))
        if not is_asked or any(COMPUTED in name for name in names):
            return False
        return size == variable(min(names)) or (self.is_general and len(names) > 1)

    def _is_ours(self, a: Size, b: Size) -> bool:
        """Whether one of two sizes of different inputs may be 1 where the other is not.

        Not of two expressions of the same variables, as in networks that halve an image and double
        it again: these differ for few images, and no weights are trained for such.
        """
        if numbers((a, b)) or names_of(a) == names_of(b):
            return False
        if (a, b) not in self._differ:
            rows = _tried(a, b)
            self._differ[a, b] = any(one != other and 1 in (one, other) for one, other in rows)
        return self._differ[a, b]

    def _repeated(self, builder: Builder, x: Expr, axis: int, size: Size) -> Expr:
        """Return a tensor of another size along an axis: an index beyond the end is the last."""
        limit = cast("float", extents((size,))[0])
        attrs = generate.Arange.Attrs(start=0, stop=limit, step=1, dtype=DType.INT64)
        indices = builder.call(generate.Arange, attrs=attrs)
        return call(Take, x, indices, attrs=Take.Attrs(axis=axis), span=builder.span)


def bound(
    types: Mapping[str, TensorType], sizes: Iterable[tuple[Size, Size]]
) -> dict[str, TensorType]:
    """Return types with other sizes in the place of size variables."""
    known = dict(sizes)
    return {
        name: type_.with_shape(known.get(size, size) for size in type_.shape)
        for name, type_ in types.items()
    }


def names_of(size: Size) -> frozenset[str]:
    """Return the names of the size variables in a size."""
    return size.variables() if isinstance(size, Dim) else frozenset()


def is_at_most_one(size: Size) -> bool:
    """Whether an open size is at most 1, as that of ``x[:1]``: 1, but for an empty ``x``."""
    return isinstance(size, Dim) and upper_bound(size, {}) == 1


def _require_repeated(own: Size, size: Size, name: str) -> None:
    why = f"{name}: {own} is broadcast, so it must be 1, or as large as the other operands"
    require_equal((own - size) * (own - 1), 0, why)


def _larger(a: Size, b: Size) -> Size:
    """Return the size that two sizes are broadcast to that are equal, or one of them 1.

    That is the larger one, but for 0 next to 1, which is 0. A sum says so, since products of many
    operands' sizes would pass the numbers that memory is counted in.
    """
    if known := numbers((a, b)):
        return known[0]
    return maximum(maximum(a, b) + minimum(minimum(a, b), 1) - 1, 0)


def _tried(a: Size, b: Size) -> Iterator[tuple[int, int]]:
    """Return values of two sizes for some of their variables; none if the run computes these."""
    sides = [names_of(size) for size in (a, b)]
    names = sorted(sides[0] | sides[1])
    if any(COMPUTED in name for name in names):
        return
    groups = [[name] for name in names]
    if len(names) > _MOST_VARIABLES:
        groups = [[*sides[0]], [*(sides[1] - sides[0])]]
    values = _TRIED_ALONE if len(names) == 1 else _TRIED
    for row in itertools.product(values, repeat=len(groups)):
        known = {name: value for group, value in zip(groups, row, strict=True) for name in group}
        yield value_of(a, known), value_of(b, known)
