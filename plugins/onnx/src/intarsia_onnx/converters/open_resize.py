# SPDX-License-Identifier: Apache-2.0
"""Resize of sizes, or by scales, that only the run knows: one dimension after the other.

Where each new element lies is computed as a vector; the elements around it are gathered and added
up by their weights. A filter against aliasing has as many of these as the run's scale says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from msgspec import Struct

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.graph.op import Op
from intarsia_ir.graph.types import Dim, Size
from intarsia_ir.ops import binary, compare, indexing, reduce, resample, unary
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from ..resizing import scaled_size
from .computed import Numbers

_WIDE = DType.FLOAT64

_EXACT = 1 << 8
"""The numerator of a scale is less, so that float32 holds sizes below 65536 times it.

``size * numerator // denominator`` is then what ONNX Runtime's ``floor`` of a float32 product is.
"""

_MOST_PARTS = 1 << 32

BY_SCALE = "by_scale"
"""A way to the nearest element: down, but up where the dimension shrinks."""


class ResizedAxis(Struct, frozen=True, eq=False):
    """What becomes of one dimension.

    Attributes:
        axis: The dimension.
        old: Its size, float64.
        new: Its new size.
        scale: New elements for an old one, float64.
        region: Beginning and end of the part that is taken, 0 to 1, float64; ``None`` for all.
    """

    axis: int
    old: Expr
    new: Size
    scale: Expr
    region: tuple[Expr, Expr] | None = None


class OpenResize:
    """A Resize of one node.

    Args:
        node: The node.
        mode: ``nearest``, ``linear`` or ``cubic``.
        coordinates: ``coordinate_transformation_mode``.
        nearest: ``nearest_mode``, or :data:`BY_SCALE`.
    """

    def __init__(self, node: NodeContext, mode: str, coordinates: str, nearest: str) -> None:
        self._node = node
        self._mode = mode
        self._coordinates = coordinates
        self._nearest = nearest
        is_sharp = mode == "nearest" or coordinates == "tf_crop_and_resize"
        self._wide = DType.FLOAT32 if is_sharp else _WIDE
        """Where a rounding decides which element is taken, it is that of ONNX Runtime."""

    def apply(self, axes: Sequence[ResizedAxis]) -> Expr:
        """Return the resized tensor."""
        node, x = self._node, self._node.input(0)
        dtype = dtype_of(x)
        if self._mode != "nearest" and not dtype.is_float:
            x = node.cast(x, DType.FLOAT32 if dtype.bits <= 16 else _WIDE)
        outside: Expr | None = None
        for axis in map(self._narrowed, axes):
            places = self._places(axis)
            x = self._resized(x, axis, places)
            if axis.region is not None:
                beyond = node.along(self._outside(places, axis), axis.axis, rank_of(x))
                outside = (
                    beyond if outside is None else self._call(binary.LogicalOr, outside, beyond)
                )
        if outside is not None:
            value = node.scalar(node.number("extrapolation_value", 0.0), dtype_of(x))
            x = self._call(compare.Where, outside, value, x)
        if dtype_of(x) is dtype:
            return x
        # Integers are interpolated in float, then rounded and saturated, as in ONNX's reference.
        return node.cast(node.call(unary.Round, x), dtype)

    def _call(self, op: type[Op], *args: Expr) -> Expr:
        return self._node.call(op, *args)

    def _number(self, value: float) -> Expr:
        return self._node.scalar(value, self._wide)

    def _new(self, axis: ResizedAxis) -> Expr:
        return self._node.cast(Numbers(self._node).size(axis.new), self._wide)

    def _narrowed(self, axis: ResizedAxis) -> ResizedAxis:
        """Return the same with all numbers in the type of this resize."""
        node, region = self._node, axis.region
        if region is not None:
            region = (node.cast(region[0], self._wide), node.cast(region[1], self._wide))
        old, scale = node.cast(axis.old, self._wide), node.cast(axis.scale, self._wide)
        return ResizedAxis(axis.axis, old, axis.new, scale, region)

    def _places(self, axis: ResizedAxis) -> Expr:
        """Return where in the old dimension each new element lies."""
        call, number = self._call, self._number
        index = self._node.cast(Numbers(self._node).range(axis.new), self._wide)
        one, half, new = number(1), number(0.5), self._new(axis)
        last = call(binary.Subtract, axis.old, one)
        between = call(binary.Maximum, call(binary.Subtract, new, one), one)
        is_one = call(compare.LessEqual, new, one)
        if axis.region is not None:
            low, high = axis.region
            part = call(binary.Multiply, index, call(binary.Subtract, high, low))
            spread = call(binary.Divide, call(binary.Multiply, part, last), between)
            spread = call(binary.Add, call(binary.Multiply, low, last), spread)
            middle = call(binary.Multiply, call(binary.Add, low, high), half)
            return call(compare.Where, is_one, call(binary.Multiply, middle, last), spread)
        if self._coordinates == "align_corners":
            resized = call(binary.Multiply, axis.old, axis.scale)
            between = call(binary.Subtract, resized, one)
            spread = call(binary.Divide, call(binary.Multiply, index, last), between)
            return call(compare.Where, call(compare.Equal, resized, one), number(0), spread)
        if self._coordinates == "asymmetric":
            return call(binary.Divide, index, axis.scale)
        centred = call(binary.Divide, call(binary.Add, index, half), axis.scale)
        centred = call(binary.Subtract, centred, half)
        if self._coordinates == "pytorch_half_pixel":
            return call(compare.Where, is_one, number(0), centred)
        if self._coordinates == "half_pixel_symmetric":
            adjusted = call(binary.Divide, new, call(binary.Multiply, axis.scale, axis.old))
            moved = call(binary.Multiply, axis.old, call(binary.Subtract, one, adjusted))
            return call(binary.Add, call(binary.Multiply, moved, half), centred)
        return centred

    def _outside(self, places: Expr, axis: ResizedAxis) -> Expr:
        before = self._call(compare.Less, places, self._number(0))
        last = self._call(binary.Subtract, axis.old, self._number(1))
        return self._call(binary.LogicalOr, before, self._call(compare.Greater, places, last))

    def _resized(self, x: Expr, axis: ResizedAxis, places: Expr) -> Expr:
        if self._mode == "nearest":
            return self._taken(x, axis, self._rounded(places, axis))
        if self._node.integer("antialias", 0):
            return self._filtered(x, axis, places)
        dtype, rank = dtype_of(x), rank_of(x)
        total: Expr | None = None
        for index, weight in self._taps(axis, places):
            share = self._node.along(self._node.cast(weight, dtype), axis.axis, rank)
            part = self._call(binary.Multiply, self._taken(x, axis, index), share)
            total = part if total is None else self._call(binary.Add, total, part)
        assert total is not None  # there are taps
        return total

    def _filtered(self, x: Expr, axis: ResizedAxis, places: Expr) -> Expr:
        """Return sums of as many elements as the filter reaches, which a scale below 1 widens.

        The border is repeated first, as far as the filter reaches beyond it.
        """
        call, node, numbers = self._call, self._node, Numbers(self._node)
        shrink = call(binary.Minimum, axis.scale, self._number(1))
        reach = self._number(1 if self._mode == "linear" else 2)
        half = numbers.as_size(
            node.cast(call(unary.Ceil, call(binary.Divide, reach, shrink)), DType.INT64)
        )
        size = sizes_of(x)[axis.axis]
        grown = numbers.subtract(numbers.range(size + 2 * half), numbers.size(half))
        x = self._taken(x, axis, grown)
        floors = call(unary.Floor, places)
        first = call(binary.Subtract, floors, node.cast(numbers.size(half), self._wide))
        first = node.reshape(call(binary.Add, first, self._number(1)), (axis.new, 1))
        near = call(binary.Add, first, node.cast(numbers.range(2 * half), self._wide))
        distance = call(binary.Subtract, near, node.reshape(places, (axis.new, 1)))
        weights = self._weight(call(binary.Multiply, call(unary.Abs, distance), shrink))
        if self._node.integer("exclude_outside", 0):
            weights = call(compare.Where, self._is_inside(near, axis), weights, self._number(0))
        total = node.call(reduce.Sum, weights, attrs=reduce.Sum.Attrs(axes=(1,), keepdims=True))
        weights = node.cast(call(binary.Divide, weights, total), DType.FLOAT32)
        starts = node.cast(call(binary.Add, floors, self._number(1)), DType.INT64)
        attrs = resample.Resample.Attrs(axis=axis.axis)
        return node.call(resample.Resample, x, starts, weights, attrs=attrs)

    def _is_inside(self, place: Expr, axis: ResizedAxis) -> Expr:
        """Whether places are those of elements."""
        last = self._call(binary.Subtract, axis.old, self._number(1))
        return self._call(
            binary.LogicalAnd,
            self._call(compare.GreaterEqual, place, self._number(0)),
            self._call(compare.LessEqual, place, last),
        )

    def _taken(self, x: Expr, axis: ResizedAxis, places: Expr) -> Expr:
        """Gather elements; the border repeats outside."""
        numbers, node = Numbers(self._node), self._node
        last = numbers.subtract(numbers.size(sizes_of(x)[axis.axis]), numbers.of(1))
        inside = numbers.within(node.cast(places, DType.INT64), numbers.of(0), last)
        attrs = indexing.Take.Attrs(axis=axis.axis)
        return node.call(indexing.Take, x, inside, attrs=attrs)

    def _rounded(self, places: Expr, axis: ResizedAxis) -> Expr:
        call, half = self._call, self._number(0.5)
        match self._nearest:
            case way if way == BY_SCALE:
                shrinks = call(compare.Less, axis.scale, self._number(1))
                ends = (call(unary.Ceil, places), call(unary.Floor, places))
                return call(compare.Where, shrinks, *ends)
            case "floor":
                return call(unary.Floor, places)
            case "ceil":
                return call(unary.Ceil, places)
            case "round_prefer_ceil":
                return call(unary.Floor, call(binary.Add, places, half))
            case _:
                return call(unary.Ceil, call(binary.Subtract, places, half))

    def _taps(self, axis: ResizedAxis, places: Expr) -> Iterator[tuple[Expr, Expr]]:
        """Yield the place and the weight of each element that a new one is made of."""
        call = self._call
        reach = 1 if self._mode == "linear" else 2
        floors = call(unary.Floor, places)
        found: list[tuple[Expr, Expr]] = []
        exclude = bool(self._node.integer("exclude_outside", 0))
        for offset in range(1 - reach, 1 + reach):
            place = call(binary.Add, floors, self._number(offset))
            weight = self._weight(call(unary.Abs, call(binary.Subtract, place, places)))
            if exclude:
                inside = self._is_inside(place, axis)
                weight = call(compare.Where, inside, weight, self._number(0))
            found.append((place, weight))
        if exclude:
            total = found[0][1]
            for _, weight in found[1:]:
                total = call(binary.Add, total, weight)
            found = [(place, call(binary.Divide, weight, total)) for place, weight in found]
        for place, weight in found:
            yield place, weight

    def _weight(self, distance: Expr) -> Expr:
        call, number = self._call, self._number
        if self._mode == "linear":
            return call(binary.Maximum, call(binary.Subtract, number(1), distance), number(0))
        return self._cubic(distance)

    def _cubic(self, distance: Expr) -> Expr:
        """Keys' kernel of a distance; 0 from 2 on."""
        a = self._node.number("cubic_coeff_a", -0.75)
        near = self._polynomial(distance, (a + 2, -(a + 3), 0, 1))
        far = self._polynomial(distance, (a, -5 * a, 8 * a, -4 * a))
        call, number = self._call, self._number
        is_near = call(compare.LessEqual, distance, number(1))
        far = call(compare.Where, call(compare.Less, distance, number(2)), far, number(0))
        return call(compare.Where, is_near, near, far)

    def _polynomial(self, x: Expr, factors: Sequence[float]) -> Expr:
        total = self._number(factors[0])
        for factor in factors[1:]:
            total = self._call(binary.Multiply, total, x)
            total = self._call(binary.Add, total, self._number(factor))
        return total


def open_axes(node: NodeContext, axes: Sequence[int], *, crop: bool) -> list[ResizedAxis]:
    """Return what becomes of each dimension that a Resize changes.

    Raises:
        ModelError: There are neither scales nor sizes, or not one for each axis.
    """
    numbers, by_size = Numbers(node), node.optional(3) is not None
    given = node.input(3 if by_size else 2)
    count, why = sizes_of(given), f"needs {len(axes)} scales or sizes"
    if len(count) != 1 or not require_equal(count[0], len(axes), f"{node.span}: {why}"):
        raise node.model_error(f"{why}, got {tensor_type(given)}")
    old = [node.cast(numbers.size(sizes_of(node.input(0))[axis]), _WIDE) for axis in axes]
    regions: list[tuple[Expr, Expr] | None] = [None] * len(axes)
    if crop:
        roi = node.cast(node.input(1), _WIDE)
        regions = [
            (node.item(roi, 0, n), node.item(roi, 0, len(axes) + n)) for n in range(len(axes))
        ]
    if by_size:
        wanted, scales = _by_sizes(node, axes, old)
    else:
        scales = [node.item(node.cast(given, _WIDE), 0, n) for n in range(len(axes))]
        wanted = [
            _scaled(node, sizes_of(node.input(0))[axis], size, scale)
            for axis, size, scale in zip(axes, old, scales, strict=True)
        ]
    return [
        ResizedAxis(*row)
        for row in zip(axes, old, wanted, scales, regions, strict=True)
        if not _is_same(node, row)
    ]


def _is_same(node: NodeContext, row: tuple[int, Expr, Size, Expr, object]) -> bool:
    """Whether a dimension stays as it is."""
    axis, _, new, scale, region = row
    known = node.folder.value(scale)
    is_one = known is None or float(known.reshape(())) == 1.0
    return region is None and is_one and new == sizes_of(node.input(0))[axis]


def _scaled(node: NodeContext, size: Size, old: Expr, scale: Expr) -> Size:
    """Return ``floor(size * scale)``, of a region too; the product is rounded to float32.

    ONNX's text multiplies by the part that a region takes; ONNX Runtime, ONNX's reference and its
    shape inference do not.
    """
    known = node.folder.value(scale)
    if known is not None:
        number = float(known.reshape(()))
        if isinstance(size, int):
            return scaled_size(size, number)
        factor = Fraction(number)
        if 0 < factor.numerator < _EXACT and factor.denominator < _MOST_PARTS:
            return size * factor.numerator // factor.denominator
    product = node.call(binary.Multiply, *(node.cast(x, DType.FLOAT32) for x in (old, scale)))
    return Numbers(node).as_size(node.cast(node.call(unary.Floor, product), DType.INT64))


def _by_sizes(
    node: NodeContext, axes: Sequence[int], old: Sequence[Expr]
) -> tuple[list[Size], list[Expr]]:
    """Return new sizes and scales of given sizes; a policy may keep the aspect ratio."""
    numbers = Numbers(node)
    wanted: list[Size] = list(node.required_sizes(3, "the sizes"))
    new = [node.cast(numbers.size(size), _WIDE) for size in wanted]
    scales = [node.call(binary.Divide, a, b) for a, b in zip(new, old, strict=True)]
    policy = node.string("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return wanted, scales
    if policy not in ("not_larger", "not_smaller"):
        raise node.model_error(f"keep_aspect_ratio_policy='{policy}' is not defined")
    ratio = node.cast(scales[0], DType.FLOAT32)
    for scale in scales[1:]:
        op = binary.Minimum if policy == "not_larger" else binary.Maximum
        ratio = node.call(op, ratio, node.cast(scale, DType.FLOAT32))
    half = node.scalar(0.5, _WIDE)
    products = (node.call(binary.Multiply, ratio, node.cast(x, DType.FLOAT32)) for x in old)
    rounded = [
        node.call(unary.Floor, node.call(binary.Add, node.cast(x, _WIDE), half)) for x in products
    ]
    ratio = node.cast(ratio, _WIDE)
    sizes = [numbers.as_size(node.cast(x, DType.INT64)) for x in rounded]
    return sizes, [ratio] * len(axes)


def is_open_resize(node: NodeContext) -> bool:
    """Whether sizes of a Resize, or what it resizes by, are only known when the model runs."""
    opened = any(isinstance(size, Dim) for size in node.type_of(0).shape)
    return opened or any(not node.is_fixed(index) for index in (1, 2, 3))
