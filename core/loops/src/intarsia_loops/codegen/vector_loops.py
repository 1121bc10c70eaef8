# SPDX-License-Identifier: Apache-2.0
"""Find loops over lanes that are statements of GNU C's vector types: register tiles of kernels.

``vectorized i: sum[i] = sum[i] + x * w[k, i]`` --> ``sum = sum + (x * *(ix_f32x8u *)&w[...])``

GCC 12 makes vectors of such loops too, but not reliably: it writes a loop out before it looks for
vectors (the sums of 3 rows took five times as long), writes out two steps of the loop around it
together, which 16 registers do not hold, or divides a sum among two integer registers. The tile of
5 x 2 sums + 5 broadcast elements + 1 row of B in 16 ymm registers took 635 us where it takes 376
with vector types (80 x 256 x 1024, Zen 4). Loops that do more than sums and products stay loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import Binary, BinaryOp, IntImm, Load, PrimExpr, TirVar
from intarsia_ir.tir.stmt import Allocate, For, ForKind, Seq, Stmt, Store
from intarsia_ir.tir.walk import post_order, statement_exprs, statements
from intarsia_runtime.dtype import DType

_ARITHMETIC = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)
_FLOATS = (DType.FLOAT32, DType.FLOAT64)


class VectorLoops(Struct):
    """What of a function is written with vector types.

    Attributes:
        loops: Loops over lanes, each of whose statements is one of vectors.
        buffers: Arrays of registers that are one vector each.
    """

    loops: set[For] = field(default_factory=set[For])
    buffers: set[Buffer] = field(default_factory=set[Buffer])


def find_vectors(body: Stmt, size: int) -> VectorLoops:
    """Return what of ``body`` is written with vector types of ``size`` bytes.

    Arrays are vectors if loops over all of their lanes write them; of these loops, those that do no
    more than sums and products of such arrays, of contiguous elements of memory, and of scalars.
    """
    loops = [part for part in statements(body) if isinstance(part, For) and lanes_of(part)]
    found = VectorLoops(set(loops), _registers(body, size))
    owners: dict[Store, For] = {store: loop for loop in loops for store in stores_of(loop)}
    for part in statements(body):
        found.buffers -= set(_taken_apart(part, owners))
    while True:
        plain = {loop for loop in found.loops if _is_plain(loop, found.buffers)}
        others = (store.buffer for loop in loops if loop not in plain for store in stores_of(loop))
        lost = found.buffers.intersection(others)
        found.loops = plain
        found.buffers -= lost
        if not lost:
            return found


def stores_of(loop: For) -> tuple[Store, ...]:
    """Return the stores in a loop over lanes; none if it has other statements."""
    match loop.body:
        case Store():
            return (loop.body,)
        case Seq(body=parts):
            stores = tuple(part for part in parts if isinstance(part, Store))
            return stores if len(stores) == len(parts) else ()
        case _:
            return ()


def loads_of(exprs: Iterable[PrimExpr]) -> list[Load]:
    """Return what expressions load."""
    return [node for node in post_order(*exprs) if isinstance(node, Load)]


def has_lane(expr: PrimExpr, lane: TirVar) -> bool:
    """Whether the lanes of an expression differ."""
    return any(node is lane for node in post_order(expr))


def lanes_of(loop: For) -> int:
    """Return the number of lanes of a loop over them; 0 if that is no constant."""
    match loop:
        case For(kind=ForKind.VECTORIZED, extent=IntImm(value=lanes)):
            return lanes
        case _:
            return 0


def _registers(body: Stmt, size: int) -> set[Buffer]:
    """Return the arrays that have the size of a vector register."""
    found = (part.buffer for part in statements(body) if isinstance(part, Allocate))
    return {
        buffer
        for buffer in found
        if buffer.scope is MemoryScope.REGISTER
        and buffer.dtype in _FLOATS
        and len(buffer.shape) == 1
        and buffer.bytes == size
    }


def _taken_apart(stmt: Stmt, owners: dict[Store, For]) -> Iterator[Buffer]:
    """Yield buffers of which a statement reads or writes other than each lane its own element."""
    places = [(load.buffer, load.indices) for load in loads_of(statement_exprs(stmt))]
    loop = None
    if isinstance(stmt, Store):
        places.append((stmt.buffer, stmt.indices))
        loop = owners.get(stmt)
    for buffer, indices in places:
        if loop is None or indices != (loop.var,) or lanes_of(loop) != buffer.shape[0]:
            yield buffer


def _is_plain(loop: For, vectors: set[Buffer]) -> bool:
    """Whether a loop's statements are sums and products, and some are of vectors."""
    stores = stores_of(loop)
    read = {load.buffer for load in loads_of(store.value for store in stores)}
    touched = vectors & {*read, *(store.buffer for store in stores)}
    return bool(touched) and all(
        _is_place(store.buffer, store.indices, loop.var, vectors)
        and store.buffer.dtype is store.value.dtype
        and _is_arithmetic(store.value, loop.var, vectors)
        for store in stores
    )


def _is_arithmetic(expr: PrimExpr, lane: TirVar, vectors: set[Buffer]) -> bool:
    if not has_lane(expr, lane):
        return expr.dtype in _FLOATS
    match expr:
        case Binary():
            parts = (expr.a, expr.b)
            return expr.op in _ARITHMETIC and all(_is_arithmetic(p, lane, vectors) for p in parts)
        case Load():
            return _is_place(expr.buffer, expr.indices, lane, vectors)
        case _:
            return False


def _is_place(
    buffer: Buffer, indices: tuple[PrimExpr, ...], lane: TirVar, vectors: set[Buffer]
) -> bool:
    """Whether lanes are a vector, or neighbours in memory."""
    if buffer in vectors:
        return True
    is_memory = buffer.scope is not MemoryScope.REGISTER and buffer.dtype in _FLOATS
    is_near = bool(indices) and _stride(indices[-1], lane) == 1
    return is_memory and is_near and not any(has_lane(at, lane) for at in indices[:-1])


def _stride(expr: PrimExpr, lane: TirVar) -> int | None:
    """Return how far neighbouring lanes are apart; ``None`` if that is no number."""
    if expr is lane:
        return 1
    if not has_lane(expr, lane):
        return 0
    match expr:
        case Binary(op=BinaryOp.ADD, a=a, b=b):
            strides = _stride(a, lane), _stride(b, lane)
            return None if None in strides else sum(filter(None, strides))
        case Binary(op=BinaryOp.MUL, a=a, b=IntImm(value=factor)):
            stride = _stride(a, lane)
            return None if stride is None else stride * factor
        case _:
            return None
