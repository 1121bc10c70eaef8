# SPDX-License-Identifier: Apache-2.0
"""How a backend multiplies operands of 8 bits and of bfloat16, packed in words of 32 bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.stmt import Stmt

from .matrix_unit import MatrixUnit
from .ordered_words import OrderedDot


class DotMicroKernel(Protocol):
    """A backend's procedure for the inner loop of an 8-bit tile: a dot product over all of K."""

    def __call__(
        self,
        sums: Buffer,
        left: Sequence[PrimExpr],
        right: PrimExpr,
        words: PrimExpr | int,
        *,
        signed: bool,
    ) -> Stmt:
        """Return the statement; see :class:`Int8x4`."""
        ...


class Taps(Struct, frozen=True):
    """The taps of one depthwise window that lie inside the input, and how to step through them.

    Attributes:
        data: The load of the first tap's element, of the first channel.
        weight: The load of its weight.
        rows: Rows of taps; none if it is not positive.
        columns: Taps in a row.
        data_steps: Elements from a row of taps to the next one, and from a tap to its neighbour.
        weight_steps: The same of the weights.
        zero: Zero point of the data, which is subtracted from each element.
    """

    data: PrimExpr
    weight: PrimExpr
    rows: PrimExpr
    columns: int
    data_steps: tuple[int, int]
    weight_steps: tuple[int, int]
    zero: int


class DepthwiseMicroKernel(Struct, frozen=True):
    """A backend's procedure for 8-bit depthwise windows.

    Attributes:
        micro_kernel: ``micro_kernel(sums, taps)``: a statement that writes the sum of the products
            of each channel to ``sums[0, channel]``. Channels are contiguous in data and weights.
        channels: Channels of one call that suit the procedure best.
    """

    micro_kernel: Callable[[Buffer, Taps], Stmt]
    channels: int


class Int16x2(Struct, frozen=True):
    """How a backend multiplies 8-bit operands in 16 bits: two neighbours widened to a 32-bit word.

    Two products of a byte and a signed byte fit 32 bits whatever they are. Data are widened when
    they are copied to a strip or a panel; weights, when a tile loads them.

    Attributes:
        load: ``load(first)``: two unsigned bytes from ``first`` on, a load of a byte, widened.
        load_weight: ``load_weight(pair)``: the two signed bytes of ``pair``, a load of 16 bits.
        add: ``add(total, left, right)``: ``total`` plus two products (``vpmaddwd``).
        rows: Rows of a tile two vectors wide.
    """

    load: Callable[[PrimExpr], PrimExpr]
    load_weight: Callable[[PrimExpr], PrimExpr]
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    rows: int


class RowPairs(Struct, frozen=True):
    """How a backend multiplies two rows by two columns, two words of each (``row_pairs.py``).

    Attributes:
        add: ``add(total, left, right)``: ``total`` plus four sums of products.
        exchange: ``exchange(a, b, half, block)``: two vectors trade blocks of lanes; ``"low"`` are
            the even ones of both, ``"high"`` the odd ones.
        vector: ``vector(word)``: the vector of words along K from ``word`` on, a load of one, of
            which ``left_lanes`` returns lanes; ``None`` where that does.
        add_unsigned: ``add`` of unsigned data (``USMMLA``); ``None`` if there is none.
    """

    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    exchange: Callable[[PrimExpr, PrimExpr, str, int], PrimExpr]
    vector: Callable[[PrimExpr], PrimExpr | None]
    add_unsigned: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr] | None = None


class Int8x4(Struct, frozen=True):
    """How a backend multiplies 8-bit operands: four neighbouring bytes packed in a 32-bit word.

    Attributes:
        load: ``load(first)``: the word at the address of ``first``, a load of a byte.
        add: ``add(total, left, right)``: ``total`` plus four products, of the unsigned bytes of
            ``left`` and the signed ones of ``right`` (``vpdpbusd`` of AVX512-VNNI).
        signed: Whether ``add`` takes signed bytes of ``left``, too (``SDOT`` of NEON): data without
            sign are then moved down by 128, as data with sign are moved up otherwise.
        add_unsigned: ``add`` of unsigned bytes of ``left`` where it takes signed ones (``USDOT``):
            data without sign then stay as they are.
        least_rows: Products with M below this run as default loops.
        micro_kernel: ``micro_kernel(sums, left, right, words, signed=...)``: a statement that adds
            the products along all words of K to the sums of a tile, from the first word of each
            row of data and of the weights on; ``None`` if tiles have a loop over the words.
        columns: Most columns of weights that are packed side by side; as many as of float32 if 0.
        one_row_columns: The same where data has one row, which leaves registers to more sums; twice
            as many if 0.
        depthwise: The procedure for depthwise windows; ``None`` if loops compute them.
        unit: A unit that multiplies matrices of bytes; ``None`` if the machine has none.
        add_narrow: What is faster than ``add`` for weights that
            :func:`~.int8x4.has_narrow_pairs`; ``None`` if nothing is.
        narrow_rows: Rows of a tile two vectors wide with it.
        ordered: What is faster than both for several rows of data; ``None`` if nothing is.
        int16x2: What is faster than ``add`` for several rows of data; ``None`` if nothing is.
        row_pairs: The same, which multiplies two rows at a time.
    """

    load: Callable[[PrimExpr], PrimExpr]
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]
    signed: bool = False
    add_unsigned: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr] | None = None
    least_rows: int = 1
    micro_kernel: DotMicroKernel | None = None
    columns: int = 0
    one_row_columns: int = 0
    depthwise: DepthwiseMicroKernel | None = None
    unit: MatrixUnit | None = None
    add_narrow: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr] | None = None
    narrow_rows: int = 0
    ordered: OrderedDot | None = None
    int16x2: Int16x2 | None = None
    row_pairs: RowPairs | None = None


class Bf16x2(Struct, frozen=True):
    """How a backend multiplies bfloat16 operands: two neighbours packed in a 32-bit word.

    Attributes:
        load: ``load(first)``: the word at the address of ``first``, a load of a bfloat16.
        unit: The unit that multiplies matrices of them; ``None`` if vectors do.
        add: ``add(total, left, right)``: a vector of float32 plus two products (``BFDOT`` of NEON).
        row_pairs: What multiplies two rows at a time where words along K are whole vectors.
    """

    load: Callable[[PrimExpr], PrimExpr]
    unit: MatrixUnit | None = None
    add: Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr] | None = None
    row_pairs: RowPairs | None = None
