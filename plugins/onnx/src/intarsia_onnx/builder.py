# SPDX-License-Identifier: Apache-2.0
"""Short forms of the calls that most converters make; none makes a call that changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Constant, Expr, call, constant, tensor_type
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.graph.op import NO_ATTRS, Op, OpAttrs
from intarsia_ir.graph.types import Dim, Size
from intarsia_ir.ops import generate, nn, slicing, unary
from intarsia_ir.ops import shape as shaping
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.ops.run_sizes import SizeOf, WithSizes
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import numbers, product

from .fold import ConstantFolder
from .run_sizes import Hole

STATIC_HINT = "give every input a shape, e.g. --shape input:1,3,224,224"


class Builder:
    """Makes calls that carry one node's span."""

    __slots__ = ("folder", "span")

    def __init__(self, span: Span, folder: ConstantFolder) -> None:
        self.span = span
        self.folder = folder

    def call(self, op: type[Op], *args: Expr, attrs: OpAttrs | None = None) -> Expr:
        """Apply ``op``, with its default attributes if none are given; errors name the node.

        Where attributes have sizes that the model computes, operands come to depend on these.
        """
        if attrs is None:
            attrs = NO_ATTRS if op.Attrs is OpAttrs else op.Attrs()
        args = self.folder.broadcasts.expanded(self, op, args)
        sizes = self.folder.run_sizes.missing(attrs, args)
        if sizes and args:
            args = (call(WithSizes, args[0], *sizes, span=self.span), *args[1:])
        return call(op, *(args or sizes), attrs=attrs, span=self.span)

    def size_of(self, value: Expr, index: int = 0) -> Dim:
        """Make an element of an integer tensor a size variable; a run checks that it is a size."""
        known, hole = self.folder.run_sizes, Hole(value, index)
        found = known.known(hole)
        if found is None:
            count = tensor_type(value).elements
            flat = self.reshape(self.cast(value, DType.INT64), (count,))
            item = self.reshape(self.slice(flat, 0, index, index + 1), ())
            found = known.new_name(self.span.name or "size")
            attrs = SizeOf.Attrs(size=extents((found,))[0])
            known.define(hole, found, call(SizeOf, item, attrs=attrs, span=self.span))
        return found

    def behind(self, x: Expr, *sizes: Size) -> Expr:
        """Let a tensor depend on the calls that define sizes: guards of these are checked then."""
        attrs = generate.Sizes.Attrs(sizes=extents(sizes))
        missing = self.folder.run_sizes.missing(attrs, (x,))
        return call(WithSizes, x, *missing, span=self.span) if missing else x

    def size_tensor(self, *sizes: Size) -> Expr:
        """Make a vector of sizes."""
        if all(isinstance(size, int) for size in sizes):
            return self.array(np.array(sizes, np.int64))
        return self.call(generate.Sizes, attrs=generate.Sizes.Attrs(sizes=extents(sizes)))

    def array(self, data: np.ndarray) -> Constant:
        """Wrap an array."""
        return constant(data, span=self.span)

    def scalar(self, value: float, dtype: DType) -> Constant:
        """Make a rank-0 constant."""
        return constant(np.array(value).astype(numpy_dtype(dtype)), span=self.span)

    def full(self, shape: Sequence[int], value: float, dtype: DType) -> Expr:
        """Make a tensor of equal elements without storing them."""
        attrs = generate.Full.Attrs(shape=tuple(shape), value=value, dtype=dtype)
        return self.call(generate.Full, attrs=attrs)

    def folded(self, expr: Expr) -> Expr:
        """Return the value of ``expr`` as a constant if it is known and small, else ``expr``."""
        value = self.folder.value(expr)
        return expr if value is None or isinstance(expr, Constant) else self.array(value)

    def reshape(self, x: Expr, shape: Sequence[Size]) -> Expr:
        """Give ``x`` another shape with the same number of elements.

        Args:
            x: Tensor.
            shape: New sizes; one of them may be -1, which is what the others leave.
        """
        new = tuple(shape)
        if tensor_type(x).shape == new:
            return x
        if isinstance(x, Constant) and x.type.elements == product(new):
            return constant(x.data.reshape(extents(new)), name=x.name, span=x.span)
        return self.call(shaping.Reshape, x, attrs=shaping.Reshape.Attrs(shape=extents(new)))

    def transpose(self, x: Expr, axes: Sequence[int]) -> Expr:
        """Permute the dimensions of ``x``."""
        if list(axes) == list(range(tensor_type(x).rank)):
            return x
        return self.call(shaping.Transpose, x, attrs=shaping.Transpose.Attrs(axes=tuple(axes)))

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """Convert the elements of ``x``."""
        if tensor_type(x).dtype is dtype:
            return x
        return self.call(unary.Cast, x, attrs=unary.Cast.Attrs(dtype=dtype))

    def broadcast(self, x: Expr, shape: Sequence[int]) -> Expr:
        """Repeat ``x`` along dimensions of size 1 up to ``shape``."""
        new = tuple(shape)
        if tensor_type(x).shape == new:
            return x
        return self.call(shaping.BroadcastTo, x, attrs=shaping.BroadcastTo.Attrs(shape=new))

    def concat(self, parts: Sequence[Expr], axis: int) -> Expr:
        """Join tensors along ``axis``."""
        if len(parts) == 1:
            return parts[0]
        attrs = shaping.Concatenate.Attrs(axis=axis)
        return self.call(shaping.Concatenate, *parts, attrs=attrs)

    def matmul(
        self, a: Expr, b: Expr, *, transpose_a: bool = False, transpose_b: bool = False
    ) -> Expr:
        """Multiply matrices ``[..., M, K]`` and ``[..., K, N]``, or transposed ones.

        Where one of them has an open size for K, such as ``c*h*w``, and the other has a number,
        it is given that number, which kernels are made for.
        """
        axes = -2 if transpose_a else -1, -1 if transpose_b else -2
        depths = [sizes_of(x)[axis] for x, axis in zip((a, b), axes, strict=True)]
        known = numbers(depths)
        if len(known) == 1:
            a, b = (self.with_size(x, axis, known[0]) for x, axis in zip((a, b), axes, strict=True))
        attrs = nn.Matmul.Attrs(transpose_a=transpose_a, transpose_b=transpose_b)
        return self.call(nn.Matmul, a, b, attrs=attrs)

    def with_size(self, x: Expr, axis: int, size: int) -> Expr:
        """Give a dimension along which a weight has a number of elements that number."""
        shape = [*sizes_of(x)]
        why = f"{self.span}: a weight says how large dimension {axis % len(shape)} is"
        require_equal(shape[axis], size, why)
        shape[axis] = size
        return self.reshape(x, shape)

    def slice(self, x: Expr, axis: int, begin: int, end: int) -> Expr:
        """Take elements ``begin`` to ``end`` (exclusive) of one dimension of a static tensor."""
        sizes = extents(tensor_type(x).shape)
        if begin == 0 and end == sizes[axis]:
            return x
        begins, ends = [0] * len(sizes), list(sizes)
        begins[axis], ends[axis] = begin, end
        attrs = slicing.StridedSlice.Attrs(
            begin=tuple(begins), end=tuple(ends), strides=(1,) * len(sizes)
        )
        return self.call(slicing.StridedSlice, x, attrs=attrs)

    def item(self, x: Expr, axis: int, index: int) -> Expr:
        """Take one element of one dimension, which goes away."""
        sizes = extents(tensor_type(x).shape)
        part = self.slice(x, axis, index, index + 1)
        return self.reshape(part, sizes[:axis] + sizes[axis + 1 :])

    def along(self, x: Expr, axis: int, rank: int) -> Expr:
        """Reshape a vector so that it broadcasts along dimension ``axis`` of a tensor."""
        sizes = tensor_type(x).shape
        if not sizes or rank == 0:
            return x
        shape: list[Size] = [1] * rank
        shape[axis] = product(sizes)
        return self.reshape(x, shape)


def sizes_of(x: Expr) -> tuple[Size, ...]:
    """Return the sizes of a tensor, symbolic ones included."""
    return tensor_type(x).shape


def rank_of(x: Expr) -> int:
    """Return the number of dimensions of a tensor."""
    return tensor_type(x).rank


def dtype_of(x: Expr) -> DType:
    """Return the element type of a tensor."""
    return tensor_type(x).dtype
