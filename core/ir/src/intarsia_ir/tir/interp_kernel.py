# SPDX-License-Identifier: Apache-2.0
"""Executes the statements of a kernel with NumPy, one after another (``interp.py``)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from math import prod
from typing import TYPE_CHECKING, assert_never

import numpy as np

from intarsia_runtime.errors import UnsupportedError, VerifyError
from intarsia_runtime.size import Dim, value_of

from .evaluate import Array, ExprEvaluator, numpy_dtype
from .expr import INDEX, IntImm, Load, PrimExpr, TirVar
from .stmt import Allocate, Barrier, For, IfStmt, Invoke, LetStmt, Seq, Stmt, Store
from .walk import statements

if TYPE_CHECKING:
    from .buffer import Buffer
    from .func import PrimFunc


def poisoned(buffer: Buffer) -> Array:
    """Return new memory of a buffer's shape: NaN, or a byte pattern."""
    dtype = numpy_dtype(buffer.dtype)
    if buffer.dtype.is_float:
        return np.full(buffer.shape, np.nan, dtype)
    return np.full(buffer.bytes, 0xA5, np.uint8).view(dtype).reshape(buffer.shape)


class KernelInterpreter:
    """Executes statements; holds the variables and the memory of one run."""

    def __init__(self, memory: dict[Buffer, Array], env: dict[TirVar, Array] | None = None) -> None:
        self._memory = memory
        self._env: dict[TirVar, Array] = {} if env is None else env

    def execute(self, stmt: Stmt) -> None:
        """Carry out one statement."""
        match stmt:
            case For() if stmt.thread is not None and stmt.thread.in_block:
                self._block(stmt)
            case For():
                # Iterations of parallel and vectorized loops are independent: any order will do.
                for at in range(int(self._value(stmt.extent))):
                    self._env[stmt.var] = np.array(at, np.int64)[()]
                    self.execute(stmt.body)
            case Store():
                self._store(stmt)
            case Seq():
                for item in stmt.body:
                    self.execute(item)
            case IfStmt():
                if self._value(stmt.condition):
                    self.execute(stmt.body)
                elif stmt.orelse is not None:
                    self.execute(stmt.orelse)
            case Allocate():
                self._memory[stmt.buffer] = poisoned(stmt.buffer)
                self.execute(stmt.body)
            case LetStmt():
                self._env[stmt.var] = self._value(stmt.value)
                self.execute(stmt.body)
            case Barrier():
                raise VerifyError("a barrier is outside the threads of a block")
            case Invoke(callee=callee) if callee is not None:
                self._call(stmt, callee)
            case Invoke():
                raise UnsupportedError(
                    f"'{stmt.function}' is a procedure of the code generator '{stmt.kind}', "
                    "which the interpreter does not have"
                )
            case _:
                assert_never(stmt)

    def _block(self, stmt: Stmt) -> None:
        """Run the threads of a block from barrier to barrier, one after another."""
        threads = [
            KernelInterpreter(self._memory | {}, self._env | at)._thread(body)
            for at, body in _threads_of(stmt)
        ]
        while threads:
            waiting = [next(thread, False) for thread in threads]
            if not any(waiting):
                return
            if not all(waiting):
                raise VerifyError("some threads of a block wait at a barrier, others are done")

    def _thread(self, stmt: Stmt) -> Generator[bool]:
        """Carry out a statement of one thread; yields at every barrier."""
        if not any(isinstance(part, Barrier) for part in statements(stmt)):
            self.execute(stmt)
            return
        match stmt:
            case Barrier():
                yield True
            case Seq():
                for item in stmt.body:
                    yield from self._thread(item)
            case For():
                for at in range(int(self._value(stmt.extent))):
                    self._env[stmt.var] = np.array(at, np.int64)[()]
                    yield from self._thread(stmt.body)
            case IfStmt():
                chosen = stmt.body if self._value(stmt.condition) else stmt.orelse
                if chosen is not None:
                    yield from self._thread(chosen)
            case Allocate():
                self._memory[stmt.buffer] = poisoned(stmt.buffer)
                yield from self._thread(stmt.body)
            case LetStmt():
                self._env[stmt.var] = self._value(stmt.value)
                yield from self._thread(stmt.body)
            case Store() | Invoke():
                self.execute(stmt)
            case _:
                assert_never(stmt)

    def _value(self, expr: PrimExpr) -> Array:
        return ExprEvaluator(self._env, self._memory).value(expr)

    def _call(self, call: Invoke, callee: PrimFunc) -> None:
        """Run a procedure on the memory from some places on."""
        values = [self._value(value) for value in call.values]
        env = dict(zip(callee.sizes, values, strict=True))
        sizes = {size.name: int(value) for size, value in env.items()}
        memory = {
            buffer: self._part(place, buffer, sizes)
            for buffer, place in zip(callee.params, call.places, strict=True)
        }
        KernelInterpreter(memory, env).execute(callee.body)

    def _part(self, place: Load, buffer: Buffer, sizes: Mapping[str, int]) -> Array:
        """Return the elements from a place on as a procedure's buffer has them, not copied.

        A first axis whose size is no argument of the procedure goes on as far as the memory does.
        """
        array = self._memory[place.buffer]
        at = ExprEvaluator(self._env, self._memory).position(place.buffer, place.indices)
        first = int(np.ravel_multi_index(at, array.shape)) if at else 0
        elements = array.reshape(-1)[first:]
        lead, inner = buffer.shape[:1], [value_of(size, sizes) for size in buffer.shape[1:]]
        if lead and isinstance(lead[0], Dim) and not lead[0].variables() <= sizes.keys():
            shape = [elements.size // prod(inner), *inner]
        else:
            shape = [*(value_of(size, sizes) for size in lead), *inner]
        if elements.size < prod(shape):
            raise VerifyError(
                f"'{buffer.name}' is {buffer.dtype}{shape}, and {elements.size} elements of "
                f"'{place.buffer.name}' are behind the place it begins at"
            )
        return elements[: prod(shape)].reshape(shape)

    def _store(self, stmt: Store) -> None:
        evaluator = ExprEvaluator(self._env, self._memory)
        value = evaluator.value(stmt.value)
        at = evaluator.position(stmt.buffer, stmt.indices)
        array = self._memory[stmt.buffer]
        if stmt.value.dtype is not stmt.buffer.dtype and stmt.buffer.dtype is not INDEX:
            raise VerifyError(f"stores {stmt.value.dtype} into '{stmt.buffer.name}'")
        array[at] = value


def _threads_of(stmt: Stmt) -> list[tuple[dict[TirVar, Array], Stmt]]:
    """Return each thread of nested thread loops: its place, and what it does."""
    places: list[dict[TirVar, Array]] = [{}]
    while isinstance(stmt, For) and stmt.thread is not None and isinstance(stmt.extent, IntImm):
        numbers = [np.array(at, np.int64)[()] for at in range(stmt.extent.value)]
        places = [place | {stmt.var: at} for place in places for at in numbers]
        stmt = stmt.body
    return [(place, stmt) for place in places]
