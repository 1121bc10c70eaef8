# SPDX-License-Identifier: Apache-2.0
"""Check that a kernel keeps the rules of the loop IR."""

from __future__ import annotations

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError
from intarsia_runtime.size import Dim

from .buffer import Buffer, MemoryScope
from .expr import (
    COMPARISONS,
    INDEX,
    Binary,
    Broadcast,
    CallIntrinsic,
    CallTarget,
    CastExpr,
    FloatImm,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    Read,
    ReduceLanes,
    Select,
    TirVar,
)
from .func import PrimFunc
from .stmt import Allocate, Barrier, For, ForKind, IfStmt, Invoke, LetStmt, Seq, Stmt, Store, Thread
from .walk import children, post_order


def verify_func(func: PrimFunc) -> None:
    """Check element types, lanes, scopes, definitions before use and constant indices.

    Raises:
        VerifyError: The first rule that is broken; ``where`` is the kernel's name.
    """
    checker = _Checker(func)
    try:
        for buffer in func.params:
            checker.check(
                buffer.scope is MemoryScope.GLOBAL, f"parameter '{buffer.name}' is not global"
            )
        checker.check(
            len(set(func.params)) == len(func.params) >= func.outputs + func.scratch,
            "the parameters are not distinct, or fewer than the outputs and scratch buffers",
        )
        checker.stmt(func.body)
    except VerifyError as error:
        error.where = error.where or func.name
        raise


class _Checker:
    """Walks a kernel with the buffers and variables that are in scope."""

    def __init__(self, func: PrimFunc) -> None:
        self._buffers: set[Buffer] = set(func.params)
        self._inputs = frozenset(func.input_params)
        self._vars: set[TirVar] = set(func.sizes)
        self._threads: list[Thread] = []
        self._verified: set[PrimFunc] = set()

    def check(self, holds: bool, message: str) -> None:
        """Raise the message unless the rule holds."""
        if not holds:
            raise VerifyError(message)

    def stmt(self, stmt: Stmt) -> None:
        """Check a statement and what is inside it."""
        match stmt:
            case For():
                self._loop(stmt)
            case Store():
                self._store(stmt)
            case Seq():
                for part in stmt.body:
                    self.stmt(part)
            case IfStmt():
                self._scalar(stmt.condition, DType.BOOL, "a condition")
                self.stmt(stmt.body)
                if stmt.orelse is not None:
                    self.stmt(stmt.orelse)
            case Allocate():
                name = stmt.buffer.name
                self.check(
                    stmt.buffer.scope is not MemoryScope.GLOBAL, f"'{name}' allocates global memory"
                )
                self.check(stmt.buffer not in self._buffers, f"'{name}' is allocated twice")
                self.check(
                    stmt.buffer.scope is not MemoryScope.SHARED or not self._in_block(),
                    f"'{name}' is shared, and allocated by a single thread",
                )
                self._buffers.add(stmt.buffer)
                self.stmt(stmt.body)
                self._buffers.discard(stmt.buffer)
            case LetStmt():
                self.expr(stmt.value)
                self.check(
                    (stmt.value.dtype, stmt.value.lanes) == (stmt.var.dtype, stmt.var.lanes),
                    f"'{stmt.var.name}' stands for a value of another type",
                )
                self._with_var(stmt.var, stmt.body)
            case Barrier():
                self.check(self._in_block(), "a barrier is outside the threads of a block")
            case Invoke():
                self.expr(*stmt.places, *stmt.values)
                if stmt.callee is not None:
                    self._call(stmt, stmt.callee)

    def _call(self, call: Invoke, callee: PrimFunc) -> None:
        given, taken = (len(call.places), len(call.values)), (len(callee.params), len(callee.sizes))
        self.check(
            given == taken,
            f"'{callee.name}' takes {taken[0]} places and {taken[1]} values, "
            f"not {given[0]} and {given[1]}",
        )
        for place, buffer in zip(call.places, callee.params, strict=True):
            self.check(
                place.dtype is buffer.dtype and place.lanes == 1,
                f"'{buffer.name}' of '{callee.name}' does not begin at an element "
                f"of '{place.buffer.name}'",
            )
            written = buffer not in callee.input_params and place.buffer in self._inputs
            self.check(not written, f"'{callee.name}' writes the input '{place.buffer.name}'")
        for value in call.values:
            self._scalar(value, INDEX, f"a value that '{callee.name}' takes")
        if callee not in self._verified:
            self._verified.add(callee)
            verify_func(callee)

    def _in_block(self) -> bool:
        return any(thread.in_block for thread in self._threads)

    def _loop(self, loop: For) -> None:
        self._scalar(loop.extent, INDEX, f"the extent of '{loop.var.name}'")
        if loop.kind in (ForKind.VECTORIZED, ForKind.UNROLLED, ForKind.BOUND):
            constant = isinstance(loop.extent, IntImm)
            self.check(
                constant, f"the {loop.kind.value} loop '{loop.var.name}' has no constant extent"
            )
        bound = loop.thread is not None
        self.check(
            bound == (loop.kind is ForKind.BOUND),
            f"the {loop.kind.value} loop '{loop.var.name}' is bound to {loop.thread}",
        )
        if loop.thread is None:
            self._with_var(loop.var, loop.body)
            return
        again = loop.thread in self._threads or (self._in_block() and not loop.thread.in_block)
        self.check(not again, f"'{loop.var.name}' is bound to {loop.thread.value} inside threads")
        self._threads.append(loop.thread)
        self._with_var(loop.var, loop.body)
        self._threads.pop()

    def _with_var(self, var: TirVar, body: Stmt) -> None:
        self.check(var not in self._vars, f"'{var.name}' is defined inside its own scope")
        self._vars.add(var)
        self.stmt(body)
        self._vars.discard(var)

    def _store(self, store: Store) -> None:
        self.expr(*store.indices, store.value)
        name = store.buffer.name
        self.check(store.buffer not in self._inputs, f"the input '{name}' is written")
        self._access(store.buffer, store.indices)
        self.check(
            store.value.dtype is store.buffer.dtype,
            f"{store.value.dtype} is stored into '{name}' of {store.buffer.dtype}",
        )
        lanes = store.indices[-1].lanes if store.indices else 1
        self.check(
            lanes == store.value.lanes, f"{store.value.lanes} lanes go to {lanes} of '{name}'"
        )

    def _scalar(self, expr: PrimExpr, dtype: DType, what: str) -> None:
        self.expr(expr)
        self.check(expr.dtype is dtype and expr.lanes == 1, f"{what} is not a scalar {dtype}")

    def _access(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> None:
        name = buffer.name
        self.check(buffer in self._buffers, f"'{name}' is accessed outside its scope")
        rank = len(buffer.shape)
        self.check(len(indices) == rank, f"{len(indices)} indices for '{name}' of rank {rank}")
        for number, (at, size) in enumerate(zip(indices, buffer.shape, strict=True)):
            self.check(at.dtype is INDEX, f"an index of '{name}' is {at.dtype}")
            vector_ok = at.lanes == 1 or (number == rank - 1 and isinstance(at, Ramp))
            self.check(vector_ok, f"index {number} of '{name}' is a vector")
            low, high = _constant_range(at)
            inside = low is None or high is None or low >= 0
            if high is not None and not isinstance(size, Dim):
                inside = inside and high < size
            self.check(
                inside, f"index {low} of dimension {number} of '{name}' is outside 0..{size - 1}"
            )

    def expr(self, *roots: PrimExpr) -> None:
        """Check expressions and what is inside them."""
        for node in post_order(*roots):
            self._node(node)

    def _node(self, node: PrimExpr) -> None:
        lanes = {child.lanes for child in children(node)}
        match node:
            case TirVar():
                self.check(node in self._vars, f"the variable '{node.name}' is not defined here")
            case Binary():
                wanted = DType.BOOL if node.op in COMPARISONS else node.a.dtype
                same = node.a.dtype is node.b.dtype and node.dtype is wanted
                self.check(
                    same, f"operands of '{node.op.value}' are {node.a.dtype}, {node.b.dtype}"
                )
                self.check(lanes == {node.lanes}, f"lanes of '{node.op.value}' differ")
            case Select() | IfThenElse():
                self._choice(node)
            case CastExpr() | CallIntrinsic() | CallTarget():
                self.check(lanes <= {node.lanes}, "lanes of an operand and its result differ")
            case Load():
                self._access(node.buffer, node.indices)
                wide = node.indices[-1].lanes if node.indices else 1
                right = node.lanes == wide and node.dtype is node.buffer.dtype
                self.check(right, f"a load of '{node.buffer.name}' has another type or width")
            case Read():
                raise VerifyError(f"the tensor '{node.tensor.name}' was never lowered")
            case Ramp() | Broadcast():
                self.check(lanes == {1} and node.lanes > 1, "a vector is made of a scalar")
            case ReduceLanes():
                self.check(node.lanes == 1, "lanes reduce to one")
            case IntImm() | FloatImm():
                pass

    def _choice(self, node: Select | IfThenElse) -> None:
        right = node.condition.dtype is DType.BOOL and node.a.dtype is node.b.dtype is node.dtype
        self.check(right, "the sides of a choice differ in type, or its condition is not bool")
        widths = {node.a.lanes, node.b.lanes, node.lanes}
        fits = node.condition.lanes in (1, node.lanes)
        self.check(len(widths) == 1 and fits, "lanes of a choice differ")


def _constant_range(at: PrimExpr) -> tuple[int | None, int | None]:
    """Return the smallest and largest value of an index that is constant."""
    if isinstance(at, IntImm):
        return at.value, at.value
    if isinstance(at, Ramp) and isinstance(at.base, IntImm):
        ends = (at.base.value, at.base.value + at.stride * (at.lanes - 1))
        return min(ends), max(ends)
    return None, None
