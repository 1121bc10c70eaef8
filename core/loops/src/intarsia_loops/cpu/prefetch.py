# SPDX-License-Identifier: Apache-2.0
"""Software prefetch of packed weights: the next block arrives while the tiles multiply this one.

All tiles of a block of B read the same weights, so together they prefetch the next block, each its
share, spread evenly over its loop over K. If every tile prefetched the whole block, the first one
would issue all requests and stall, because a core tracks only some ten to sixteen misses at once;
the others would issue redundant ones. Weights below 512 KiB stay in the second-level cache and are
not prefetched. BLIS and OpenBLAS prefetch the next micro-panel of B in the same place, inside the
micro-kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from intarsia_ir.tir.expr import PrimExpr, TirVar, index, minimum, select
from intarsia_ir.tir.stmt import For, ForKind, LetStmt, Seq, Stmt

from .loops import Source, address_of, flattened, load

STREAMED_BYTES = 512 * 1024
"""Weights from so many bytes on come from memory."""

_ORDERED_BYTES = 128 * 1024
"""The same of words in an order of their own: layers before have taken the second-level cache."""

Prefetch: TypeAlias = Callable[[PrimExpr, Stmt], Stmt]
"""``prefetch(element, body)``: ``body`` while the cache line of ``element``, a load, is fetched."""


class WeightPrefetch(Struct, frozen=True):
    """The block of weights that comes next, fetched by the tiles of this one, each its share.

    What all of them fetched would be asked of the memory by the first one alone, faster than it
    can answer.

    Attributes:
        prefetch: How.
        weight: ``weight(number)``: one of these weights, as a load.
        size: How many they are.
        before: Rows in the tiles before this one.
        rows: Rows in all tiles of the block.
    """

    prefetch: Prefetch
    weight: Callable[[PrimExpr], PrimExpr]
    size: int
    before: PrimExpr
    rows: int

    def around(
        self,
        body: Stmt,
        step: Sequence[PrimExpr],
        extents: Sequence[int | PrimExpr],
        tile: tuple[int, int],
    ) -> Stmt:
        """Return ``body`` while a tile fetches what is its share in one step of its loops.

        Args:
            body: What the step does.
            step: Its number in each loop, outermost first.
            extents: Of the loops.
            tile: Rows of the tile, and weights in a vector or a cache line.
        """
        rows, lanes = tile
        share = -(-self.size // self.rows)
        offset, steps = index(0), 1
        for position, extent in zip(step, extents, strict=True):
            assert isinstance(extent, int)  # loops over weights that are packed
            offset, steps = offset * extent + position, steps * extent
        each = -(-share * rows // steps)
        first = self.before * share + offset * each
        elements = (self.weight(first + start) for start in range(0, each, lanes))
        return with_prefetch(self.prefetch, elements, body)


class OpenWeightPrefetch(Struct, frozen=True):
    """The same for an open number of tiles, of which two, four or eight share the next block.

    A step fetches one line. Of eight tiles each advances by an eighth of the block: several steps
    fetch the same line, which costs nothing but the instruction.

    Attributes:
        prefetch: How.
        weight: ``weight(number)``: one of these weights, as a load.
        width: Weights that are read in a step.
        before: Number of the tile in its panel.
        tiles: Tiles of the panel, at least one.
        first: The first weight that the tile fetches, bound by :meth:`bind`.
        per_step: Weights from one step to the next, bound so too.
    """

    prefetch: Prefetch
    weight: Callable[[PrimExpr], PrimExpr]
    width: int
    before: PrimExpr
    tiles: PrimExpr
    first: TirVar = field(default_factory=lambda: TirVar("first"))
    per_step: TirVar = field(default_factory=lambda: TirVar("per_step"))

    def around(
        self,
        body: Stmt,
        step: Sequence[PrimExpr],
        extents: Sequence[int | PrimExpr],
        _tile: tuple[int, int],
    ) -> Stmt:
        """Return ``body`` while a tile fetches a line, as :meth:`WeightPrefetch.around`."""
        offset = flattened(step, extents)
        return self.prefetch(self.weight(self.first + offset * self.per_step), body)

    def bind(self, steps: int, body: Stmt) -> Stmt:
        """Return the loops of a tile, ``steps`` in all, with what they fetch from bound."""
        alone, few, most = self.tiles < 2, self.tiles < 4, self.tiles >= 8
        shared = select(most, index(8), select(few, index(2), index(4)))
        times = select(most, index(1), select(few, index(4), index(2)))
        times = select(alone, index(0), times)
        first = minimum(self.before, shared - 1) * steps * self.per_step
        bound = LetStmt(self.first, first, body)
        return LetStmt(self.per_step, times * -(-self.width // 8), bound)


class OpenUnitPrefetch(Struct, frozen=True):
    """The same for the tiles of a matrix unit, which share the next block evenly.

    Attributes:
        prefetch: How.
        weight: ``weight(number)``: one of the weights of the next block, as a load.
        line: Weights in a cache line.
        first: The line of the block that the tile fetches first.
        each: Lines that it fetches in a step.
    """

    prefetch: Prefetch
    weight: Callable[[PrimExpr], PrimExpr]
    line: int
    first: PrimExpr
    each: PrimExpr

    def around(
        self,
        body: Stmt,
        step: Sequence[PrimExpr],
        extents: Sequence[int | PrimExpr],
        _tile: tuple[int, int],
    ) -> Stmt:
        """Return ``body`` behind a loop that fetches lines, as :meth:`WeightPrefetch.around`."""
        number = flattened(step, extents)

        def fetch(i: PrimExpr) -> Stmt:
            line = self.first + number * self.each + i
            return self.prefetch(self.weight(line * self.line), Seq(()))

        return Seq((For(line := TirVar("line"), self.each, ForKind.SERIAL, fetch(line)), body))


def with_prefetch(prefetch: Prefetch | None, elements: Iterable[PrimExpr], body: Stmt) -> Stmt:
    """Return ``body`` while the cache lines of loads are fetched, if the machine has to be told."""
    if prefetch is not None:
        for offset in elements:
            body = prefetch(offset, body)
    return body


def prefetch_next_block(
    prefetch: Prefetch | None,
    weight: Source,
    start: Sequence[PrimExpr | int],
    depth: int,
    rows: tuple[PrimExpr, int],
    tile: int,
    *,
    is_ordered: bool = False,
) -> WeightPrefetch | None:
    """Return what a tile fetches of the next block of weights if they come from memory.

    A tile alone reads a block as fast as it comes: there is nothing to do meanwhile.

    Args:
        prefetch: How, if the machine has to be told.
        weight: All weights; the last dimension is the width of a block.
        start: Where the next block is, but for the place in its width.
        depth: How many vectors of that width are read of a block.
        rows: Rows that other tiles have done with this block, and how many there are in all; they
            may be counted in tiles.
        tile: Rows of the tile.
        is_ordered: Whether words of weights are in an order of their own.
    """
    if (
        prefetch is None
        or not is_streamed(weight, _ORDERED_BYTES if is_ordered else STREAMED_BYTES)
        or tile == rows[1]
    ):
        return None
    size = depth * weight.shape[-1]
    return WeightPrefetch(
        prefetch, lambda offset: address_of(load(weight, *start, offset)), size, *rows
    )


def prefetch_next_open_block(
    prefetch: Prefetch | None,
    weight: Source,
    start: Sequence[PrimExpr | int],
    tiles: tuple[PrimExpr, PrimExpr],
    ordered_steps: int = 0,
) -> OpenWeightPrefetch | None:
    """Return what one of an open number of tiles fetches of the next block of weights.

    Args:
        prefetch: How, if the machine has to be told.
        weight: All weights; the last dimension is the width of a block.
        start: Where the next block is, but for the place in its width.
        tiles: Number of the tile in its panel, and the tiles of the panel.
        ordered_steps: In how many steps a tile reads a block, where its words are in an order of
            their own; 0 where they are not, and each step reads a vector of that width.
    """
    least = _ORDERED_BYTES if ordered_steps else STREAMED_BYTES
    if prefetch is None or not is_streamed(weight, least):
        return None
    *_, depth, width = weight.shape
    return OpenWeightPrefetch(
        prefetch,
        lambda offset: address_of(load(weight, *start, offset)),
        -(-depth * width // ordered_steps) if ordered_steps else width,
        *tiles,
    )


def is_streamed(weight: Source, least: int = STREAMED_BYTES) -> bool:
    """Whether weights come from memory, so that the next block should be fetched meanwhile."""
    return weight.bytes >= least and weight.shape[0] > 1
