# SPDX-License-Identifier: Apache-2.0
"""Regions of images, sampled on a grid of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import minimum as smaller_size
from intarsia_runtime.size import product

from ..graph.guards import require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.buffer import Buffer, MemoryScope
from ..tir.build import allocate, cell, get, let, load, parallel, put, seq, serial, store
from ..tir.expr import INDEX, PrimExpr, all_of, cast, const, intrinsic, maximum, minimum, select
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt
from ..tir.tensor import extents, lowest
from .arrays import Array, widen
from .derivative import DERIVATIVES
from .elements import accumulator, wide
from .integer_forms import INTEGER_FORMS
from .type_rules import check_dtype, is_float, is_index, operands, same_size, shape_text


@operator("nn.roi_align", OpKind.OPAQUE)
class RoiAlign(Op):
    """Each region of an image as a grid of cells: the mean, or maximum, of samples in each cell.

    Operands are images ``[N, C, H, W]``, regions ``[R, 4]`` (left, top, right, bottom) and the
    number of each region's image, ``[R]``, clamped if it is out of range. A sample is interpolated
    between its four neighbours; one more than a pixel outside is 0. (He et al., "Mask R-CNN".)
    """

    fixed_sizes = "the last of the regions': it is 4"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``size``: rows and columns of cells; ``samples``: of a cell, in each direction.

        ``scale``: pixels for a unit of regions; ``half_pixel``: whether a pixel's centre is at 0.5;
        ``largest``: the maximum of weighed neighbours instead of the mean of samples.
        """

        size: tuple[int, int]
        samples: int
        scale: float = 1.0
        half_pixel: bool = True
        largest: bool = False

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """``[R, C, *size]``."""
        x, rois, images = operands(cls.name, types, 3)
        check_dtype(cls.name, is_float, "floating-point", x, rois)
        check_dtype(cls.name, is_index, "int32 or int64", images)
        fits = rois.rank == 2 and rois.shape[1] == 4 and images.rank == 1
        why = f"{cls.name}: there must be elements to sample"
        if x.rank == 4 and fits:
            needed = smaller_size(product((rois.shape[0], x.shape[1], *attrs.size)), 1)
            fits = all(require_at_most(needed, x.shape[axis], why) for axis in (0, 2, 3))
        if x.rank != 4 or not fits or not same_size(rois.shape[0], images.shape[0]):
            raise TypeRuleError(
                f"{cls.name}: regions {shape_text(rois.shape)} and {shape_text(images.shape)} do"
                f" not fit images {shape_text(x.shape)}"
            )
        if min(*attrs.size, attrs.samples) < 1:
            raise TypeRuleError(
                f"{cls.name}: size {attrs.size} and samples {attrs.samples} must be positive"
            )
        return x.with_shape((rois.shape[0], x.shape[1], *attrs.size))

    @staticmethod
    def reference(attrs: Attrs, x: Array, rois: Array, images: Array) -> Array:
        """Read the four neighbours of all samples, one kind after the other."""
        data, edges = widen(x), widen(rois).astype(np.float32)
        picked = np.clip(images.astype(np.int64), 0, len(x) - 1)[:, None, None]
        sides = [_neighbours(attrs, edges, axis, x.shape[2 + axis]) for axis in (0, 1)]
        parts: list[Array] = []
        for rows, down in sides[0]:
            for columns, across in sides[1]:
                found = data[picked, :, rows[:, :, None], columns[:, None, :]]
                weight = (down[:, :, None] * across[:, None, :])[..., None]
                parts.append((found * weight).astype(data.dtype))
        height, width = attrs.size
        shape = (len(rois), height, attrs.samples, width, attrs.samples, x.shape[1])
        if attrs.largest:
            cells = np.max(parts, axis=0).reshape(shape).max(axis=(2, 4))
        else:
            cells = np.sum(parts, axis=0).reshape(shape).mean(axis=(2, 4), dtype=data.dtype)
        return np.ascontiguousarray(np.moveaxis(cells, -1, 1)).astype(x.dtype)

    @staticmethod
    def loops(attrs: Attrs, x: TensorType, rois: TensorType, images: TensorType) -> PrimFunc:
        """Find the neighbours and weights of a region's rows and columns once for all channels."""
        count, channels = extents((rois.shape[0], x.shape[1]))
        data, edges, picked = (
            Buffer(name, extents(kind.shape), kind.dtype)
            for name, kind in (("x", x), ("rois", rois), ("images", images))
        )
        out = Buffer("out", (count, channels, *attrs.size), x.dtype)
        region = _Region(attrs, data, edges, picked, out)
        return PrimFunc(
            "nn_roi_align", (data, edges, picked, out), 1, parallel(count, region.loops)
        )


def _neighbours(
    attrs: RoiAlign.Attrs, rois: Array, axis: int, size: int
) -> list[tuple[Array, Array]]:
    """Return both neighbours of every sample along one axis and their weights: ``[R, samples]``."""
    shift = np.float32(0.5 if attrs.half_pixel else 0.0)
    scale = np.float32(attrs.scale)
    start = rois[:, 1 - axis] * scale - shift
    length = rois[:, 3 - axis] * scale - shift - start
    if not attrs.half_pixel:
        length = np.maximum(length, np.float32(1))
    count = attrs.size[axis] * attrs.samples
    steps = (np.arange(count, dtype=np.float32) + np.float32(0.5)) / np.float32(count)
    spots = start[:, None] + steps * length[:, None]
    inside = ((spots >= -1) & (spots <= size)).astype(np.float32)
    moved = np.clip(spots, 0, size - 1).astype(np.float32)
    low = np.floor(moved)
    rest = moved - low
    first = low.astype(np.int64)
    second = np.minimum(first + 1, size - 1)
    return [(first, (1 - rest) * inside), (second, rest * inside)]


class _Side(Struct, frozen=True):
    """Samples of a region along one axis, each with two neighbours and their weights."""

    places: Buffer
    weights: Buffer

    @classmethod
    def of(cls, name: str, count: int) -> _Side:
        """Make the memory for ``count`` samples."""
        places = Buffer(f"{name}_places", (count, 2), INDEX, MemoryScope.STACK)
        return cls(places, Buffer(f"{name}_weights", (count, 2), DType.FLOAT32, MemoryScope.STACK))


class _Region(Struct, frozen=True):
    """The loops over one region."""

    attrs: RoiAlign.Attrs
    data: Buffer
    rois: Buffer
    images: Buffer
    out: Buffer

    def loops(self, number: PrimExpr) -> Stmt:
        """Return what fills the cells of one region."""
        sides = [
            _Side.of(name, cells * self.attrs.samples)
            for name, cells in zip(("row", "column"), self.attrs.size, strict=True)
        ]
        found = [self._find(number, axis, side) for axis, side in enumerate(sides)]
        image = minimum(maximum(cast(load(self.images, number), INDEX), 0), self.data.shape[0] - 1)

        def cells(at: PrimExpr) -> Stmt:
            def channel(c: PrimExpr) -> Stmt:
                def row(y: PrimExpr) -> Stmt:
                    def column(z: PrimExpr) -> Stmt:
                        return self._cell((number, c, y, z), at, sides)

                    return serial(self.attrs.size[1], column, "column")

                return serial(self.attrs.size[0], row, "row")

            return serial(self.data.shape[1], channel, "channel")

        memory = [buffer for side in sides for buffer in (side.places, side.weights)]
        return allocate(memory, seq(*found, let(image, cells, "image")))

    def _find(self, number: PrimExpr, axis: int, side: _Side) -> Stmt:
        """Fill in the neighbours and weights of the samples along one axis."""
        attrs, size, count = self.attrs, self.data.shape[2 + axis], side.places.shape[0]
        shift = 0.5 if attrs.half_pixel else 0.0

        def edge(at: int) -> PrimExpr:
            return cast(load(self.rois, number, at), DType.FLOAT32) * attrs.scale - shift

        start = edge(1 - axis)
        length = edge(3 - axis) - start
        length = length if attrs.half_pixel else maximum(length, 1.0)

        def sample(at: PrimExpr) -> Stmt:
            step = (cast(at, DType.FLOAT32) + 0.5) / float(count)

            def with_spot(spot: PrimExpr) -> Stmt:
                inside = all_of((spot >= -1.0, spot <= const(size, DType.FLOAT32)))
                kept = select(inside, const(1.0, DType.FLOAT32), 0.0)
                moved = minimum(maximum(spot, 0.0), const(size - 1, DType.FLOAT32))
                low = intrinsic(Intrinsic.FLOOR, moved)
                first = cast(low, INDEX)
                return seq(
                    store(side.places, (at, 0), minimum(maximum(first, 0), size - 1)),
                    store(side.places, (at, 1), minimum(maximum(first + 1, 0), size - 1)),
                    store(side.weights, (at, 0), (1.0 - (moved - low)) * kept),
                    store(side.weights, (at, 1), (moved - low) * kept),
                )

            return let(start + step * length, with_spot, "spot")

        return serial(count, sample, "sample")

    def _cell(self, place: tuple[PrimExpr, ...], image: PrimExpr, sides: Sequence[_Side]) -> Stmt:
        """Combine the samples of one cell."""
        attrs, dtype = self.attrs, accumulator(self.data.dtype)
        total = cell("total", dtype)
        begin = const(lowest(dtype) if attrs.largest else 0, dtype)

        def rows(y: PrimExpr) -> Stmt:
            def columns(z: PrimExpr) -> Stmt:
                at = (place[2] * attrs.samples + y, place[3] * attrs.samples + z)
                found: PrimExpr = get(total)
                for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
                    parts = list(zip(sides, at, corner, strict=True))
                    spots = [load(side.places, n, which) for side, n, which in parts]
                    down, across = (load(side.weights, n, which) for side, n, which in parts)
                    value = wide(load(self.data, image, place[1], *spots))
                    term = value * cast(down * across, dtype)
                    found = maximum(found, term) if attrs.largest else found + term
                return put(total, found)

            return serial(attrs.samples, columns, "across")

        share = 1.0 if attrs.largest else float(attrs.samples**2)
        result = get(total) / share
        body = seq(
            put(total, begin),
            serial(attrs.samples, rows, "down"),
            store(self.out, place, cast(result, self.out.dtype)),
        )
        return allocate((total,), body)


DERIVATIVES.refuse("no operator adds pixels up at the places they were taken from", RoiAlign)
INTEGER_FORMS.refuse("it weighs pixels with real numbers", RoiAlign)
