# SPDX-License-Identifier: Apache-2.0
"""Slots: a thread that runs a part of a parallel loop has memory that no other thread uses.

Free slots are the set bits of a word in the frame of the loop, so two loops, two models and two
threads that run one model never share any. A thread takes the lowest free slot and gives it back
behind its part: a loop touches the memory of as many slots as threads run it, and that memory stays
in their caches. Threads take turns where there are fewer slots than threads.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import reduce

from intarsia_ir.tir.expr import CallTarget, IntImm, PrimExpr, minimum

from ..functions import THREAD_SLOT
from .expressions import Expressions
from .writer import FunctionWriter


def slots_of(nodes: Iterable[PrimExpr]) -> PrimExpr | None:
    """Return how many threads may run a loop at once, 1 to 64; ``None`` if it needs no slots.

    Args:
        nodes: The nodes of all expressions in its body.
    """
    counts = [
        node.args[0]
        for node in nodes
        if isinstance(node, CallTarget) and node.function == THREAD_SLOT
    ]
    return reduce(minimum, counts) if counts else None


def all_slots(e: Expressions, count: PrimExpr) -> str:
    """Return the word of which every slot is free."""
    if isinstance(count, IntImm):
        return str((1 << count.value) - 1 if count.value < 64 else -1)
    others = e.w.emit(f"sub i64 64, {e.value(count)}")
    e.w.values.clear()
    return e.w.emit(f"lshr i64 -1, {others}")


@contextmanager
def held_slot(w: FunctionWriter, free: str) -> Generator[str]:
    """Hold a slot of the word at ``free``; yields its number."""
    look, take, run = w.fresh_label(), w.fresh_label(), w.fresh_label()
    w.do(f"br label %{look}")
    w.start_block(look)
    word = w.emit(f"load atomic i64, ptr {free} monotonic, align 8")
    none = w.emit(f"icmp eq i64 {word}, 0")
    w.do(f"br i1 {none}, label %{look}, label %{take}")
    w.start_block(take)
    less = w.emit(f"add i64 {word}, -1")
    rest = w.emit(f"and i64 {word}, {less}")
    swapped = w.emit(f"cmpxchg ptr {free}, i64 {word}, i64 {rest} acquire monotonic")
    taken = w.emit(f"extractvalue {{ i64, i1 }} {swapped}, 1")
    w.do(f"br i1 {taken}, label %{run}, label %{look}")
    w.start_block(run)
    count = w.declarations.use("i64", "llvm.cttz.i64", ("i64", "i1"))
    slot = w.emit(f"call i64 {count}(i64 {word}, i1 true)")
    yield slot
    bit = w.emit(f"shl i64 1, {slot}")
    w.emit(f"atomicrmw or ptr {free}, i64 {bit} release")
