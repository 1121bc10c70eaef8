# SPDX-License-Identifier: Apache-2.0
"""Default loops: tensor expressions as a kernel, with vectors inside and threads outside."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer, MemoryScope
from intarsia_ir.tir.expr import IntImm, PrimExpr, Read, TirVar
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.stmt import Allocate, Seq, Stmt
from intarsia_ir.tir.tensor import ArgReduction, Reduction, Tensor
from intarsia_ir.tir.walk import body_exprs, post_order, reads
from intarsia_runtime.size import Dim

from .collapse import collapse
from .cost import operations, points
from .nests import Nest, goes_across, loads, parallel_loops
from .tensors import Stages

VECTOR_BYTES = 64
"""Vector width that default loops are written for; a backend splits what its machine has not."""

STACK_BYTES = 32 * 1024
"""Most bytes of temporaries that a row of several stages keeps on the stack of a thread."""

PARALLEL_WORK = 65_536
"""Operations below which a kernel runs on one thread."""


class _KernelMemory(Struct):
    """Where each tensor of a kernel lives, and how many leading indices its buffer leaves out.

    ``overlap`` and ``byte_tables`` are as of :func:`default_loops`; ``in_place`` has outputs that
    are computed from what lies in their buffers.
    """

    buffers: dict[Tensor, Buffer]
    dropped: dict[Tensor, int]
    overlap: bool
    byte_tables: bool
    in_place: frozenset[Tensor] = frozenset()


def default_loops(
    name: str, stages: Stages, *, overlap: bool = False, byte_tables: bool = False
) -> PrimFunc:
    """Turn tensor expressions into a kernel.

    Stages that go row by row share one loop over rows and keep their temporaries on the stack;
    others run one after another through scratch memory, or in place: a temporary lies where the
    output will that is computed from it, element by element.

    Args:
        name: Of the kernel.
        stages: What it computes.
        overlap: Whether the elements of a row that fill no vector are computed by one that overlaps
            the one before, which pays where a vector costs as much as one element.
        byte_tables: Whether the backend looks up vectors of bytes in tables of 256 bytes.
    """
    stages = collapse(stages)
    memory = _KernelMemory({}, {}, overlap, byte_tables)
    params = [_global(tensor, f"p{n}") for n, tensor in enumerate(stages.inputs)]
    memory.buffers.update(zip(stages.inputs, params, strict=True))
    outputs = [_global(tensor, f"out{n}") for n, tensor in enumerate(stages.outputs)]
    memory.buffers.update(zip(stages.outputs, outputs, strict=True))
    inner = [stage for stage in stages.stages if stage not in memory.buffers]
    work = sum(_work(stage) for stage in stages.stages)
    parallel = work >= PARALLEL_WORK
    rows = _shared_rows(stages) if inner else 0
    is_row_by_row = inner and (rows or not parallel)  # a stack is that of one thread
    if is_row_by_row and sum(_row_bytes(stage, rows) for stage in inner) <= STACK_BYTES:
        body = _by_rows(stages, inner, rows, memory, parallel=parallel)
        return PrimFunc(name, (*params, *outputs), len(outputs), body)
    held = _held_by_outputs(stages, inner)
    memory.buffers.update({tensor: memory.buffers[output] for tensor, output in held.items()})
    memory.in_place = frozenset(held.values())
    inner = [tensor for tensor in inner if tensor not in held]
    scratch = [_global(tensor, f"scratch{n}") for n, tensor in enumerate(inner)]
    memory.buffers.update(zip(inner, scratch, strict=True))
    body = _sequence([_nest(stage, (), memory, parallel=parallel) for stage in stages.stages])
    return PrimFunc(name, (*params, *outputs, *scratch), len(outputs), body, len(scratch))


def _held_by_outputs(stages: Stages, inner: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """Return temporaries and the output whose memory each has, since it is what reads it last.

    An output has one at most, of its shape and type, and reads an element only to compute its own.
    """
    held: dict[Tensor, Tensor] = {}
    for number, output in enumerate(stages.stages):
        if output not in stages.outputs or isinstance(output.body, Reduction | ArgReduction):
            continue
        later = {read for stage in stages.stages[number + 1 :] for read in reads(stage)}
        for tensor in reads(output):
            is_alike = (tensor.shape, tensor.dtype) == (output.shape, output.dtype)
            is_free = tensor in inner and tensor not in held and tensor not in later
            if is_alike and is_free and _reads_own_places(output, tensor):
                held[tensor] = output
                break
    return held


def _reads_own_places(stage: Tensor, tensor: Tensor) -> bool:
    """Whether each element of a stage reads of another one only the element at its own place."""
    axes = [axis.var for axis in stage.axes]
    nodes = [node for node in post_order(*body_exprs(stage.body)) if isinstance(node, Read)]
    return all(_own_row(n, axes) == stage.rank for n in nodes if n.tensor is tensor)


def _global(tensor: Tensor, name: str) -> Buffer:
    return Buffer(name, tensor.shape, tensor.dtype)


def _work(stage: Tensor) -> int:
    return points(stage) * sum(operations(expr) for expr in body_exprs(stage.body))


def _row_bytes(stage: Tensor, rows: int) -> int:
    size = prod(stage.shape[rows:]) * stage.dtype.bytes
    return sys.maxsize if isinstance(size, Dim) else size


def _shared_rows(stages: Stages) -> int:
    """Return how many leading dimensions all stages loop over alike, each reading its own row."""
    own = set(stages.stages)
    last = stages.stages[-1]
    count = last.rank
    for stage in stages.stages:
        count = min(count, _common(stage.shape, last.shape))
        axes = [axis.var for axis in stage.axes]
        for node in post_order(*body_exprs(stage.body)):
            if isinstance(node, Read) and node.tensor in own:
                count = min(count, _own_row(node, axes))
        if isinstance(stage.body, Reduction) and stage.axes:
            across = goes_across(stage.axes[-1], stage.body.value)
            count = min(count, stage.rank - 1 if across else count)
    return count


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    matching = 0
    while matching < min(len(a), len(b)) and a[matching] == b[matching]:
        matching += 1
    return matching


def _own_row(node: Read, axes: list[TirVar]) -> int:
    """Return how many leading indices of a read are the reader's own loops."""
    matching = 0
    for at, var, size in zip(node.indices, axes, node.tensor.shape, strict=False):
        if at is not var and not (size == 1 and isinstance(at, IntImm)):
            break
        matching += 1
    return matching


def _by_rows(
    stages: Stages, inner: list[Tensor], rows: int, memory: _KernelMemory, *, parallel: bool
) -> Stmt:
    for number, tensor in enumerate(inner):
        memory.buffers[tensor] = Buffer(
            f"row{number}", tensor.shape[rows:], tensor.dtype, MemoryScope.STACK
        )
        memory.dropped[tensor] = rows
    extents = stages.stages[-1].shape[:rows]
    row = tuple(TirVar(f"r{number}") for number in range(rows))
    body = _sequence([_nest(stage, row, memory, parallel=False) for stage in stages.stages])
    for tensor in reversed(inner):
        body = Allocate(memory.buffers[tensor], body)
    return parallel_loops(row, extents, body, parallel=parallel)


def _nest(
    stage: Tensor, row: tuple[PrimExpr, ...], memory: _KernelMemory, *, parallel: bool
) -> Stmt:
    """Return the loops of one stage below fixed leading indices."""
    place = {axis.var: at for axis, at in zip(stage.axes, row, strict=False)}
    body = stage.body
    load = loads(memory.buffers, memory.dropped, place)
    nest = Nest(
        axes=stage.axes[len(row) :],
        buffer=memory.buffers[stage],
        leading=() if stage in memory.dropped else row,
        lanes=max(1, VECTOR_BYTES // max(stage.dtype.bytes, _widest(body))),
        parallel=parallel,
        overlap=memory.overlap and stage not in memory.in_place,  # else elements come twice
        byte_tables=memory.byte_tables,
    )
    match body:
        case Reduction():
            return nest.reduction(body, load)
        case ArgReduction():
            return nest.arg_reduction(body, load)
        case None:
            return Seq(())
        case _:
            return nest.elementwise(load(body))


def _widest(body: PrimExpr | Reduction | ArgReduction | None) -> int:
    """Return the bytes of the largest element a body loads."""
    sizes = [node.dtype.bytes for node in post_order(*body_exprs(body)) if isinstance(node, Read)]
    return max(sizes, default=1)


def _sequence(parts: list[Stmt]) -> Stmt:
    return parts[0] if len(parts) == 1 else Seq(tuple(parts))
