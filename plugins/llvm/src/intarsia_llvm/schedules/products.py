# SPDX-License-Identifier: Apache-2.0
"""How a machine multiplies operands of fewer than 32 bits: words of them by LLVM's functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from intarsia_ir.tir.expr import CallTarget, PrimExpr
from intarsia_loops.cpu.int8x4 import dot4_by_shifts
from intarsia_loops.cpu.ordered_words import OrderedDot
from intarsia_loops.cpu.packed_operands import Bf16x2, Int8x4, Int16x2, RowPairs
from intarsia_runtime.dtype import DType

from ..amx import Amx
from ..functions import (
    BF16_DOT,
    BF16_DOT_X86,
    BF16_MATRIX,
    DOT,
    DOT_BY_PAIRS,
    DOT_OF_JOINED,
    DOT_OF_MAGNITUDES,
    DOT_OF_NARROW,
    DOT_OF_PAIRS,
    HALF_FMA,
    LOAD_SIGNED_PAIR,
    LOAD_UNSIGNED_PAIR,
    LOAD_WORD,
    MAGNITUDES,
    MASKS,
    SIGNED_DOT,
    SIGNED_DOT_BY_PAIRS,
    SIGNED_DOT_OF_NARROW,
    SIGNED_MATRIX,
    UNSIGNED_DOT,
    UNSIGNED_MATRIX,
)
from ..machine import CodegenMachine
from .neon import words_along
from .transpose import exchange


def multiplies_pairs(machine: CodegenMachine) -> bool:
    """Whether bytes are multiplied in 16 bits, two at a time, for want of an instruction."""
    return machine.pairs and not machine.dot


def int8x4_of(machine: CodegenMachine, rows: int) -> Int8x4:
    """Return how vectors multiply bytes, on a machine whose tiles of float32 have so many rows."""
    if machine.signed_dot:
        int8x4 = Int8x4(load_word, partial(add_products, SIGNED_DOT), signed=True)
        if not machine.signed_matrix:
            return int8x4
        # Its processors multiply unsigned bytes by signed ones, too.
        by_rows, of_unsigned, rows_of_unsigned = (
            partial(add_products, name) for name in (SIGNED_MATRIX, UNSIGNED_DOT, UNSIGNED_MATRIX)
        )
        pairs = RowPairs(by_rows, exchange, words_along, rows_of_unsigned)
        return replace(int8x4, add_unsigned=of_unsigned, row_pairs=pairs)
    if machine.signed_pairs:
        add, narrow = (
            partial(add_products, name) for name in (SIGNED_DOT_BY_PAIRS, SIGNED_DOT_OF_NARROW)
        )
        return Int8x4(load_word, add, signed=True, add_narrow=narrow, narrow_rows=rows - 3)
    unit = Amx() if machine.amx else None
    by_pairs, add = multiplies_pairs(machine), dot4_by_shifts
    if by_pairs or machine.dot:
        add = partial(add_products, DOT_BY_PAIRS if by_pairs else DOT)
    # Ones, and the pairs that they multiply, take two registers: a row of sums.
    narrow = partial(add_products, DOT_OF_NARROW) if by_pairs and machine.byte_pairs else None
    of_pairs = partial(add_products, DOT_OF_PAIRS)
    halves = Int16x2(load_unsigned_pair, load_signed_pair, of_pairs, rows) if by_pairs else None
    # Eight sums, two magnitudes, their masks, two products and ones: 15 of 16 registers. Of
    # fourteen sums, weights, masks and ones are operands in memory, as often as they are read.
    splits = (partial(split_word, signed=False), partial(split_word, signed=True))
    ordered = OrderedDot(dot_of_joined, dot_of_magnitudes, *splits, 8, 14) if narrow else None
    return Int8x4(
        load_word, add, unit=unit, add_narrow=narrow, narrow_rows=rows - 1, ordered=ordered,
        int16x2=halves,
    )  # fmt: skip


def bf16x2_of(machine: CodegenMachine) -> Bf16x2 | None:
    """Return how bfloat16 is multiplied, if it may be."""
    if machine.amx_bf16:
        return Bf16x2(load_word, Amx(sums=DType.FLOAT32))
    if machine.bf16_dot:
        return Bf16x2(load_word, None, partial(add_products, BF16_DOT_X86))
    if not machine.bf16_matrix:
        return None
    dot, matrix = (partial(add_products, name) for name in (BF16_DOT, BF16_MATRIX))
    return Bf16x2(load_word, None, dot, RowPairs(matrix, exchange, words_along))


def load_word(first: PrimExpr) -> PrimExpr:
    """Return the 32 bits at the place of ``first``, a load of a byte or of bfloat16."""
    return CallTarget("llvm", LOAD_WORD, (first,), DType.INT32, 1)


def load_unsigned_pair(first: PrimExpr) -> PrimExpr:
    """Return two bytes of data, from ``first``, a load of a byte, on, as halves of 32 bits."""
    return CallTarget("llvm", LOAD_UNSIGNED_PAIR, (first,), DType.INT32, 1)


def load_signed_pair(pair: PrimExpr) -> PrimExpr:
    """Return the bytes of ``pair``, a load of 16 bits, with their signs as halves of 32 bits."""
    return CallTarget("llvm", LOAD_SIGNED_PAIR, (pair,), DType.INT32, 1)


def add_products(function: str, total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add the products of two words, or of vectors of them, by one of LLVM's functions."""
    return CallTarget("llvm", function, (total, left, right), total.dtype, total.lanes)


def add_in_float16(total: PrimExpr, left: PrimExpr, right: PrimExpr) -> PrimExpr:
    """Add a product of float16, rounded once to it."""
    return CallTarget("llvm", HALF_FMA, (left, right, total), DType.FLOAT16, total.lanes)


def dot_of_joined(total: PrimExpr, left: Sequence[PrimExpr], right: Sequence[PrimExpr]) -> PrimExpr:
    """Add the products of one or two words, of which all of a pair of lanes fit 16 bits."""
    function = DOT_OF_NARROW if len(left) == 1 else DOT_OF_JOINED
    return CallTarget("llvm", function, (total, *left, *right), DType.INT32, total.lanes)


def dot_of_magnitudes(
    total: PrimExpr, left: Sequence[PrimExpr], right: Sequence[PrimExpr]
) -> PrimExpr:
    """Add the products of one or two words of magnitudes, behind each of which is its mask."""
    function = DOT_OF_MAGNITUDES[len(left) - 1]
    return CallTarget("llvm", function, (total, *left, *right), DType.INT32, total.lanes)


def split_word(word: PrimExpr, *, signed: bool) -> tuple[PrimExpr, PrimExpr]:
    """Return the magnitudes of a word, and the mask for data, which are ``signed`` or not."""
    size, mask = (
        CallTarget("llvm", function, (word,), DType.INT32, word.lanes)
        for function in (MAGNITUDES, MASKS[signed])
    )
    return size, mask
