# SPDX-License-Identifier: Apache-2.0
"""Grids sampled at places that are data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct

from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import Size, minimum, product

from ..graph.guards import require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import INDEX, PrimExpr, cast
from ..tir.intrinsic import Intrinsic
from ..tir.tensor import Tensor, compute
from .arrays import Array, widen
from .derivative import DERIVATIVES
from .elements import wide
from .integer_forms import INTEGER_FORMS
from .type_rules import check_dtype, is_float, operands, same_size, shape_text

MODES = ("nearest", "linear", "cubic")
PADDINGS = ("zeros", "border", "reflection")
KEYS = -0.75
"""Parameter of the cubic kernel (R. Keys, 1981)."""

P = TypeVar("P", PrimExpr, Array)


class _Arithmetic(Struct, Generic[P], frozen=True):
    """What arrays and loop expressions spell differently.

    Attributes:
        floor: The next whole number below.
        round: The nearest whole number, ties to even.
        clip: The nearest number from 0 to a limit.
        largest: The larger of two numbers.
        absolute: Without the sign.
        choose: The second where the first is above 0.5, else the third.
    """

    floor: Callable[[P], P]
    round: Callable[[P], P]
    clip: Callable[[P, P | float], P]
    largest: Callable[[P, float], P]
    absolute: Callable[[P], P]
    choose: Callable[[P, P, P], P]


@operator("nn.grid_sample", OpKind.OPAQUE)
class GridSample(Op):
    """The elements of each image at the places that a grid gives, -1 to 1 from edge to edge.

    Operands are ``[batch, channels, *sizes]`` and ``[batch, *points, len(sizes)]``; a place names
    the last size first. Places are computed in float32, or in float64 for a grid of it.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``mode``: nearest, linear or cubic; ``padding``: what is outside, zeros, the border or a
        reflection; ``align_corners``: -1 and 1 are the centres of the outermost elements.
        """

        mode: str = "linear"
        padding: str = "zeros"
        align_corners: bool = False

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[batch, channels, *points]``."""
        x, grid = operands(cls.name, types, 2)
        check_dtype(cls.name, is_float, "floating-point", grid)
        check_dtype(cls.name, is_float, "floating-point", x)
        rank = x.rank - 2
        fits = rank >= 1 and grid.rank == x.rank and same_size(x.shape[0], grid.shape[0])
        if not fits or not same_size(grid.shape[-1], rank):
            raise TypeRuleError(
                f"{cls.name}: a grid {shape_text(grid.shape)} does not fit data"
                f" {shape_text(x.shape)}"
            )
        if attrs.mode not in MODES or attrs.padding not in PADDINGS:
            raise TypeRuleError(
                f"{cls.name}: mode '{attrs.mode}' with padding '{attrs.padding}' is not defined"
            )
        read = minimum(1, product((*grid.shape[:-1], x.shape[1])))
        why = f"{cls.name}: there must be elements to sample"
        if not all(require_at_most(read, size, why) for size in x.shape[2:]):
            raise TypeRuleError(f"{cls.name}: {shape_text(x.shape)} has no elements")
        return x.with_shape((*x.shape[:2], *grid.shape[1:-1]))

    @staticmethod
    def reference(attrs: Attrs, x: Array, grid: Array) -> Array:
        """The weighted sum of the neighbours of each place."""
        sizes, places, data = x.shape[2:], widen(grid), widen(x)
        near = [
            _neighbours(_ARRAYS, attrs, places[..., -1 - axis], float(size))
            for axis, size in enumerate(sizes)
        ]
        total = np.zeros((*x.shape[:2], *grid.shape[1:-1]), data.dtype)
        for corner in itertools.product(*near):
            term = take_points(data, [place.astype(np.int64) for place, _ in corner])
            for _, weight in corner:
                term = term if weight is None else term * weight[:, None].astype(data.dtype)
            total += term
        return total.astype(x.dtype)

    @staticmethod
    def compute(attrs: Attrs, x: Tensor, grid: Tensor) -> Tensor:
        """The same; an element outside is not read."""
        sizes = x.shape[2:]

        def element(*at: PrimExpr) -> PrimExpr:
            batch, channel, *point = at
            near: list[list[tuple[PrimExpr, PrimExpr | None]]] = []
            for axis, size in enumerate(sizes):
                place = wide(grid[(batch, *point, len(sizes) - 1 - axis)])
                near.append(_neighbours(_ELEMENTS, attrs, place, _number(size, place)))
            terms: list[PrimExpr] = []
            for corner in itertools.product(*near):
                term = _read(x, (batch, channel), [place for place, _ in corner])
                for _, weight in corner:
                    term = term if weight is None else term * cast(weight, term.dtype)
                terms.append(term)
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            return cast(total, x.dtype)

        return compute((*x.shape[:2], *grid.shape[1:-1]), element, name="nn_grid_sample")


def take_points(x: Array, places: Sequence[Array]) -> Array:
    """Read elements at integer places, 0 outside.

    Args:
        x: ``[batch, channels, *sizes]``.
        places: For each of the sizes, ``[batch, *points]``.

    Returns:
        ``[batch, channels, *points]``.
    """
    sizes = x.shape[2:]
    inside = np.ones(places[0].shape, bool)
    flat = np.zeros(places[0].shape, np.int64)
    for place, size in zip(places, sizes, strict=True):
        inside &= (place >= 0) & (place < size)
        flat = flat * size + np.clip(place, 0, size - 1)
    rows = x.reshape(*x.shape[:2], -1)
    batch = len(flat)
    points = flat.reshape(batch, 1, -1)
    found = np.take_along_axis(
        rows, np.broadcast_to(points, (*x.shape[:2], flat.size // max(batch, 1))), 2
    )
    found = found.reshape(*x.shape[:2], *flat.shape[1:])
    return np.where(inside[:, None], found, 0).astype(x.dtype)


def _read(x: Tensor, before: tuple[PrimExpr, PrimExpr], places: Sequence[PrimExpr]) -> PrimExpr:
    """Read the element at places that are whole numbers, 0 outside; in float32 if it is half."""
    inside: list[PrimExpr] = []
    indices: list[PrimExpr] = []
    for place, size in zip(places, x.shape[2:], strict=True):
        inside += [place >= 0.0, place <= _number(size - 1, place)]
        indices.append(tir.minimum(tir.maximum(cast(place, INDEX), 0), size - 1))
    value = wide(x[(*before, *indices)])
    return tir.select(tir.all_of(inside), value, 0.0)


def _number(size: Size, place: PrimExpr) -> PrimExpr | float:
    """Return a size as a number of the type of a place: a constant, or an expression."""
    return float(size) if isinstance(size, int) else cast(tir.index(size), place.dtype)


def _neighbours(
    math: _Arithmetic[P], attrs: GridSample.Attrs, place: P, size: P | float
) -> list[tuple[P, P | None]]:
    """Return the positions along one size that a place of the grid reads, each with its weight.

    Positions are whole numbers, and may lie outside; no weight is 1.
    """
    spot = (place + 1.0) * ((size - 1.0) * 0.5) if attrs.align_corners else _between(place, size)
    if attrs.mode == "nearest":
        return [(math.round(_inside(math, attrs, math.round(spot), size)), None)]
    if attrs.mode == "linear":
        moved = _inside(math, attrs, spot, size)
        down = math.floor(moved)
        rest = moved - down
        return [(down, 1.0 - rest), (down + 1.0, rest)]
    down = math.floor(spot)
    rest = spot - down
    weights = [_far(rest + 1.0), _near(rest), _near(1.0 - rest), _far(2.0 - rest)]
    return [
        (math.round(_inside(math, attrs, down + (offset - 1.0), size)), weight)
        for offset, weight in enumerate(weights)
    ]


def _between(place: P, size: P | float) -> P:
    """The spot of a place if -1 and 1 are the outer edges of the outermost elements."""
    return ((place + 1.0) * size - 1.0) * 0.5


def _near(distance: P) -> P:
    """Keys' kernel of a distance up to 1."""
    return (distance * (KEYS + 2.0) - (KEYS + 3.0)) * distance * distance + 1.0


def _far(distance: P) -> P:
    """Keys' kernel of a distance from 1 to 2."""
    return ((distance * KEYS - 5.0 * KEYS) * distance + 8.0 * KEYS) * distance - 4.0 * KEYS


def _inside(math: _Arithmetic[P], attrs: GridSample.Attrs, spot: P, size: P | float) -> P:
    """Move a spot that is outside into its size, as the padding says."""
    last = size - 1.0
    if attrs.padding == "border":
        return math.clip(spot, last)
    if attrs.padding == "zeros":
        return spot
    low, high = (0.0, last) if attrs.align_corners else (-0.5, size - 0.5)
    span = high - low
    if isinstance(span, float) and span <= 0:
        return spot * 0.0
    if not isinstance(span, float):  # of one element; the rest is clipped to it
        span = math.largest(span, 1.0)
    away = math.absolute(spot - low)
    turns = math.floor(away / span)
    rest = away - turns * span
    odd = turns - math.floor(turns * 0.5) * 2.0
    return math.clip(math.choose(odd, high - rest, rest + low), last)


def _clip_array(value: Array, last: Array | float) -> Array:
    return np.clip(value, 0, np.asarray(last).astype(value.dtype))


def _choose_array(odd: Array, one: Array, other: Array) -> Array:
    return np.where(odd > 0.5, one, other)


def _floor_element(value: PrimExpr) -> PrimExpr:
    return tir.intrinsic(Intrinsic.FLOOR, value)


def _round_element(value: PrimExpr) -> PrimExpr:
    return tir.intrinsic(Intrinsic.ROUND, value)


def _clip_element(value: PrimExpr, last: PrimExpr | float) -> PrimExpr:
    return tir.minimum(tir.maximum(value, 0.0), last)


def _absolute_element(value: PrimExpr) -> PrimExpr:
    return tir.maximum(value, 0.0 - value)


def _choose_element(odd: PrimExpr, one: PrimExpr, other: PrimExpr) -> PrimExpr:
    return tir.select(odd > 0.5, one, other)


_ARRAYS: _Arithmetic[Array] = _Arithmetic(
    np.floor, np.rint, _clip_array, np.maximum, np.abs, _choose_array
)
_ELEMENTS: _Arithmetic[PrimExpr] = _Arithmetic(
    _floor_element,
    _round_element,
    _clip_element,
    tir.maximum,
    _absolute_element,
    _choose_element,
)


DERIVATIVES.refuse("no operator adds pixels up at the places they were taken from", GridSample)
INTEGER_FORMS.refuse("it weighs pixels with real numbers", GridSample)
