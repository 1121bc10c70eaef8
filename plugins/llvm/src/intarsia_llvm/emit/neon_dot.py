# SPDX-License-Identifier: Apache-2.0
"""Products of words of 32 bits: of signed bytes on NEON, by ``SDOT`` or without; of bfloat16."""

from __future__ import annotations

from intarsia_ir.tir.expr import CallTarget

from ..functions import BF16_DOT, BF16_DOT_X86, SIGNED_DOT, SIGNED_DOT_OF_NARROW
from .spelling import vector_type
from .writer import FunctionWriter


def emit_signed_dot(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Add by ``SDOT`` or ``SMMLA``, of vectors of bytes, or ``USDOT`` or ``USMMLA``.

    The second of ``SDOT`` may be a lane in all lanes; LLVM turns ``USDOT`` of one into ``SUDOT``.
    """
    lanes = call.lanes
    kind, wide = vector_type("i32", lanes), vector_type("i8", 4 * lanes)
    suffix = f"v{lanes}i32.v{4 * lanes}i8"
    function = w.declarations.use(kind, f"{call.function}.{suffix}", (kind, wide, wide))
    left, right = _bytes(w, args, lanes)
    if call.function == SIGNED_DOT:
        left, right = right, left
    return w.emit(f"call {kind} {function}({kind} {args[0]}, {wide} {left}, {wide} {right})")


def emit_bf16_dot(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Add by ``BFDOT``, ``BFMMLA`` or ``VDPBF16PS``, of vectors of bfloat16, to float32."""
    total, words = vector_type("float", call.lanes), vector_type("i32", call.lanes)
    brain = vector_type("bfloat", 2 * call.lanes)
    left, right = (w.once(f"bitcast {words} {word} to {brain}", word) for word in args[1:])
    name = call.function
    if name == BF16_DOT:
        name, left, right = f"{name}.v{call.lanes}f32.v{2 * call.lanes}bf16", right, left
    elif name == BF16_DOT_X86:
        name = f"{name}.{32 * call.lanes}"
    function = w.declarations.use(total, name, (total, brain, brain))
    return w.emit(f"call {total} {function}({total} {args[0]}, {brain} {left}, {brain} {right})")


def emit_signed_dot_by_pairs(w: FunctionWriter, call: CallTarget, args: list[str]) -> str:
    """Multiply halves of the vectors into 16 bits, and add up neighbours twice.

    ``SMULL``, ``SMULL2``, ``ADDP`` and ``SADALP`` are four instructions for 16 products where two
    neighbours fit 16 bits together; ``SADDLP`` of each half, ``ADDP`` and ``ADD``
    make six where they may not, which only two products of -128 and -128 do not.
    """
    lanes = call.lanes
    kind, half = vector_type("i32", lanes), vector_type("i16", 2 * lanes)
    operands = _bytes(w, args, lanes)
    low, high = (_products(w, operands, lanes, first) for first in (0, 2 * lanes))
    if call.function == SIGNED_DOT_OF_NARROW:
        pairs = _pairwise(w, "addp", half, (low, high), half)
        both = _pairwise(w, "saddlp", kind, (pairs,), half)
    else:
        sums = tuple(_pairwise(w, "saddlp", kind, (product,), half) for product in (low, high))
        both = _pairwise(w, "addp", kind, sums, kind)
    return w.emit(f"add {kind} {args[0]}, {both}")


def _bytes(w: FunctionWriter, args: list[str], lanes: int) -> tuple[str, str]:
    kind, wide = vector_type("i32", lanes), vector_type("i8", 4 * lanes)
    left, right = (w.once(f"bitcast {kind} {word} to {wide}", word) for word in args[1:])
    return left, right


def _products(w: FunctionWriter, operands: tuple[str, str], lanes: int, first: int) -> str:
    """Return the products of half of the bytes, from one on, in 16 bits."""
    count = 2 * lanes
    whole, part, half = (
        vector_type("i8", 2 * count),
        vector_type("i8", count),
        vector_type("i16", count),
    )
    chosen = ", ".join(f"i32 {first + lane}" for lane in range(count))
    parts = [
        w.once(f"shufflevector {whole} {value}, {whole} poison, <{count} x i32> <{chosen}>", value)
        for value in operands
    ]
    function = w.declarations.use(half, f"llvm.aarch64.neon.smull.v{count}i16", (part, part))
    return w.emit(f"call {half} {function}({part} {parts[0]}, {part} {parts[1]})")


def _pairwise(w: FunctionWriter, name: str, kind: str, args: tuple[str, ...], taken: str) -> str:
    """Return sums of neighbours by one of NEON's instructions."""
    suffix = ".".join("v" + t.strip("<>").replace(" x ", "") for t in dict.fromkeys((kind, taken)))
    function = w.declarations.use(kind, f"llvm.aarch64.neon.{name}.{suffix}", (taken,) * len(args))
    return w.emit(f"call {kind} {function}({', '.join(f'{taken} {arg}' for arg in args)})")
