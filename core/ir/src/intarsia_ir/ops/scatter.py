# SPDX-License-Identifier: Apache-2.0
"""Operators that write elements where indices say.

A negative index counts from the end; what one that is out of range at run time would write is left
out. Of several writes to one place, the last in row-major order of the updates stays.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from intarsia_runtime.errors import TypeRuleError

from ..graph.guards import require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Dim, Shape, TensorType, Type
from ..tir.buffer import Buffer
from ..tir.build import guarded, let, load, parallel, seq, serial, store, unflatten
from ..tir.expr import (
    INDEX,
    BinaryOp,
    IntImm,
    PrimExpr,
    all_of,
    binary,
    cast,
    if_then_else,
    index,
    maximum,
    minimum,
    select,
)
from ..tir.func import PrimFunc
from ..tir.stmt import Stmt
from ..tir.tensor import Tensor, compute, extents
from .arrays import Array, is_half, widen
from .derivative import DERIVATIVES
from .elements import wide
from .integer_forms import INTEGER_FORMS
from .type_rules import (
    check_axis,
    check_dtype,
    is_index,
    is_number,
    operands,
    same_dtype,
    same_size,
    shape_text,
)

REDUCTIONS = ("none", "add", "mul", "max", "min")

_COMBINE = {
    "add": BinaryOp.ADD,
    "mul": BinaryOp.MUL,
    "max": BinaryOp.MAX,
    "min": BinaryOp.MIN,
}
_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}

CHUNK = 256
"""Neighbouring elements that one iteration writes for all indices in their order."""


def _check_updates(
    name: str, reduction: str, types: tuple[Type, ...]
) -> tuple[TensorType, TensorType, TensorType]:
    data, indices, updates = operands(name, types, 3)
    check_dtype(name, is_index, "int32 or int64", indices)
    same_dtype(name, data, updates)
    if reduction not in REDUCTIONS:
        known = ", ".join(REDUCTIONS)
        raise TypeRuleError(f"{name}: reduction '{reduction}' is none of {known}")
    if reduction != "none":
        check_dtype(name, is_number, "integer or floating-point", data)
    return data, indices, updates


def _same_shape(one: Shape, other: Shape) -> bool:
    return len(one) == len(other) and all(map(same_size, one, other))


def _write(result: Array, where: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """Write updates at places, one after another; half precision is rounded after each."""
    if reduction == "none":
        result[where] = updates
        return result
    function = _UFUNCS[reduction]
    with np.errstate(all="ignore"):
        if not is_half(result):
            function.at(result, where, updates)
            return result
        for place, update in zip(zip(*where, strict=True), updates, strict=True):
            result[place] = function(widen(result[place]), widen(update)).astype(result.dtype)
    return result


def _flat(name: str, type_: TensorType) -> Buffer:
    return Buffer(name, (prod(extents(type_.shape)),), type_.dtype)


def _copy(data: Buffer, out: Buffer) -> Stmt:
    def one(at: PrimExpr) -> Stmt:
        return store(out, (at,), load(data, at))

    return parallel(prod(data.shape), one, "at")


def _counted(position: PrimExpr, size: int) -> PrimExpr:
    """Return an index counted from the beginning; it may lie outside."""
    number = cast(position, INDEX)
    return select(number < 0, number + size, number)


def _combined(out: Buffer, at: PrimExpr, update: PrimExpr, reduction: str) -> Stmt:
    """Write an update at a place of the result."""
    if reduction == "none":
        return store(out, (at,), update)
    both = binary(_COMBINE[reduction], wide(load(out, at)), wide(update))
    return store(out, (at,), cast(both, out.dtype))


def _length(begin: PrimExpr, size: int) -> PrimExpr:
    """How many elements of a chunk there are, of ``size`` in all."""
    if not isinstance(size, Dim) and size <= CHUNK:
        return IntImm(size)
    return minimum(index(size) - begin, CHUNK)


@operator("scatter_elements", OpKind.OPAQUE)
class ScatterElements(Op):
    """The data with each update at its own place but for one dimension, which its index gives."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension that indices give.

        ``reduction``: ``none`` replaces an element; add, mul, max and min combine it with the
        update.
        """

        axis: int
        reduction: str = "none"

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the data; indices and updates have one shape, which fits into it."""
        data, indices, updates = _check_updates(cls.name, attrs.reduction, types)
        check_axis(cls.name, attrs.axis, data.rank)
        fits = _same_shape(indices.shape, updates.shape) and indices.rank == data.rank
        if not fits or any(
            d != attrs.axis and not require_at_most(a, b, f"{cls.name}: updates must fit the data")
            for d, (a, b) in enumerate(zip(indices.shape, data.shape, strict=False))
        ):
            raise TypeRuleError(
                f"{cls.name}: indices {shape_text(indices.shape)} and updates"
                f" {shape_text(updates.shape)} do not fit data {shape_text(data.shape)}"
            )
        return data

    @staticmethod
    def reference(attrs: Attrs, data: Array, indices: Array, updates: Array) -> Array:
        """Index with one array for each dimension."""
        size = data.shape[attrs.axis]
        places = np.indices(indices.shape).reshape(indices.ndim, -1)
        picked = indices.astype(np.int64).reshape(-1)
        places[attrs.axis] = np.where(picked < 0, picked + size, picked)
        inside = (places[attrs.axis] >= 0) & (places[attrs.axis] < size)
        where = tuple(places[:, inside])
        return _write(data.copy(), where, updates.reshape(-1)[inside], attrs.reduction)

    @staticmethod
    def loops(attrs: Attrs, data: TensorType, indices: TensorType, updates: TensorType) -> PrimFunc:
        """Copy the data; then go along the dimension, with what lies across it in any order."""
        axis, sizes, given = attrs.axis, extents(data.shape), extents(updates.shape)
        size, inner = sizes[axis], prod(sizes[axis + 1 :])
        before, behind = given[:axis], prod(given[axis + 1 :])
        source, out = _flat("data", data), _flat("out", data)
        places, values = _flat("indices", indices), _flat("updates", updates)

        chunks = -(-behind // CHUNK)

        def chunk(number: PrimExpr) -> Stmt:
            row, begin = number // chunks, (number % chunks) * CHUNK
            outer = _offset(unflatten(row, before), sizes[:axis])

            def one(step: PrimExpr, lane: PrimExpr) -> Stmt:
                column = begin + lane
                at = (row * given[axis] + step) * behind + column
                if given[axis + 1 :] != sizes[axis + 1 :]:
                    column = _offset(unflatten(column, given[axis + 1 :]), sizes[axis + 1 :])

                def write(place: PrimExpr) -> Stmt:
                    target = (outer * size + place) * inner + column
                    new = _combined(out, target, load(values, at), attrs.reduction)
                    return guarded(all_of(_within(place, size)), new)

                return let(_counted(load(places, at), size), write, "place")

            def along(step: PrimExpr) -> Stmt:
                return serial(_length(begin, behind), partial(one, step), "lane")

            return serial(given[axis], along, "step")

        body = seq(_copy(source, out), parallel(prod(before) * chunks, chunk, "chunk"))
        return PrimFunc("scatter_elements", (source, places, values, out), 1, body)


def _offset(indices: list[PrimExpr], sizes: tuple[int, ...]) -> PrimExpr:
    """Return the number of an element from its indices, in row-major order."""
    total: PrimExpr = IntImm(0)
    for at, size in zip(indices, sizes, strict=True):
        total = total * size + at
    return total


@operator("scatter_nd", OpKind.OPAQUE)
class ScatterNd(Op):
    """The data with slices replaced, each where a vector, the last dimension of ``indices``, says.

    A slice is left out whole if one of its indices is out of range.
    """

    fixed_sizes = "the last of the indices': it says how many dimensions they pick from"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``reduction``: as of ``scatter_elements``."""

        reduction: str = "none"

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the data; updates are the indices' shape with slices as last dimensions."""
        data, indices, updates = _check_updates(cls.name, attrs.reduction, types)
        depth = indices.shape[-1] if indices.rank else 0
        if not isinstance(depth, int) or not 1 <= depth <= data.rank:
            raise TypeRuleError(
                f"{cls.name}: the last dimension of indices {shape_text(indices.shape)} must be a"
                f" number from 1 to {data.rank}"
            )
        wanted = (*indices.shape[:-1], *data.shape[depth:])
        if not _same_shape(updates.shape, wanted):
            raise TypeRuleError(
                f"{cls.name}: updates are {shape_text(updates.shape)}, not {shape_text(wanted)}"
            )
        return data

    @staticmethod
    def reference(attrs: Attrs, data: Array, indices: Array, updates: Array) -> Array:
        """Index with one array for each picked dimension."""
        depth = indices.shape[-1]
        sizes = np.array(data.shape[:depth], np.int64)
        picked = indices.astype(np.int64).reshape(-1, depth)
        picked = np.where(picked < 0, picked + sizes, picked)
        inside = ((picked >= 0) & (picked < sizes)).all(axis=1)
        slices = updates.reshape(len(picked), *data.shape[depth:])[inside]
        where = tuple(picked[inside].T)
        return _write(data.copy(), where, slices, attrs.reduction)

    @staticmethod
    def loops(attrs: Attrs, data: TensorType, indices: TensorType, updates: TensorType) -> PrimFunc:
        """Copy the data; then write slice after slice, the elements of each in any order."""
        rows, sizes = extents(indices.shape), extents(data.shape)
        depth = rows[-1]
        width, count = prod(sizes[depth:]), prod(rows[:-1])
        source, out = _flat("data", data), _flat("out", data)
        values = _flat("updates", updates)
        places = Buffer("indices", (count, depth), indices.dtype)

        def chunk(piece: PrimExpr) -> Stmt:
            begin = piece * CHUNK

            def one(number: PrimExpr, start: PrimExpr, lane: PrimExpr) -> Stmt:
                column = begin + lane
                update = load(values, number * width + column)
                return _combined(out, start * width + column, update, attrs.reduction)

            def each(number: PrimExpr) -> Stmt:
                picked = [_counted(load(places, number, k), sizes[k]) for k in range(depth)]
                inside = [part for k in range(depth) for part in _within(picked[k], sizes[k])]

                def write(start: PrimExpr) -> Stmt:
                    return serial(_length(begin, width), partial(one, number, start), "lane")

                start = let(_offset(picked, sizes[:depth]), write, "start")
                return guarded(all_of(inside), start)

            return serial(count, each, "number")

        body = seq(_copy(source, out), parallel(-(-width // CHUNK), chunk, "chunk"))
        return PrimFunc("scatter_nd", (source, places, values, out), 1, body)


def _within(position: PrimExpr, size: int) -> tuple[PrimExpr, PrimExpr]:
    return position >= 0, position < size


@operator("tensor_scatter", OpKind.INJECTIVE)
class TensorScatter(Op):
    """A cache with an update written into it, for each sample of the batch from its own start on.

    What would be written outside of the cache is left out, or goes on at its beginning.
    """

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``axis``: the dimension that is written; ``circular``: go on at the beginning."""

        axis: int
        circular: bool = False

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the cache; the update differs along the axis, a start for each sample."""
        cache, update, starts = operands(cls.name, types, 3)
        check_axis(cls.name, attrs.axis, cache.rank)
        same_dtype(cls.name, cache, update)
        check_dtype(cls.name, is_index, "int32 or int64", starts)
        at = attrs.axis
        same = update.rank == cache.rank and all(
            a == b or d == at
            for d, (a, b) in enumerate(zip(update.shape, cache.shape, strict=True))
        )
        room, length = cache.shape[at], update.shape[at] if same else 0
        same = same and require_at_most(length, room, f"{cls.name}: an update must fit the cache")
        if at == 0 or not same or starts.shape != cache.shape[:1]:
            raise TypeRuleError(
                f"{cls.name}: update {shape_text(update.shape)} and starts"
                f" {shape_text(starts.shape)} do not fit a cache {shape_text(cache.shape)} written"
                f" along axis {at}"
            )
        return cache

    @staticmethod
    def reference(attrs: Attrs, cache: Array, update: Array, starts: Array) -> Array:
        """Write sample by sample."""
        result, room = cache.copy(), int(cache.shape[attrs.axis])
        length = int(update.shape[attrs.axis])
        for sample, start in enumerate(starts.tolist()):
            places = np.arange(length) + start
            places = places % room if attrs.circular else places
            inside = (places >= 0) & (places < room)
            rows = np.moveaxis(result[sample], attrs.axis - 1, 0)
            rows[places[inside]] = np.moveaxis(update[sample], attrs.axis - 1, 0)[inside]
        return result

    @staticmethod
    def compute(attrs: Attrs, cache: Tensor, update: Tensor, starts: Tensor) -> Tensor:
        """Read the update where it covers the cache, else the cache."""
        at, room, length = attrs.axis, cache.shape[attrs.axis], update.shape[attrs.axis]

        def element(*indices: PrimExpr) -> PrimExpr:
            step = indices[at] - cast(starts[indices[0]], INDEX)
            if attrs.circular:
                step = step % room
            inside = all_of((step >= 0, step < length))
            nearest = minimum(maximum(step, 0), maximum(index(length) - 1, 0))
            new = update[(*indices[:at], nearest, *indices[at + 1 :])]
            return if_then_else(inside, new, cache[indices])

        return compute(cache.shape, element, name="tensor_scatter")


DERIVATIVES.refuse(
    "what it writes over is known when it runs: no rule is written",
    ScatterElements,
    ScatterNd,
    TensorScatter,
)
INTEGER_FORMS.refuse(
    "data and updates need not have one scale", ScatterElements, ScatterNd, TensorScatter
)
