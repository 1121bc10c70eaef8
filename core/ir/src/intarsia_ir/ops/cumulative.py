# SPDX-License-Identifier: Apache-2.0
"""Running sums and products along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np
from msgspec import Struct

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Dim, TensorType, Type
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, load, parallel, seq, serial, store, unrolled
from ..tir.expr import BinaryOp, PrimExpr, binary, cast, const, index
from ..tir.func import PrimFunc
from ..tir.stmt import Stmt
from ..tir.tensor import extents
from .arrays import Array, in_float32
from .derivative import DERIVATIVES, derivative
from .elements import accumulator
from .integer_forms import INTEGER_FORMS
from .type_rules import check_axis, check_dtype, is_number, operands

if TYPE_CHECKING:
    from .terms import Contributions, DerivativeStep

COLUMNS = 64
"""Neighbouring running values that are carried along together."""

ROWS = 8
"""Rows carried along together where neighbours follow one another: each waits for its own sum."""

Place: TypeAlias = "tuple[PrimExpr, ...]"
At: TypeAlias = "Callable[[PrimExpr, PrimExpr], Place]"
"""The place of an element from its number along the dimension, and which running value it is of."""


class RunningAttrs(OpAttrs, frozen=True, kw_only=True):
    """``exclusive``: without the element itself; ``reverse``: from the end."""

    axis: int
    exclusive: bool = False
    reverse: bool = False


class _Running(Op):
    """What running sums and products share."""

    Attrs = RunningAttrs
    combine: ClassVar[BinaryOp]
    start: ClassVar[int]

    @classmethod
    def type_rule(cls, attrs: RunningAttrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        check_dtype(cls.name, is_number, "integer or floating-point", x)
        check_axis(cls.name, attrs.axis, x.rank)
        return x

    @classmethod
    def loops(cls, attrs: RunningAttrs, x: TensorType) -> PrimFunc:
        """Carry one value for each place outside the dimension, in float32 for half precision."""
        shape, axis = extents(x.shape), attrs.axis
        outer, size, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
        data, out = (Buffer(name, (outer, size, inner), x.dtype) for name in ("x", "out"))
        loops = _Loops(attrs, cls.combine, cls.start, data, out)
        wide = outer if inner == 1 else inner
        step = ROWS if inner == 1 else COLUMNS
        parts: list[Stmt] = []
        rest = wide % step
        # The remainder of an open size runs one by one: running values have a number of places.
        last = (wide - rest, rest, 1) if isinstance(rest, Dim) else (wide - rest, 1, rest)
        for first, count, width in ((0, wide // step, step), last):
            if width and count and size:
                parts.append(loops.places(first, count, width))
        return PrimFunc(cls.name, (data, out), 1, seq(*parts))


class _Loops(Struct, frozen=True):
    """The loops over some of the places outside the dimension."""

    attrs: RunningAttrs
    combine: BinaryOp
    start: int
    data: Buffer
    out: Buffer

    def places(self, first: int, count: int, width: int) -> Stmt:
        """Carry ``width`` values at a time from place ``first`` on, ``count`` times."""
        outer, _, inner = self.data.shape

        def one(number: PrimExpr) -> Stmt:
            def in_rows(at: PrimExpr, lane: PrimExpr) -> Place:
                return (number * width + first + lane, at, index(0))

            def in_columns(at: PrimExpr, lane: PrimExpr) -> Place:
                return (number // count, at, (number % count) * width + first + lane)

            if inner == 1:
                return self._carry(width, unrolled, MemoryScope.REGISTER, in_rows)
            return self._carry(width, serial, MemoryScope.STACK, in_columns)

        return parallel(count if inner == 1 else outer * count, one)

    def _carry(self, width: int, loop: Callable[..., Stmt], scope: MemoryScope, place: At) -> Stmt:
        """Go along the dimension with ``width`` running values."""
        size = self.data.shape[1]
        running = Buffer("running", (width,), accumulator(self.data.dtype), scope)

        def begin(lane: PrimExpr) -> Stmt:
            return store(running, (lane,), const(self.start, running.dtype))

        def step(number: PrimExpr) -> Stmt:
            at = index(size - 1) - number if self.attrs.reverse else number

            def each(lane: PrimExpr) -> Stmt:
                where, before = place(at, lane), load(running, lane)
                item = cast(load(self.data, *where), running.dtype)
                new = store(running, (lane,), binary(self.combine, before, item))
                out = store(self.out, where, cast(before, self.out.dtype))
                return seq(out, new) if self.attrs.exclusive else seq(new, out)

            return loop(width, each, "lane")

        body = seq(loop(width, begin, "lane"), serial(size, step, "number"))
        return allocate((running,), body)


@operator("cumsum", OpKind.OPAQUE)
class Cumsum(_Running):
    """Sums of all elements up to each, along a dimension; integers wrap."""

    combine = BinaryOp.ADD
    start = 0

    @staticmethod
    def reference(attrs: RunningAttrs, x: Array) -> Array:
        """NumPy's cumsum, flipped and shifted."""
        return _accumulated(np.cumsum, 0, attrs, x)


@operator("cumprod", OpKind.OPAQUE)
class Cumprod(_Running):
    """Products of all elements up to each, along a dimension; integers wrap."""

    combine = BinaryOp.MUL
    start = 1

    @staticmethod
    def reference(attrs: RunningAttrs, x: Array) -> Array:
        """NumPy's cumprod, flipped and shifted."""
        return _accumulated(np.cumprod, 1, attrs, x)


def _accumulated(
    function: Callable[..., Array], start: int, attrs: RunningAttrs, x: Array
) -> Array:
    """Apply NumPy's function in the order and with the shift that the attributes say."""

    def ordered(data: Array) -> Array:
        turned = np.flip(data, attrs.axis) if attrs.reverse else data
        found = function(turned, axis=attrs.axis, dtype=data.dtype)
        if attrs.exclusive:
            found = np.roll(found, 1, axis=attrs.axis)
            found[(*[slice(None)] * attrs.axis, slice(0, 1))] = start
        return np.flip(found, attrs.axis) if attrs.reverse else found

    return np.ascontiguousarray(in_float32(ordered, x))


@derivative(Cumsum)
def _cumsum_derivative(step: DerivativeStep, attrs: RunningAttrs) -> Contributions:
    """The running sum from the other end."""
    back = RunningAttrs(axis=attrs.axis, exclusive=attrs.exclusive, reverse=not attrs.reverse)
    return [step.adjoint.apply(Cumsum, attrs=back)]


DERIVATIVES.refuse("no rule is written that is right at zeros", Cumprod)
INTEGER_FORMS.refuse("running sums and products outgrow 32 bits", Cumsum, Cumprod)
