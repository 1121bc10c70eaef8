# SPDX-License-Identifier: Apache-2.0
"""Resampling of a tensor, and exchange of blocks of pixels with channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import remainder

from ..graph.guards import require_at_most, require_equal
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Dim, TensorType, Type
from ..tir import expr as tir
from ..tir.expr import INDEX, PrimExpr, cast
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute
from .arrays import Array, in_float32, numpy_dtype
from .elements import narrowed, wide
from .type_rules import check_dtype, is_float, operands, shape_text

P = TypeVar("P", Array, PrimExpr)

MAX_PERIOD = 8
"""Most elements after which weights repeat that are numbers in the code."""

_MODES = ("nearest", "linear", "cubic")
_NEAREST_MODES = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_COORDINATE_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
)


class Resampling(Struct, frozen=True):
    """Where position ``i`` of the result lies in the operand: ``(i * step + shift) / by + start``.

    Reference and compute rule evaluate this in the same type and order, so that both round alike:
    in float64, but in float32 where the nearest element is taken. There a place just below a whole
    number and the number itself give different elements, and ONNX Runtime decides in float32.
    """

    old: int
    new: int
    step: float
    shift: float
    by: float
    start: float

    def positions(self, dtype: DType = DType.FLOAT64) -> Array:
        """Return the place of every position, counted in the operand."""
        kind = numpy_dtype(dtype).type
        numbers = np.arange(self.new).astype(kind)
        return (numbers * kind(self.step) + kind(self.shift)) / kind(self.by) + kind(self.start)

    def position(self, index: PrimExpr, dtype: DType = DType.FLOAT64) -> PrimExpr:
        """Return the place of one position, counted in the operand."""
        number = cast(index, dtype)
        return (number * self.step + self.shift) / self.by + self.start


def _resampling(mode: str, old: int, new: int, scale: float) -> Resampling:
    resized = old * scale
    if mode == "align_corners":
        if resized == 1:
            return Resampling(old, new, 0.0, 0.0, 1.0, 0.0)
        return Resampling(old, new, float(old - 1), 0.0, resized - 1, 0.0)
    if mode == "asymmetric":
        return Resampling(old, new, 1.0, 0.0, scale, 0.0)
    if mode == "pytorch_half_pixel" and new == 1:
        return Resampling(old, new, 0.0, 0.0, 1.0, 0.0)
    start = -0.5
    if mode == "half_pixel_symmetric":
        start += old / 2 * (1 - new / resized)
    return Resampling(old, new, 1.0, 0.5, scale, start)


def _nearest_table(mode: str, along: Resampling) -> Array:
    """Return the element of the operand that each position of the result takes."""
    place = along.positions(DType.FLOAT32)
    match mode:
        case "floor":
            whole = np.floor(place)
        case "ceil":
            whole = np.ceil(place)
        case "round_prefer_floor":
            whole = np.ceil(place - 0.5)
        case _:
            whole = np.floor(place + 0.5)
    return np.clip(whole, 0, along.old - 1).astype(np.int64)


def _nearest_elements(mode: str, along: Resampling) -> Callable[[PrimExpr], PrimExpr]:
    """Return what gives the element taken, in integers if that is the same for every position.

    Other elements are a tensor of their own: their positions have a division, and are those of
    every row.
    """
    table = _nearest_table(mode, along)
    numbers = np.arange(along.new)
    ratio = max(1, along.new // max(along.old, 1))
    if np.array_equal(table, numbers // ratio):
        return lambda index: index // ratio
    step = along.old // max(along.new, 1)
    if np.array_equal(table, numbers * step):
        return lambda index: index * step

    def element(index: PrimExpr) -> PrimExpr:
        return _nearest_element(mode, along, index)

    places = compute((along.new,), element, name="nn_resize_places")
    return lambda index: places[(index,)]


def _nearest_element(mode: str, along: Resampling, index: PrimExpr) -> PrimExpr:
    """Return the element taken, as the reference computes it."""
    place = along.position(index, DType.FLOAT32)
    match mode:
        case "floor":
            whole = tir.intrinsic(Intrinsic.FLOOR, place)
        case "ceil":
            whole = tir.intrinsic(Intrinsic.CEIL, place)
        case "round_prefer_floor":
            whole = tir.intrinsic(Intrinsic.CEIL, place - 0.5)
        case _:
            whole = tir.intrinsic(Intrinsic.FLOOR, place + 0.5)
    return tir.minimum(tir.maximum(cast(whole, INDEX), 0), along.old - 1)


def _weights(attrs: Resize.Attrs, rest: P) -> list[tuple[int, P]]:
    """Return (offset, weight) of the neighbours of a place ``rest`` after a whole position."""
    if attrs.mode == "linear":
        return [(0, 1.0 - rest), (1, rest)]
    a = attrs.cubic_a
    far, near = rest + 1.0, 1.0 - rest
    last = 2.0 - rest
    return [
        (-1, ((far * a - 5.0 * a) * far + 8.0 * a) * far - 4.0 * a),
        (0, (rest * (a + 2.0) - (a + 3.0)) * rest * rest + 1.0),
        (1, (near * (a + 2.0) - (a + 3.0)) * near * near + 1.0),
        (2, ((last * a - 5.0 * a) * last + 8.0 * a) * last - 4.0 * a),
    ]


@operator("nn.resize", OpKind.INJECTIVE)
class Resize(Op):
    """A tensor sampled anew at other sizes; positions outside read the element at the edge.

    The modes are ONNX's, without the region-of-interest and antialias variants.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``sizes``: the new shape; ``scales``: new by old size where it is not just their ratio.

        ``mode`` is nearest, linear or cubic (with ``cubic_a``; ``exclude_outside`` gives what lies
        outside no weight); the other two decide where a new element lies in the old tensor.
        """

        sizes: tuple[int, ...]
        scales: tuple[float, ...] = ()
        mode: str = "nearest"
        coordinate_mode: str = "half_pixel"
        nearest_mode: str = "round_prefer_floor"
        cubic_a: float = -0.75
        exclude_outside: bool = False

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The new shape."""
        (x,) = operands(cls.name, types, 1)
        choices = (
            ("mode", attrs.mode, _MODES),
            ("coordinate_mode", attrs.coordinate_mode, _COORDINATE_MODES),
            ("nearest_mode", attrs.nearest_mode, _NEAREST_MODES),
        )
        for what, value, allowed in choices:
            if value not in allowed:
                raise TypeRuleError(f"{cls.name}: {what} '{value}' is none of {', '.join(allowed)}")
        if attrs.mode != "nearest":
            check_dtype(cls.name, is_float, "floating-point", x)
        if len(attrs.sizes) != x.rank or len(attrs.scales) not in (0, x.rank):
            raise TypeRuleError(
                f"{cls.name}: sizes {attrs.sizes} and scales {attrs.scales} must have one entry for"
                f" each dimension of {shape_text(x.shape)}"
            )
        if any(size < 1 for size in attrs.sizes) or any(not s > 0 for s in attrs.scales):
            raise TypeRuleError(
                f"{cls.name}: sizes {attrs.sizes} and scales {attrs.scales} must be positive"
            )
        why = f"{cls.name}: there must be elements to sample"
        if not all(require_at_most(1, size, why) for size in x.shape):
            raise TypeRuleError(f"{cls.name}: {shape_text(x.shape)} has no elements to sample")
        return x.with_shape(attrs.sizes)

    @classmethod
    def resampled(cls, attrs: Attrs, shape: Sequence[int]) -> dict[int, Resampling]:
        """Return how each dimension that changes is sampled."""
        result: dict[int, Resampling] = {}
        for axis, (old, new) in enumerate(zip(shape, attrs.sizes, strict=True)):
            scale = attrs.scales[axis] if attrs.scales else new / old
            if old != new or scale != 1:
                result[axis] = _resampling(attrs.coordinate_mode, old, new, scale)
        return result

    @classmethod
    def reference(cls, attrs: Attrs, x: Array) -> Array:
        """Sample one dimension after the other."""
        samplings = cls.resampled(attrs, x.shape)
        if attrs.mode == "nearest":
            for axis, along in samplings.items():
                x = np.take(x, _nearest_table(attrs.nearest_mode, along), axis=axis)
            return x

        def function(data: Array) -> Array:
            for axis, along in samplings.items():
                data = _interpolated(attrs, data, axis, along)
            return data

        return in_float32(function, x)

    @classmethod
    def compute(cls, attrs: Attrs, x: Tensor) -> Tensor:
        """Nearest: one read; otherwise one tensor for each dimension."""
        samplings = cls.resampled(attrs, x.shape)
        if attrs.mode != "nearest":
            result = x
            for axis, along in samplings.items():
                result = _interpolated_tensor(attrs, result, axis, along)
            return narrowed(result, x.dtype, "nn_resize_rounded")

        taken = {axis: _nearest_elements(attrs.nearest_mode, a) for axis, a in samplings.items()}

        def element(*indices: PrimExpr) -> PrimExpr:
            place = list(indices)
            for axis, element_at in taken.items():
                place[axis] = element_at(indices[axis])
            return x[tuple(place)]

        return compute(attrs.sizes, element, name="nn_resize")


def _interpolated(attrs: Resize.Attrs, x: Array, axis: int, along: Resampling) -> Array:
    """Return ``x`` sampled along one dimension."""
    place = along.positions()
    whole = np.floor(place)
    pairs = _weights(attrs, place - whole)
    places = [whole.astype(np.int64) + offset for offset, _ in pairs]
    weights = [weight for _, weight in pairs]
    if attrs.exclude_outside:
        inside = [(p >= 0) & (p < along.old) for p in places]
        weights = [np.where(ok, w, 0.0) for ok, w in zip(inside, weights, strict=True)]
        total = sum(weights)
        weights = [weight / total for weight in weights]
    column = (-1, *[1] * (x.ndim - 1 - axis))
    result = np.zeros((), x.dtype)
    for source, weight in zip(places, weights, strict=True):
        taken = np.take(x, np.clip(source, 0, along.old - 1), axis=axis)
        result = result + taken * weight.astype(x.dtype).reshape(column)
    return result


def _interpolated_tensor(attrs: Resize.Attrs, x: Tensor, axis: int, along: Resampling) -> Tensor:
    """Return ``x`` sampled along one dimension, in float32 for half precision."""
    place = _places(along)

    def element(*indices: PrimExpr) -> PrimExpr:
        whole, rest = place(indices[axis])
        pairs = _weights(attrs, rest)
        places = [whole + offset for offset, _ in pairs]
        weights: list[PrimExpr] = [weight for _, weight in pairs]
        if attrs.exclude_outside:
            weights = [
                tir.select(tir.all_of((p >= 0, p < along.old)), w, 0.0)
                for p, w in zip(places, weights, strict=True)
            ]
            total = _added(weights)
            weights = [weight / total for weight in weights]
        terms: list[PrimExpr] = []
        for source, weight in zip(places, weights, strict=True):
            nearest = tir.minimum(tir.maximum(source, 0), along.old - 1)
            taken = wide(x[(*indices[:axis], nearest, *indices[axis + 1 :])])
            terms.append(taken * cast(weight, taken.dtype))
        return _added(terms)

    shape = (*x.shape[:axis], along.new, *x.shape[axis + 1 :])
    return compute(shape, element, name=f"nn_resize_{axis}")


def _places(along: Resampling) -> Callable[[PrimExpr], tuple[PrimExpr, PrimExpr]]:
    """Return what gives the whole position before a place, and how far behind it the place is.

    At a ratio of small numbers, new to old as 3 to 2, the rest repeats after 3 elements, which are
    2 old ones apart. It is then a number chosen by the remainder of a division, which loops that
    write as many elements at a time know. Otherwise both are computed once for the dimension.
    """
    common = math.gcd(along.old, along.new)
    period, step = along.new // common, along.old // common
    numbers, spots = np.arange(along.new), along.positions()
    whole = np.floor(spots)
    offsets = (whole - numbers // period * step).astype(np.int64)
    rests = spots - whole
    again = numbers % period
    apart = np.abs(rests - rests[again]).max()
    if period > MAX_PERIOD or not np.array_equal(offsets[again], offsets) or apart > 1e-12:
        return _computed_places(along)

    def chosen(index: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        phase = index % period
        offset: PrimExpr = tir.IntImm(int(offsets[0]))
        rest: PrimExpr = tir.const(float(rests[0]), DType.FLOAT64)
        for number in range(1, period):
            here = tir.equal(phase, number)
            offset = tir.select(here, tir.IntImm(int(offsets[number])), offset)
            rest = tir.select(here, tir.const(float(rests[number]), DType.FLOAT64), rest)
        return index // period * step + offset, rest

    return chosen


def _computed_places(along: Resampling) -> Callable[[PrimExpr], tuple[PrimExpr, PrimExpr]]:
    """Return the same for any ratio: read from two vectors."""

    def whole(index: PrimExpr) -> PrimExpr:
        return cast(tir.intrinsic(Intrinsic.FLOOR, along.position(index)), INDEX)

    def rest(index: PrimExpr) -> PrimExpr:
        position = along.position(index)
        return position - tir.intrinsic(Intrinsic.FLOOR, position)

    wholes = compute((along.new,), whole, name="nn_resize_places")
    rests = compute((along.new,), rest, name="nn_resize_rests")

    def read(index: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        return wholes[index], rests[index]

    return read


def _added(terms: Sequence[PrimExpr]) -> PrimExpr:
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def _check_blocks(name: str, x: TensorType, block: int) -> None:
    if x.rank != 4 or block < 1:
        raise TypeRuleError(
            f"{name}: needs a tensor (N, C, H, W) and a block of at least 1, got"
            f" {shape_text(x.shape)} and {block}"
        )


@operator("nn.depth_to_space", OpKind.INJECTIVE)
class DepthToSpace(Op):
    """Every ``block * block`` channels become a square of pixels."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``block``: side of a square; ``mode``: ``DCR`` (the square is slow) or ``CRD``."""

        block: int
        mode: str = "DCR"

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[N, C / block**2, H * block, W * block]``."""
        (x,) = operands(cls.name, types, 1)
        _check_blocks(cls.name, x, attrs.block)
        n, channels, height, width = x.shape
        if attrs.mode not in ("DCR", "CRD"):
            raise TypeRuleError(f"{cls.name}: mode '{attrs.mode}' is neither DCR nor CRD")
        rest = remainder(channels, attrs.block**2)
        why = f"{cls.name}: the block squared must divide the channels"
        if not (require_equal(rest, 0, why) or isinstance(rest, Dim)):
            raise TypeRuleError(
                f"{cls.name}: {channels} channels are no multiple of {attrs.block} squared"
            )
        sides = (height * attrs.block, width * attrs.block)
        return x.with_shape((n, channels // attrs.block**2, *sides))

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """Reshape, permute, reshape."""
        n, c, h, w = x.shape
        b, kept = attrs.block, x.shape[1] // attrs.block**2
        if attrs.mode == "DCR":
            moved = x.reshape(n, b, b, kept, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            moved = x.reshape(n, kept, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return np.ascontiguousarray(moved).reshape(n, c // b**2, h * b, w * b)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Read the channel that the place in the square stands for."""
        n, c, h, w = x.shape
        b, kept = attrs.block, x.shape[1] // attrs.block**2

        def element(i: PrimExpr, channel: PrimExpr, row: PrimExpr, column: PrimExpr) -> PrimExpr:
            square = (row % b) * b + column % b
            slow = attrs.mode == "DCR"
            source = square * kept + channel if slow else channel * (b * b) + square
            return x[i, source, row // b, column // b]

        return compute((n, c // b**2, h * b, w * b), element, name="nn_depth_to_space")


@operator("nn.space_to_depth", OpKind.INJECTIVE)
class SpaceToDepth(Op):
    """Every square of pixels becomes ``block * block`` channels, the square the slow part."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``block``: side of a square."""

        block: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[N, C * block**2, H / block, W / block]``."""
        (x,) = operands(cls.name, types, 1)
        _check_blocks(cls.name, x, attrs.block)
        n, channels, *sides = x.shape
        why = f"{cls.name}: a block must divide height and width"
        rests = [remainder(side, attrs.block) for side in sides]
        if not all(require_equal(rest, 0, why) or isinstance(rest, Dim) for rest in rests):
            raise TypeRuleError(
                f"{cls.name}: height and width of {shape_text(x.shape)} must be multiples of"
                f" {attrs.block}"
            )
        smaller = (side // attrs.block for side in sides)
        return x.with_shape((n, channels * attrs.block**2, *smaller))

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """Reshape, permute, reshape."""
        n, c, h, w = x.shape
        b = attrs.block
        moved = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
        return np.ascontiguousarray(moved).reshape(n, c * b * b, h // b, w // b)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Read the pixel that the channel stands for."""
        n, c, h, w = x.shape
        b = attrs.block

        def element(i: PrimExpr, channel: PrimExpr, row: PrimExpr, column: PrimExpr) -> PrimExpr:
            square = channel // c
            return x[i, channel % c, row * b + square // b, column * b + square % b]

        return compute((n, c * b * b, h // b, w // b), element, name="nn_space_to_depth")
