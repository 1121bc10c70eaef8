# SPDX-License-Identifier: Apache-2.0
"""One kernel for kernels that differ in integers alone.

Layers of a network that differ in their channels have the same loops with other extents and
strides. Where a kernel takes sizes anyway, it takes these numbers, too: the layers have one kernel
whose *constants* are size variables, and each a forward that passes its numbers
(``shared_kernels.py``). LLVM's function merging does the same with machine instructions (Rocha et
al., "Function Merging by Sequence Alignment", CGO 2019); here it comes before code generation, of
which it saves the time.

What decides about registers and vectors stays a number: the shapes of temporaries, extents of loops
that are unrolled, strides of vectors, and those of data that the rows of a tile read at places
which memory holds (``ordered_tiles.py``): each row would take a register. So does what is not
positive, since simplification wants to know signs; and what a procedure of the code generator is
given as a number: it is a variable where it is bound to one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias, TypeGuard, cast

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import (
    INDEX,
    Binary,
    CallIntrinsic,
    CallTarget,
    FloatImm,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    ReduceLanes,
    Select,
    TirVar,
    size_variable,
)
from intarsia_ir.tir.forward import is_scalar_name, number_name
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.passes.flatten_open import flatten_open
from intarsia_ir.tir.stmt import Allocate, For, ForKind, IfStmt, Invoke, LetStmt, Stmt, Store
from intarsia_ir.tir.walk import (
    children,
    expr_nodes,
    post_order,
    statement_exprs,
    statements,
    sub_statements,
    variables,
)
from intarsia_runtime.size import Size, variable

_COUNTED = (Binary, IfThenElse, Load, Ramp, Select)
"""Expressions whose operands may be variables as well as numbers."""

_ROWS = "<rows>"
"""The size of the first axis of a parameter."""

_Place: TypeAlias = "IntImm | tuple[Buffer, int]"


class MergedKernel(Struct, frozen=True, eq=False):
    """A kernel that stands for several.

    Attributes:
        kernel: Takes the sizes that all of them take, and what they differ in.
        values: By kernel that it stands for, the values of the latter by name.
    """

    kernel: PrimFunc
    values: Mapping[PrimFunc, Mapping[str, Size]]


def merge_kernels(kernels: Sequence[PrimFunc]) -> list[MergedKernel]:
    """Return kernels that stand for at least two of some, which have open strides still."""
    similar: dict[object, list[PrimFunc]] = {}
    for kernel in kernels:  # most have statements as no other has, which is soon seen
        kinds = [type(stmt) for stmt in statements(kernel.body)]
        similar.setdefault((len(kernel.params), *kinds), []).append(kernel)
    alike: dict[object, list[_Skeleton]] = {}
    for kernel in chain.from_iterable(group for group in similar.values() if len(group) > 1):
        skeleton = _Skeleton(kernel)
        alike.setdefault(tuple(skeleton.parts), []).append(skeleton)
    merged = [_merged(group) for group in alike.values() if len(group) > 1]
    return [kernel for kernel in merged if kernel is not None]


def _merged(group: Sequence[_Skeleton]) -> MergedKernel | None:
    """Return one kernel for all; ``None`` if one node is a constant here and another there."""
    columns = list(zip(*(skeleton.sizes for skeleton in group), strict=True))
    names: dict[tuple[Size, ...], str] = {}
    for column in columns:
        if len({*column}) > 1:
            names.setdefault(column, number_name(len(names)))
    first = group[0].kernel
    named: dict[_Place, str | None] = {}
    for place, column in zip(group[0].places, columns, strict=True):
        if named.setdefault(place, names.get(column)) != names.get(column):
            return None
    numbers: dict[PrimExpr, PrimExpr] = {
        place: size_variable(name)
        for place, name in named.items()
        if isinstance(place, IntImm) and name is not None
    }
    shapes: dict[Buffer, Sequence[Size]] = {}
    for buffer in first.params:
        stated = cast("tuple[Size, ...]", buffer.shape)
        inner = [named.get((buffer, axis)) for axis in range(1, len(stated))]
        sizes = zip(inner, stated[1:], strict=True)
        rows = [variable(_ROWS)] if stated else []
        shapes[buffer] = [*rows, *(s if name is None else variable(name) for name, s in sizes)]
    kernel = flatten_open(first, shapes, numbers)
    values = {
        skeleton.kernel: {name: column[number] for column, name in names.items()}
        for number, skeleton in enumerate(group)
    }
    name = f"{first.name.removesuffix('_any')}_any"
    return MergedKernel(replace(kernel, name=name), values)


class _Skeleton:
    """What a kernel is without its numbers.

    Attributes:
        kernel: The kernel.
        parts: Equal for kernels that differ in their numbers alone.
        sizes: The numbers, and open sizes in shapes, in the order in which they come up.
        places: The node of each, or the buffer and the axis that has this size.
    """

    def __init__(self, kernel: PrimFunc) -> None:
        self.kernel = kernel
        self.parts: list[object] = [kernel.outputs, kernel.scratch]
        self.sizes: list[Size] = []
        self.places: list[_Place] = []
        self._known: dict[object, int] = {}
        # Procedures of a device may read the shapes of what they are given.
        self._keeps_shapes = all(
            any(map(test, statements(kernel.body))) for test in (_is_generated, _is_on_device)
        )
        self._kept = _read_at_held_places(kernel.body)
        for buffer in kernel.params:
            self._buffer(buffer)
        self._stmt(kernel.body)

    def _add(self, node: object, *parts: object) -> int:
        self.parts.append(parts)
        number = self._known[node] = len(self._known)
        return number

    def _size(self, size: Size, place: _Place) -> object:
        """Note a number that may be another one; returns what may not be."""
        if isinstance(size, int) and size <= 0:
            return size
        self.sizes.append(size)
        self.places.append(place)
        return "size"

    def _buffer(self, buffer: Buffer) -> int:
        known = self._known.get(buffer)
        if known is not None:
            return known
        shape: list[object] = [*buffer.shape]
        is_kept = self._keeps_shapes or buffer in self._kept
        if buffer.scope is MemoryScope.GLOBAL and not is_kept:
            for axis, size in enumerate(cast("tuple[Size, ...]", buffer.shape)):
                # No index depends on the number of rows.
                shape[axis] = "rows" if axis == 0 else self._size(size, (buffer, axis))
        is_scalar = is_scalar_name(buffer.name)
        return self._add(buffer, buffer.dtype, buffer.scope, is_scalar, *shape)

    def _expr(self, expr: PrimExpr) -> object:
        if _is_index_constant(expr):
            return self._size(expr.value, expr)
        known, stack = self._known, [expr]
        while stack:
            node = stack.pop()
            if node in known:
                continue
            operands = children(node)
            below = [
                part for part in operands if part not in known and not _is_index_constant(part)
            ]
            if below:
                stack += [node, *reversed(below)]
                continue
            counted = isinstance(node, _COUNTED)
            parts = [
                known[part]
                if not _is_index_constant(part)
                else self._size(part.value, part)
                if counted
                else (part.value,)
                for part in operands
            ]
            own = self._buffer(node.buffer) if isinstance(node, Load) else _own(node)
            self._add(node, type(node), node.dtype, node.lanes, own, *parts)
        return known[expr]

    def _stmt(self, stmt: Stmt) -> None:
        own: object = None
        match stmt:
            case For(extent=IntImm(value=times)) if stmt.kind is not ForKind.SERIAL:
                own = stmt.kind, stmt.thread, times
            case For():
                own = stmt.kind, stmt.thread, self._expr(stmt.extent)
            case Allocate(buffer=buffer) | Store(buffer=buffer):
                own = self._buffer(buffer)
            case Invoke(kind=kind, function=function, values=values):
                fixed = values if _is_generated(stmt) else ()
                own = kind, function, *(part.value for part in fixed if _is_index_constant(part))
            case _:
                pass
        parts = sub_statements(stmt)
        exprs = () if isinstance(stmt, For) else statement_exprs(stmt)
        used = [self._expr(expr) for expr in exprs]
        has_other = isinstance(stmt, IfStmt) and stmt.orelse is not None
        self.parts.append((type(stmt), own, has_other, len(parts), *used))
        if isinstance(stmt, For | LetStmt):
            self._add(stmt.var, stmt.var.dtype)
        for part in parts:
            self._stmt(part)


def _is_generated(stmt: Stmt) -> bool:
    """Whether a statement calls a procedure that only the code generator knows."""
    return isinstance(stmt, Invoke) and stmt.callee is None


def _is_on_device(stmt: Stmt) -> bool:
    """Whether a statement is a loop whose iterations are threads of a device."""
    return isinstance(stmt, For) and stmt.thread is not None


def _read_at_held_places(body: Stmt) -> frozenset[Buffer]:
    """Return the buffers that several rows of a tile read at places which come from memory."""
    held = {
        stmt.var
        for stmt in statements(body)
        if isinstance(stmt, LetStmt) and any(isinstance(n, Load) for n in post_order(stmt.value))
    }
    if not held:
        return frozenset()
    tiles = (s for s in statements(body) if isinstance(s, For) and s.kind is ForKind.UNROLLED)
    rows = chain.from_iterable(map(statements, tiles))
    loads = (node for node in expr_nodes(rows) if isinstance(node, Load))
    return frozenset(
        node.buffer for node in loads if any(held & variables(place) for place in node.indices)
    )


def _is_index_constant(expr: PrimExpr) -> TypeGuard[IntImm]:
    return isinstance(expr, IntImm) and expr.dtype is INDEX and expr.lanes == 1


def _own(node: PrimExpr) -> object:
    """Return what tells a node from others of its class with the same operands."""
    match node:
        case TirVar(name=name):
            return name if size_variable(name) is node else None
        case IntImm(value=value) | Ramp(stride=value):
            return value
        case FloatImm(value=number):
            return number.hex()
        case Binary(op=op) | ReduceLanes(op=op):
            return op
        case CallIntrinsic(intrinsic=function):
            return function
        case CallTarget(kind=kind, function=name):
            return kind, name
        case _:
            return None
