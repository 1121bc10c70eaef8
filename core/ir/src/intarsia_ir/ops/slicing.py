# SPDX-License-Identifier: Apache-2.0
"""A part of a tensor, and a tensor with something around it."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import SizeOp, maximum, numbers
from intarsia_runtime.size import minimum as smaller_size

from ..graph.guards import is_collecting, is_required_natural, require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Dim, Size, TensorType, Type
from ..tir.expr import PrimExpr, const, if_then_else, minimum, select
from ..tir.expr import maximum as larger
from ..tir.tensor import Tensor, compute, extents
from .arrays import Array
from .elements import inside
from .type_rules import operands, shape_text

TO_END = 2**31 - 1
"""An ``end`` of :class:`StridedSlice` from which on a symbolic dimension is taken to its end."""


@operator("strided_slice", OpKind.INJECTIVE)
class StridedSlice(Op):
    """Every ``stride``-th element from ``begin`` on, before ``end``, in each dimension."""

    fixed_sizes = "those that are cut: how much is left must be known"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """One entry for each dimension, in range: an ``end`` of -1 is before the first element.

        Of a symbolic dimension the part from ``begin`` to its end is taken if ``end`` is
        ``TO_END`` or more; else ``begin`` and ``end`` are sizes in range, which may be symbolic.
        """

        begin: tuple[int, ...]
        end: tuple[int, ...]
        strides: tuple[int, ...]

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """How many elements are taken in each dimension."""
        (x,) = operands(cls.name, types, 1)
        if not len(attrs.begin) == len(attrs.end) == len(attrs.strides) == x.rank:
            raise TypeRuleError(
                f"{cls.name}: begin {attrs.begin}, end {attrs.end} and strides {attrs.strides} must"
                f" have one entry for each dimension of {shape_text(x.shape)}"
            )
        ranges = zip(x.shape, attrs.begin, attrs.end, attrs.strides, strict=True)
        return x.with_shape(_slice_size(cls.name, *entry) for entry in ranges)

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """NumPy's slicing, contiguous."""
        ranges = zip(attrs.begin, attrs.end, attrs.strides, strict=True)
        slices = tuple(slice(b, None if e < 0 else e, s) for b, e, s in ranges)
        return np.array(x[slices], order="C")

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Read at ``begin`` plus a multiple of the stride."""
        ranges = zip(x.shape, attrs.begin, attrs.end, attrs.strides, strict=True)
        sizes = [_slice_size("strided_slice", *entry) for entry in ranges]

        def element(*indices: PrimExpr) -> PrimExpr:
            steps = zip(indices, attrs.begin, attrs.strides, strict=True)
            return x[tuple(i * stride + begin for i, begin, stride in steps)]

        return compute(extents(sizes), element, name="strided_slice")


def _slice_size(name: str, size: Size, begin: int, end: int, stride: int) -> Size:
    """Return how many elements a slice of one dimension has."""
    if isinstance(size, Dim) or isinstance(begin, Dim) or isinstance(end, Dim):
        why = f"{name}: a slice must lie inside"
        require_at_most(0, begin, why)
        require_at_most(begin, size, why)
        if stride >= 1 and (isinstance(end, Dim) or (isinstance(begin, Dim) and end < TO_END)):
            require_at_most(end, size, why)
            length = _between(begin, end)
            length = length if is_required_natural(length) else maximum(length, 0)
            return (length + (stride - 1)) // stride
        is_limit = not isinstance(begin, Dim) and 0 <= begin <= end < TO_END and stride >= 1
        if is_limit and is_collecting():
            require_at_most(end, size, why)
            return (end - begin + (stride - 1)) // stride
        if stride < 1 or end < TO_END or any(number < 0 for number in numbers([begin])):
            raise TypeRuleError(
                f"{name}: of the symbolic size {size} only a part up to its end can be taken, not"
                f" {begin}:{end}:{stride}"
            )
        return (size + (stride - 1 - begin)) // stride
    top = size if stride > 0 else size - 1
    low = 0 if stride > 0 else -1
    if stride == 0 or not (0 <= begin <= max(top, 0) and low <= end <= top):
        raise TypeRuleError(f"{name}: {begin}:{end}:{stride} is no slice of a dimension of {size}")
    return len(range(begin, end, stride))


def _between(begin: Size, end: Size) -> Size:
    """Return ``end - begin``; that of ``x[-2:]``, which begins at ``max(n - 2, 0)``, is at most 2.

    The size would be right without, but nobody would see that ``x[-1:]`` has one element.
    """
    match begin:
        case Dim(terms=((((SizeOp(op="max", a=a, b=b),), 1)),)):
            return smaller_size(end - a, end - b)
        case _:
            return end - begin


def _reflected(x: Array, widths: list[tuple[int, int]]) -> Array:
    return np.pad(x, widths, mode="reflect")


def _edged(x: Array, widths: list[tuple[int, int]]) -> Array:
    return np.pad(x, widths, mode="edge")


def _wrapped(x: Array, widths: list[tuple[int, int]]) -> Array:
    return np.pad(x, widths, mode="wrap")


_PADDED = MappingProxyType({"reflect": _reflected, "edge": _edged, "wrap": _wrapped})


@operator("nn.pad", OpKind.INJECTIVE)
class Pad(Op):
    """A tensor grown (or, by negative widths, cut) at its edges."""

    fixed_sizes = "those that are cut: how much is left must be known"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``widths``: (before, after) of each dimension.

        ``mode``: ``constant`` fills with ``value``, ``edge`` repeats the last element, ``reflect``
        mirrors without repeating it, ``wrap`` continues at the other end.
        """

        widths: tuple[tuple[int, int], ...]
        mode: str = "constant"
        value: float = 0.0

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """Each size plus its widths."""
        (x,) = operands(cls.name, types, 1)
        if attrs.mode not in ("constant", "reflect", "edge", "wrap"):
            raise TypeRuleError(
                f"{cls.name}: mode '{attrs.mode}' is none of constant, reflect, edge, wrap"
            )
        if len(attrs.widths) != x.rank:
            raise TypeRuleError(
                f"{cls.name}: {len(attrs.widths)} width pairs for the dimensions of"
                f" {shape_text(x.shape)}"
            )
        for size, (low, high) in zip(x.shape, attrs.widths, strict=True):
            _check_widths(cls.name, attrs.mode, size, low, high)
        return x.with_shape(
            size + (low + high) for size, (low, high) in zip(x.shape, attrs.widths, strict=True)
        )

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """Cut, then NumPy's pad."""
        cuts = tuple(
            slice(max(0, -low), size - max(0, -high))
            for size, (low, high) in zip(x.shape, attrs.widths, strict=True)
        )
        grown = [(max(low, 0), max(high, 0)) for low, high in attrs.widths]
        if not grown:  # NumPy pads no scalar
            return x.copy()
        if attrs.mode == "constant":
            fill = np.asarray(attrs.value).astype(x.dtype)
            return np.pad(x[cuts], grown, constant_values=fill)
        return np.array(_PADDED[attrs.mode](x[cuts], grown), order="C")

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Read inside, and by the mode's rule outside."""
        pairs = list(zip(x.shape, attrs.widths, strict=True))
        shape = tuple(size + low + high for size, (low, high) in pairs)

        def element(*indices: PrimExpr) -> PrimExpr:
            place = [i - low for i, (low, _) in zip(indices, attrs.widths, strict=True)]
            if attrs.mode != "constant":
                moved = zip(place, pairs, strict=True)
                return x[tuple(_source(attrs.mode, i, size, *w) for i, (size, w) in moved)]
            edges = [
                (i, size)
                for i, (size, (low, high)) in zip(place, pairs, strict=True)
                if low > 0 or high > 0
            ]
            value = x[tuple(place)]
            return (
                if_then_else(inside(edges), value, const(attrs.value, x.dtype)) if edges else value
            )

        return compute(shape, element, name="nn_pad")


def _check_widths(name: str, mode: str, size: Size, low: int, high: int) -> None:
    """Check the widths of one dimension.

    Raises:
        TypeRuleError: They cut more than there is, or the mode has no element to fill with.
    """
    if not isinstance(size, int):
        if low < 0 or high < 0:
            raise TypeRuleError(
                f"{name}: widths ({low}, {high}) may not cut the symbolic size {size}"
            )
        if mode != "constant" and max(low, high) > 0:
            least = max(low, high) + 1 if mode == "reflect" else 1
            require_at_most(least, size, f"{name}: there must be elements to fill with")
        return
    left = size + min(low, 0) + min(high, 0)
    if left < 0:
        raise TypeRuleError(f"{name}: widths ({low}, {high}) cut more than a dimension of {size}")
    if mode == "reflect" and max(low, high, 0) > max(left - 1, 0):
        raise TypeRuleError(
            f"{name}: widths ({low}, {high}) reflect more than a dimension of {left} holds"
        )
    if mode != "constant" and left == 0 and max(low, high) > 0:
        raise TypeRuleError(f"{name}: mode '{mode}' has nothing to fill ({low}, {high}) with")


def _source(mode: str, index: PrimExpr, size: int, low: int, high: int) -> PrimExpr:
    """Return where the element comes from that ``index``, counted in the operand, stands for."""
    if low <= 0 and high <= 0:
        return index
    first = max(0, -low)
    left = size - first - max(0, -high)
    place = index - first
    if mode == "edge":
        place = minimum(larger(place, 0), left - 1)
    elif mode == "wrap":
        place = place % left
    else:
        place = select(place < 0, 0 - place, place)
        place = select(place < left, place, 2 * (left - 1) - place)
    return place + first
