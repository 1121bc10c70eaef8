# SPDX-License-Identifier: Apache-2.0
"""What loops may call by LLVM's own name, with ``call_target_intrinsic``."""

from __future__ import annotations

from intarsia.plugin import CodegenSignature
from intarsia_ir.tir.expr import INDEX
from intarsia_runtime.dtype import DType

from .amx import PROCEDURES

_REAL = frozenset({DType.FLOAT32, DType.FLOAT64})
_WIDE = frozenset({DType.INT16, DType.INT32, DType.INT64, DType.UINT16, DType.UINT32, DType.UINT64})
_QUARTERS = frozenset({DType.INT8, DType.UINT8})
_INTEGERS = _WIDE | _QUARTERS
_SIGNED = frozenset({DType.INT8, DType.INT16, DType.INT32, DType.INT64})

EXCHANGES = frozenset(
    f"llvm.exchange.{half}.{block}" for half in ("low", "high") for block in (1, 2, 4, 8, 16)
)
"""Two vectors trade blocks of lanes, which is how a square of vectors is transposed.

``low``: the even blocks of both, ``a0 b0 a2 b2 ...``; ``high``: the odd ones, ``a1 b1 a3 b3 ...``.
"""

DEINTERLEAVE = ("llvm.lanes.even", "llvm.lanes.odd")
"""Deinterleave: the even or the odd lanes of two vectors side by side."""

DOT = "llvm.x86.avx512.vpdpbusd"
"""``dot(sum, a, b)``: ``sum`` and four products, of unsigned bytes of ``a`` and signed of ``b``."""

SIGNED_DOT = "llvm.aarch64.neon.sdot"
"""The same sum of signed bytes of both."""

UNSIGNED_DOT = "llvm.aarch64.neon.usdot"
"""The same sum of unsigned bytes of ``a``."""

SIGNED_DOT_BY_PAIRS = "llvm.signed.pairs"
"""That sum by products of NEON in 16 bits, each added up in 32."""

SIGNED_DOT_OF_NARROW = "llvm.signed.bytes"
"""That sum where two neighbouring products fit 16 bits together."""

SIGNED_MATRIX = "llvm.aarch64.neon.smmla"
"""``add(sums, a, b)``: sums of products of 8 signed bytes of two rows and two columns."""

BF16_DOT = "llvm.aarch64.neon.bfdot"
"""``dot(sum, a, b)``: a float32 ``sum`` and two products, of bfloat16 in words of 32 bits."""

BF16_DOT_X86 = "llvm.x86.avx512bf16.dpbf16ps"
"""The same sum on x86; subnormal operands and results are 0."""

BF16_MATRIX = "llvm.aarch64.neon.bfmmla"
"""``add(sums, a, b)``: sums of products of 4 bfloat16 of two rows and two columns."""

UNSIGNED_MATRIX = "llvm.aarch64.neon.usmmla"
"""The same sums of unsigned bytes of the rows."""

HALF_FMA = "llvm.aarch64.half.fma"
"""``fma(a, b, sum)`` of float16, rounded once to it, by instructions that compute in it."""

SPLATS = tuple(f"llvm.splat.{lane}" for lane in range(8))
"""A lane of a vector in all lanes, which NEON's instructions multiply by as it is."""

DOT_BY_PAIRS = "llvm.pairs"
"""The same sum by products of 16-bit integers, of which an instruction adds up pairs."""

MULTIPLY_PAIRS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}
"""LLVM's name of that instruction, ``vpmaddwd``, by the lanes of its result."""

DOT_OF_NARROW = "llvm.bytes"
"""The same sum where two neighbouring products fit 16 bits together."""

DOT_OF_JOINED = "llvm.bytes.joined"
"""``dot(sum, a, b, v, w)``: products of ``a`` and ``v``, and of ``b`` and ``w``, all in 16 bits."""

DOT_OF_MAGNITUDES = ("llvm.magnitudes.1", "llvm.magnitudes.2")
"""``dot(sum, a, v, m)``: of unsigned ``v`` and signed ``a ^ m``; two words added up in 16 bits."""

MAGNITUDES = "llvm.bytes.magnitudes"
"""The absolute values of the bytes of a word, unsigned."""

MASKS = ("llvm.bytes.masks", "llvm.bytes.signs")
"""What gives unsigned data less 128, or signed data, the signs of weights by an XOR."""

MULTIPLY_BYTES = {
    4: "llvm.x86.ssse3.pmadd.ub.sw.128",
    8: "llvm.x86.avx2.pmadd.ub.sw",
    16: "llvm.x86.avx512.pmaddubs.w.512",
}
"""LLVM's name of ``vpmaddubsw``, by the words of its result."""

LOAD_WORD = "llvm.quad"
"""Four bytes, or two of bfloat16, as one 32-bit integer; its argument is the load of the first."""

LOAD_UNSIGNED_PAIR = "llvm.pair.unsigned"
"""Two unsigned bytes, widened to the halves of a 32-bit integer; its argument as of a word's."""

LOAD_SIGNED_PAIR = "llvm.pair.signed"
"""The two signed bytes of 16 bits, widened so; its argument is the load of the 16 bits."""

DOT_OF_PAIRS = "llvm.pair.dot"
"""``dot(sum, a, b)``: ``sum`` and two products, of signed halves of ``a`` and ``b``."""

LOOK_UP = "llvm.lookup"
"""Bytes of a table of 256 by the bytes of a vector; its arguments: these, and the first load."""

PREFETCH = "llvm.prefetch"
"""Ask for an element ahead of its use; its argument is the load, its result means nothing."""

ANGLE_REST = "llvm.angle.rest"
"""A far angle less its quarter turns, within pi/4 of 0; one that is not far, as it is."""

ANGLE_TURNS = "llvm.angle.turns"
"""How many quarter turns :data:`ANGLE_REST` takes off, but for a multiple of four."""

SCALE = "llvm.scale"
"""``scale(x, n, m)``: ``x * 2**n``, with ``n`` a whole float and ``m`` the integer it is."""

THREAD_SLOT = "llvm.thread.slot"
"""Number of a slot that no other thread of the parallel loop holds; its argument: how many."""

MOST_SLOTS = 64
"""Bits of the word in which threads claim slots; more threads than slots take turns."""

FUNCTIONS = {
    "llvm.fma": CodegenSignature(3, _REAL),
    HALF_FMA: CodegenSignature(3, frozenset({DType.FLOAT16})),
    "llvm.copysign": CodegenSignature(2, _REAL),
    "llvm.minnum": CodegenSignature(2, _REAL),
    "llvm.maxnum": CodegenSignature(2, _REAL),
    **dict.fromkeys(
        ("llvm.fabs", "llvm.sqrt", "llvm.roundeven", "llvm.floor", "llvm.ceil", "llvm.trunc"),
        CodegenSignature(1, _REAL),
    ),
    **dict.fromkeys(("llvm.ctpop", "llvm.ctlz", "llvm.cttz"), CodegenSignature(1, _INTEGERS)),
    "llvm.bswap": CodegenSignature(1, _WIDE),
    "llvm.bitcast": CodegenSignature(1, result=frozenset(DType)),
    "llvm.fptosi": CodegenSignature(1, _REAL, _SIGNED),
    ANGLE_REST: CodegenSignature(1, frozenset({DType.FLOAT64})),
    ANGLE_TURNS: CodegenSignature(1, frozenset({DType.FLOAT64}), frozenset({DType.INT64})),
    SCALE: CodegenSignature(3, result=_REAL),
    LOAD_WORD: CodegenSignature(1, _QUARTERS | {DType.BFLOAT16}, frozenset({DType.INT32})),
    LOAD_UNSIGNED_PAIR: CodegenSignature(1, _QUARTERS, frozenset({DType.INT32})),
    LOAD_SIGNED_PAIR: CodegenSignature(1, frozenset({DType.INT16}), frozenset({DType.INT32})),
    **dict.fromkeys(
        (
            DOT,
            SIGNED_DOT,
            SIGNED_DOT_BY_PAIRS,
            SIGNED_DOT_OF_NARROW,
            SIGNED_MATRIX,
            UNSIGNED_DOT,
            UNSIGNED_MATRIX,
            DOT_BY_PAIRS,
            DOT_OF_NARROW,
            DOT_OF_PAIRS,
        ),
        CodegenSignature(3, frozenset({DType.INT32})),
    ),
    **dict.fromkeys(
        (BF16_DOT, BF16_DOT_X86, BF16_MATRIX),
        CodegenSignature(3, frozenset({DType.FLOAT32, DType.INT32})),
    ),
    DOT_OF_JOINED: CodegenSignature(5, frozenset({DType.INT32})),
    **{
        name: CodegenSignature(1 + 3 * words, frozenset({DType.INT32}))
        for words, name in enumerate(DOT_OF_MAGNITUDES, 1)
    },
    **dict.fromkeys((MAGNITUDES, *MASKS), CodegenSignature(1, frozenset({DType.INT32}))),
    **dict.fromkeys(SPLATS, CodegenSignature(1)),
    LOOK_UP: CodegenSignature(2, _QUARTERS, _QUARTERS),
    THREAD_SLOT: CodegenSignature(1, result=frozenset({INDEX})),
    PREFETCH: CodegenSignature(1, result=frozenset({DType.BOOL})),
    **dict.fromkeys((*EXCHANGES, *DEINTERLEAVE), CodegenSignature(2)),
}
"""Name to what it takes and gives."""


def target_function(name: str) -> CodegenSignature | None:
    """Find a function or procedure by its name; ``None`` if this generator does not know it."""
    return FUNCTIONS.get(name) or PROCEDURES.get(name)
