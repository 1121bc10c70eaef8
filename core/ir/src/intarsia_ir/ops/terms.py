# SPDX-License-Identifier: Apache-2.0
"""Expressions that can be written down like formulas, and what a rule of differentiation sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from ..diagnostics import Span
from ..graph.expr import Call, Expr, call, constant, tensor_type
from ..graph.op import NO_ATTRS, Op, OpAttrs
from ..graph.types import TensorType
from . import binary, compare, generate, reduce, slicing
from . import shape as shaping
from .arrays import numpy_dtype


class Term(Struct, frozen=True):
    """An expression of static shape with arithmetic; numbers take its element type.

    Attributes:
        expr: The expression.
        span: Node that new calls are said to come from.
    """

    expr: Expr
    span: Span

    @property
    def type(self) -> TensorType:
        """Type of the tensor."""
        return tensor_type(self.expr)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.type.static_shape

    def apply(self, op: type[Op], *others: Term | float, attrs: OpAttrs | None = None) -> Term:
        """Apply ``op`` to this term and others, with its default attributes if none are given."""
        if attrs is None:
            attrs = NO_ATTRS if op.Attrs is OpAttrs else op.Attrs()
        operands = [self.number(x) if isinstance(x, int | float) else x for x in others]
        exprs = [self.expr, *(term.expr for term in operands)]
        return Term(call(op, *exprs, attrs=attrs, span=self.span), self.span)

    def number(self, value: float) -> Term:
        """Return a rank-0 constant of this term's element type."""
        data = np.array(value).astype(numpy_dtype(self.type.dtype))
        return Term(constant(data, span=self.span), self.span)

    def full(self, value: float, sizes: Sequence[int] | None = None) -> Term:
        """Return a tensor of equal elements of this term's type, or of another shape."""
        shape = self.sizes if sizes is None else tuple(sizes)
        attrs = generate.Full.Attrs(shape=shape, value=value, dtype=self.type.dtype)
        return Term(call(generate.Full, attrs=attrs, span=self.span), self.span)

    def __add__(self, other: Term | float) -> Term:
        return self.apply(binary.Add, other)

    def __radd__(self, other: float) -> Term:
        return self + other

    def __sub__(self, other: Term | float) -> Term:
        return self.apply(binary.Subtract, other)

    def __rsub__(self, other: float) -> Term:
        return self.number(other) - self

    def __mul__(self, other: Term | float) -> Term:
        return self.apply(binary.Multiply, other)

    def __rmul__(self, other: float) -> Term:
        return self * other

    def __truediv__(self, other: Term | float) -> Term:
        return self.apply(binary.Divide, other)

    def __rtruediv__(self, other: float) -> Term:
        return self.number(other) / self

    def __neg__(self) -> Term:
        return self * -1.0

    def above(self, other: Term | float) -> Term:
        """Whether each element is greater."""
        return self.apply(compare.Greater, other)

    def below(self, other: Term | float) -> Term:
        """Whether each element is less."""
        return self.apply(compare.Less, other)

    def equals(self, other: Term | float) -> Term:
        """Whether each element is equal."""
        return self.apply(compare.Equal, other)

    def where(self, condition: Term, other: Term | float) -> Term:
        """Return this where the condition holds, else ``other``."""
        left = self.number(other) if isinstance(other, int | float) else other
        return condition.apply(compare.Where, self, left)

    def reshape(self, sizes: Sequence[int]) -> Term:
        """Return the same elements in another shape."""
        if tuple(sizes) == self.sizes:
            return self
        return self.apply(shaping.Reshape, attrs=shaping.Reshape.Attrs(shape=tuple(sizes)))

    def transpose(self, axes: Sequence[int]) -> Term:
        """Permute the dimensions."""
        if list(axes) == list(range(self.type.rank)):
            return self
        return self.apply(shaping.Transpose, attrs=shaping.Transpose.Attrs(axes=tuple(axes)))

    def broadcast(self, sizes: Sequence[int]) -> Term:
        """Repeat along dimensions of size 1 and new leading ones."""
        if tuple(sizes) == self.sizes:
            return self
        return self.apply(shaping.BroadcastTo, attrs=shaping.BroadcastTo.Attrs(shape=tuple(sizes)))

    def sum(self, axes: Sequence[int], *, keepdims: bool = False) -> Term:
        """Sum over dimensions."""
        if not axes:
            return self
        attrs = reduce.Sum.Attrs(axes=tuple(axes), keepdims=keepdims)
        return self.apply(reduce.Sum, attrs=attrs)

    def mean(self, axes: Sequence[int]) -> Term:
        """Return the mean over dimensions, which are kept as 1."""
        attrs = reduce.Mean.Attrs(axes=tuple(axes), keepdims=True)
        return self.apply(reduce.Mean, attrs=attrs)

    def summed_to(self, sizes: Sequence[int]) -> Term:
        """Sum what broadcasting from ``sizes`` repeated."""
        skip = self.type.rank - len(sizes)
        grown = [skip + n for n, size in enumerate(sizes) if size == 1 != self.sizes[skip + n]]
        return self.sum([*range(skip), *grown]).reshape(sizes)

    def part(self, axis: int, begin: int, end: int) -> Term:
        """Take elements ``begin`` to ``end`` (exclusive) of one dimension."""
        if (begin, end) == (0, self.sizes[axis]):
            return self
        begins, ends = [0] * self.type.rank, list(self.sizes)
        begins[axis], ends[axis] = begin, end
        ones = (1,) * self.type.rank
        attrs = slicing.StridedSlice.Attrs(begin=tuple(begins), end=tuple(ends), strides=ones)
        return self.apply(slicing.StridedSlice, attrs=attrs)

    def padded(self, widths: Iterable[tuple[int, int]]) -> Term:
        """Put zeros around, or cut where a width is negative."""
        pairs = tuple(widths)
        if all(pair == (0, 0) for pair in pairs):
            return self
        return self.apply(slicing.Pad, attrs=slicing.Pad.Attrs(widths=pairs))

    def spread(self, axis: int, stride: int) -> Term:
        """Put ``stride - 1`` zeros after each element of one dimension but the last."""
        if stride == 1 or self.sizes[axis] == 0:
            return self
        rank, size = self.type.rank, self.sizes[axis]
        before, after = self.sizes[:axis], self.sizes[axis + 1 :]
        column = self.reshape((*before, size, 1, *after))
        wide = column.padded((0, stride - 1 if d == axis + 1 else 0) for d in range(rank + 1))
        return wide.reshape((*before, size * stride, *after)).part(axis, 0, (size - 1) * stride + 1)


class DerivativeStep(Struct, frozen=True):
    """One call that derivatives are carried back through.

    Attributes:
        call: The call.
        args: Its operands.
        result: Its result.
        adjoints: Derivatives by its result, or by each field of it; ``None`` where it is zero.
        needed: For each operand, whether a derivative by it is asked for.
    """

    call: Call
    args: tuple[Term, ...]
    result: Term
    adjoints: tuple[Term | None, ...]
    needed: tuple[bool, ...]

    @property
    def adjoint(self) -> Term:
        """The derivative by a result that is one tensor."""
        (found,) = self.adjoints
        assert found is not None
        return found

    def shares(self, *found: Term | None) -> Contributions:
        """Sum what each operand gets over what it was broadcast along."""
        return [
            None if share is None or not wanted else share.summed_to(operand.sizes)
            for share, operand, wanted in zip(found, self.args, self.needed, strict=True)
        ]


Contributions: TypeAlias = "Sequence[Term | None]"
"""Derivatives by the operands, as far as they come from one call; ``None`` is zero."""
