# SPDX-License-Identifier: Apache-2.0
"""Tables of 256 bytes that vectors of bytes are looked up in (``qnn.lookup``), on AVX-512.

The activation of a quantized layer is such a table, at the end of a convolution's or a product's
epilogue. Loads of single elements would make the whole epilogue a scalar loop. ``vpermi2b``
(AVX512-VBMI) picks bytes of two registers by 7 bits, so two of them and a blend by the eighth bit
look up 64 bytes: four registers hold the table. Without VBMI ``vpermi2w`` picks the words that hold
the bytes, by bits 1 to 6, and a shift by bit 0 chooses the byte. (AVX2's ``vpshufb`` takes 48
instructions for a vector, whose eight bytes are loaded faster one by one.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from intarsia_ir.tir.expr import Broadcast, CallTarget, IntImm, Load, PrimExpr
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.passes.rebuild import replace_statements
from intarsia_ir.tir.stmt import For, ForKind, Stmt
from intarsia_ir.tir.walk import rewrite_stmt
from intarsia_loops.vectorizable import looked_up

from ..functions import LOOK_UP
from .spelling import splat, vector_type
from .writer import FunctionWriter

_ENTRIES = 256
_REGISTER = 64  # bytes


def with_byte_tables(function: PrimFunc) -> PrimFunc:
    """Return a function whose vectorized loops look bytes up in tables by vectors.

    ``table[index(x) + 128]`` --> ``llvm.lookup(x, table[0])``
    """
    body = replace_statements(function.body, _in_loop)
    return function if body is function.body else replace(function, body=body)


def _in_loop(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, For) or stmt.kind is not ForKind.VECTORIZED:
        return None
    return rewrite_stmt(stmt, _as_call)


def _as_call(expr: PrimExpr) -> PrimExpr | None:
    byte = looked_up(expr)
    if byte is None or not isinstance(expr, Load):
        return None
    first = Load(expr.buffer, (IntImm(0),), expr.dtype, 1)
    return CallTarget("llvm", LOOK_UP, (byte, first), expr.dtype, expr.lanes)


def table_of(call: CallTarget) -> Load:
    """Return the load of the first byte of a table."""
    first = call.args[1]
    first = first.value if isinstance(first, Broadcast) else first
    assert isinstance(first, Load)  # as with_byte_tables makes it
    return first


def emit_lookup(w: FunctionWriter, call: CallTarget, byte: str, pointer: str, buffer: str) -> str:
    """Write a look-up of bytes.

    Args:
        w: Of the function.
        call: The look-up.
        byte: What is looked up.
        pointer: Address of the table.
        buffer: Pointer of the buffer that it lies in.
    """
    lanes, kind = call.lanes, vector_type("i8", call.lanes)
    if call.args[0].dtype.is_signed:
        byte = w.emit(f"xor {kind} {byte}, {splat('-128', 'i8', lanes)}")
    if lanes == 1:
        offset = w.emit(f"zext i8 {byte} to i64")
        return w.load("i8", w.emit(f"getelementptr i8, ptr {pointer}, i64 {offset}"), 1, buffer)
    look_up, width = (_by_bytes, 64) if w.declarations.byte_tables == 2 else (_by_words, 32)
    parts = [
        _part(w, byte, lanes, range(first, min(first + width, lanes)), width)
        for first in range(0, lanes, width)
    ]
    memory = vector_type("i8" if width == _REGISTER else "i16", width)
    rows = [
        w.load(memory, w.once(f"getelementptr i8, ptr {pointer}, i64 {start}", pointer), 1, buffer)
        for start in range(0, _ENTRIES, _REGISTER)
    ]
    found = [look_up(w, part, rows) for part in parts]
    return _joined(w, found, width, lanes)


def _by_bytes(w: FunctionWriter, byte: str, rows: Sequence[str]) -> str:
    """Look up 64 bytes: ``vpermi2b`` in both halves of the table."""
    low, high = (_permuted(w, "qi", "<64 x i8>", byte, rows[half : half + 2]) for half in (0, 2))
    upper = w.emit(f"icmp slt <64 x i8> {byte}, zeroinitializer")
    return w.emit(f"select <64 x i1> {upper}, <64 x i8> {high}, <64 x i8> {low}")


def _by_words(w: FunctionWriter, byte: str, rows: Sequence[str]) -> str:
    """Look up 32 bytes: ``vpermi2w`` picks the words that have them."""
    kind = "<32 x i16>"
    wide = w.emit(f"zext <32 x i8> {byte} to {kind}")
    word = w.emit(f"lshr {kind} {wide}, {splat('1', 'i16', 32)}")
    low, high = (_permuted(w, "hi", kind, word, rows[half : half + 2]) for half in (0, 2))
    upper = w.emit(f"icmp slt <32 x i8> {byte}, zeroinitializer")
    both = w.emit(f"select <32 x i1> {upper}, {kind} {high}, {kind} {low}")
    odd = w.emit(f"and {kind} {wide}, {splat('1', 'i16', 32)}")
    shift = w.emit(f"shl {kind} {odd}, {splat('3', 'i16', 32)}")
    return w.emit(f"trunc {kind} {w.emit(f'lshr {kind} {both}, {shift}')} to <32 x i8>")


def _permuted(w: FunctionWriter, suffix: str, kind: str, index: str, halves: Sequence[str]) -> str:
    name = f"llvm.x86.avx512.vpermi2var.{suffix}.512"
    function = w.declarations.use(kind, name, (kind,) * 3)
    first, second = halves
    return w.emit(f"call {kind} {function}({kind} {first}, {kind} {index}, {kind} {second})")


def _part(w: FunctionWriter, value: str, lanes: int, part: range, width: int) -> str:
    """Return some lanes of a vector, in one of ``width``; the others may have any value."""
    if lanes == width:
        return value
    mask = ", ".join([*(f"i32 {lane}" for lane in part), *("i32 poison",) * (width - len(part))])
    kind = vector_type("i8", lanes)
    return w.emit(f"shufflevector {kind} {value}, {kind} poison, <{width} x i32> <{mask}>")


def _joined(w: FunctionWriter, parts: Sequence[str], width: int, lanes: int) -> str:
    """Return vectors one behind the other, and of them the first lanes."""
    joined, count = parts[0], width
    for part in parts[1:]:
        kind, wide = vector_type("i8", count), vector_type("i8", width)
        if count > width:
            mask = ", ".join(
                f"i32 {lane}" if lane < width else "i32 poison" for lane in range(count)
            )
            part = w.emit(f"shufflevector {wide} {part}, {wide} poison, <{count} x i32> <{mask}>")
        mask = ", ".join(f"i32 {lane}" for lane in range(count + width))
        joined = w.emit(
            f"shufflevector {kind} {joined}, {kind} {part}, <{count + width} x i32> <{mask}>"
        )
        count += width
    return w.chosen(joined, "i8", count, range(lanes))
