# SPDX-License-Identifier: Apache-2.0
"""Constructors of loop IR: loops, loads and stores, ranges cut into equal parts and a remainder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Binary, BinaryOp, PrimExpr, TirVar, index, minimum
from intarsia_ir.tir.expr import Load as LoadExpr
from intarsia_ir.tir.stmt import For, ForKind, LetStmt, Seq, Stmt
from intarsia_ir.tir.stmt import Store as StoreStmt
from intarsia_ir.tir.walk import post_order
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

Body: TypeAlias = Callable[[PrimExpr], Stmt]
EpilogueStore: TypeAlias = "Callable[[PrimExpr, tuple[PrimExpr, ...]], Stmt]"
"""``epilogue(value, indices)`` applies the fused epilogue to an element and stores it."""

_ONE = 1 << 40
"""Of reciprocals."""


class PackedView(Struct, frozen=True):
    """A buffer of bytes or bfloat16 as one of 32-bit integers: neighbours of the last dimension.

    Attributes:
        buffer: The buffer.
        read: From the load of the first element, the integer.
        widened: Elements in an integer, of more bits there; 0 if they fill it as they are.
    """

    buffer: Buffer
    read: Callable[[PrimExpr], PrimExpr]
    widened: int = 0

    @property
    def elements_per_word(self) -> int:
        """Elements of the buffer in an integer."""
        return self.widened or self.dtype.bytes // self.buffer.dtype.bytes

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, the last one in integers."""
        *outer, last = self.buffer.shape
        return (*outer, last // self.elements_per_word)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return DType.INT32

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return self.buffer.bytes


def counted(op: BinaryOp, value: PrimExpr, number: int) -> PrimExpr:
    """Return ``value op number`` as a node of its own, even if the number is 1.

    So kernels of one block of channels have the loops of those of several, and can be one kernel
    (``merged_kernels.py``). Simplification folds what stays a number.
    """
    return Binary(op, value, index(number), value.dtype, value.lanes)


Source: TypeAlias = "Buffer | PackedView"


def let_all(bound: Sequence[tuple[TirVar, PrimExpr]], body: Stmt) -> Stmt:
    """Return ``body`` with variables bound, each of which may be used by those behind it."""
    for var, value in reversed(bound):
        body = LetStmt(var, value, body)
    return body


def load(buffer: Source, *indices: PrimExpr | int) -> PrimExpr:
    """Read one element."""
    if isinstance(buffer, PackedView):
        last = index(indices[-1]) * buffer.elements_per_word
        return buffer.read(load(buffer.buffer, *indices[:-1], last))
    return LoadExpr(buffer, tuple([index(i) for i in indices]), buffer.dtype, 1)


def address_of(element: PrimExpr) -> LoadExpr:
    """Return the load that an element, or the first part of a packed one, comes from."""
    return next(node for node in post_order(element) if isinstance(node, LoadExpr))


def store(buffer: Buffer, indices: Iterable[PrimExpr | int], value: PrimExpr) -> Stmt:
    """Write one element."""
    return StoreStmt(buffer, tuple([index(i) for i in indices]), value)


def seq(*parts: Stmt) -> Stmt:
    """Statements in order, nested sequences flattened."""
    flat: list[Stmt] = []
    for part in parts:
        flat.extend(part.body if isinstance(part, Seq) else (part,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def _loop(kind: ForKind, extent: PrimExpr | int, body: Body, name: str) -> Stmt:
    var = TirVar(name)
    return For(var, index(extent), kind, body(var))


def serial(extent: PrimExpr | int, body: Body, name: str = "i") -> Stmt:
    """``for i in range(extent): body(i)``."""
    return _loop(ForKind.SERIAL, extent, body, name)


def parallel(extent: PrimExpr | int, body: Body, name: str = "p") -> Stmt:
    """The same, split over threads."""
    return _loop(ForKind.PARALLEL, extent, body, name)


def unrolled(extent: int, body: Body, name: str = "u") -> Stmt:
    """The same, written out."""
    return _loop(ForKind.UNROLLED, extent, body, name)


def vectorized(extent: int, body: Body, name: str = "v") -> Stmt:
    """The same, as one vector operation."""
    return _loop(ForKind.VECTORIZED, extent, body, name)


class RangePart(Struct, frozen=True):
    """``count`` pieces of ``size``, one behind the other.

    Attributes:
        start: Where the first one begins.
        count: How many.
        size: Of each.
        end: Where the last one ends, if that is before the end of them all: it overlaps.
    """

    start: int
    count: int
    size: int
    end: int | None = None

    def start_of(self, number: PrimExpr) -> PrimExpr:
        """Return where a piece begins."""
        begin = number * self.size + self.start
        return begin if self.end is None else minimum(begin, index(self.end - self.size))


def cut(extent: int, size: int, *, overlap: int = 0) -> tuple[RangePart, ...]:
    """Cut a range into pieces of ``size`` and, if need be, one smaller piece.

    Args:
        extent: The range.
        size: Of a piece.
        overlap: How much may be in two pieces, so that none is smaller.
    """
    full_parts, remainder = divmod(extent, size)
    if full_parts and remainder and size - remainder <= overlap:
        return (RangePart(0, full_parts + 1, size, extent),)
    parts = [RangePart(0, full_parts, size)] if full_parts else []
    if remainder:
        parts.append(RangePart(full_parts * size, 1, remainder))
    return tuple(parts)


def equal_part_size(extent: int, most: int) -> int:
    """Return the size of at most ``most`` to cut a range by, so that all pieces are equal.

    A smaller last piece is a loop of its own: to compile, and to share between threads. An even
    number of pieces is better still. If equal ones are at most half as large as they may be, the
    size is ``most``.
    """
    most = max(1, min(extent, most))
    equal = [size for size in range(most, most // 2, -1) if extent % size == 0]
    even = [size for size in equal if extent // size % 2 == 0]
    return (even or equal or [most])[0]


def for_parts(parts: Iterable[RangePart], body: Callable[[PrimExpr, int], Stmt], name: str) -> Stmt:
    """Run ``body(start, size)`` for every piece; sizes are constants."""
    stmts: list[Stmt] = []
    for part in parts:
        stmts.append(
            serial(part.count, lambda i, p=part: body(p.start_of(i), p.size), name)
            if part.count > 1
            else body(index(part.start), part.size)
        )
    return seq(*stmts)


def copy_rows(
    width: int, lanes: int, element: Callable[[PrimExpr], Stmt], name: str = "part"
) -> Stmt:
    """Run ``element(i)`` for ``i`` in ``range(width)``, in vectors as wide as the machine has."""
    stmts: list[Stmt] = []
    start = 0
    while width - start >= lanes:
        full_parts = (width - start) // lanes
        first = start
        stmts.append(
            serial(
                full_parts,
                lambda o, f=first: vectorized(lanes, lambda v: element(o * lanes + v + f)),
                name,
            )
        )
        start += full_parts * lanes
    if start < width:
        remainder = start
        stmts.append(vectorized(width - remainder, lambda v: element(v + remainder)))
    return seq(*stmts)


def unflatten(position: PrimExpr, shape: Sequence[int]) -> list[PrimExpr]:
    """Return the indices of element ``position`` of an array of ``shape``.

    Of an array of open sizes whose first sizes are 1, the first other index is a quotient alone.
    Its remainder would be a division for each element: it does not join with indices of arrays
    that have no such sizes.
    """
    first = len(shape) - len(_without_ones(shape)) if _is_open(shape) else 0
    indices: list[PrimExpr] = []
    remainder = position
    for number in range(len(shape) - 1, first - 1, -1):
        size = index(shape[number])
        indices.append(remainder if number == first else remainder % size)
        remainder = remainder // size
    return [*(index(0) for _ in range(first)), *reversed(indices)]


def flattened(position: Sequence[PrimExpr], extents: Sequence[int | PrimExpr]) -> PrimExpr:
    """Return the number of an element of an array, whose index is ``position``."""
    number = index(0)
    for one, extent in zip(position, extents, strict=True):
        number = number * index(extent) + one
    return number


def quotients(number: PrimExpr, extents: Sequence[int]) -> list[PrimExpr]:
    """Return the indices of element ``number`` of an array of constant extents, by reciprocals.

    The extents may become variables (``merged_kernels.py``), by which it takes long to divide. The
    quotients are exact for arrays of up to 2**20 elements.
    """
    indices: list[PrimExpr] = []
    for extent in reversed(extents[1:]):
        quotient = number * (_ONE // extent + 1) // _ONE
        indices.append(number - quotient * extent)
        number = quotient
    return [number, *reversed(indices)]


def _without_ones(shape: Sequence[int]) -> Sequence[int]:
    """Return a shape without sizes of 1 in front; of no other the last one."""
    first = next((n for n, size in enumerate(shape) if size != 1), len(shape) - 1)
    return shape[first:]


def _is_open(shape: Sequence[int]) -> bool:
    return any(isinstance(size, Dim) for size in shape)
