# SPDX-License-Identifier: Apache-2.0
"""GEMM of rows in 8 bits with 4-bit weights: ``ops/int4_bytes.py`` on a machine's dot products.

Codes are the unsigned operand, 0 to 15, and levels of rows the signed one: no correction of signs.

- ``vpdpbusd``: a line of 64 bytes has 8 codes of 16 columns; a mask, a shift and the mask make the
  operands of two instructions. One row is bound by memory; four vectors of columns wait less.
- ``vpmaddubsw`` adds two products in 16 bits: at most ``2 * 15 * 128 = 3840``, and four at most
  7680, so that it never saturates, and both halves of a word are added up before they are widened.
- Registers of AVX-512, each sum twice (integers of a block, floats of all): 12 rows of one vector
  take 24 + 2 codes + 1 of 32. Tiles of one vector have 12 dots for each mask; the broadcast levels
  are operands in memory. AVX2: 4 rows of one vector take 8 + 2 + 3 temporaries of 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.graph.expr import Call, tensor_type
from intarsia_ir.ops.block_tiles import COLUMNS, BlockTile
from intarsia_ir.ops.int4_bytes import Int4ByteMatmul, NibbleDot
from intarsia_ir.ops.recurrent_loops import spread
from intarsia_ir.tir.expr import BinaryOp, PrimExpr, binary, const
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import FusedGroup
from intarsia_runtime.dtype import DType

from ..targets import LoopTarget
from .int8x4 import dot4_by_shifts
from .int8x4_schedules import Schedule
from .packed_operands import Int8x4
from .tiling import CpuTiling

_NIBBLES = 0x0F0F0F0F
"""The low half of each byte of a word."""

_LARGE = (BlockTile(12, 1), BlockTile(8, 1), BlockTile(4, 2), BlockTile(2, 4), BlockTile(1, 4))
"""Tiles of 32 registers."""

_SMALL = (BlockTile(4, 1), BlockTile(2, 1), BlockTile(1, 2))
"""Tiles of 16 registers."""


class Int4ByteSchedules(Struct, frozen=True):
    """Schedules of products of bytes with weights of 4 bits.

    Attributes:
        tiling_of: ``tiling_of(target, dtype)``: the register tile for elements of a type.
    """

    tiling_of: Callable[[LoopTarget, DType], CpuTiling]

    def table(self) -> Mapping[str, Schedule]:
        """Return operator name to its schedule."""
        return MappingProxyType({"nn.int4_byte_matmul": self.product})

    def product(self, group: FusedGroup, target: LoopTarget) -> PrimFunc | None:
        """``nn.int4_byte_matmul``; ``None`` where no instruction adds four products up."""
        call, tiling = group.function.body, self.tiling_of(target, DType.INT32)
        int8x4 = tiling.int8x4
        if not isinstance(call, Call) or int8x4 is None or int8x4.add is dot4_by_shifts:
            return None
        if not isinstance(call.attrs, Int4ByteMatmul.Attrs) or COLUMNS % (4 * tiling.lanes):
            return None
        tiles = _LARGE if tiling.rows > 8 else _SMALL
        dot = NibbleDot(tiling.lanes, _halves, partial(_words, int8x4), partial(_added, int8x4))
        return Int4ByteMatmul.tiled(tiles, dot, call.attrs, *map(tensor_type, call.args))


def _halves(word: PrimExpr) -> list[PrimExpr]:
    """Return the codes of words in their low bits, and those in their high bits, as bytes."""
    four, mask = (spread(const(n, DType.INT32), word.lanes) for n in (4, _NIBBLES))
    high = binary(BinaryOp.SHR, word, four)
    return [binary(BinaryOp.AND, each, mask) for each in (word, high)]


def _words(int8x4: Int8x4, level: Callable[[int], PrimExpr]) -> list[PrimExpr]:
    """Return the levels that belong to both halves."""
    return [int8x4.load(level(0)), int8x4.load(level(4))]


def _added(
    int8x4: Int8x4, total: PrimExpr, codes: Sequence[PrimExpr], levels: Sequence[PrimExpr]
) -> PrimExpr:
    """Add the products of both halves."""
    wide = [spread(level, total.lanes) for level in levels]
    if int8x4.ordered is not None:
        return int8x4.ordered.joined(total, codes, wide)
    add = int8x4.add if int8x4.add_narrow is None else int8x4.add_narrow
    for code, level in zip(codes, wide, strict=True):
        total = add(total, code, level)
    return total
