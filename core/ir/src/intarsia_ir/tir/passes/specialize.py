# SPDX-License-Identifier: Apache-2.0
"""A kernel of open sizes for one choice of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intarsia_runtime.size import Dim, value_of

from ..buffer import Buffer
from ..expr import IntImm, Load, PrimExpr, TirVar
from ..func import PrimFunc
from ..stmt import Allocate, Stmt, Store
from ..walk import map_statement, rewrite


def specialize(function: PrimFunc, values: Mapping[str, int]) -> PrimFunc:
    """Return the kernel with numbers in the place of its size variables.

    Args:
        function: A kernel.
        values: The number of every size variable, by name.
    """
    numbers = {size: IntImm(values[size.name]) for size in function.sizes}
    buffers: dict[Buffer, Buffer] = {}

    def sized(buffer: Buffer) -> Buffer:
        if buffer not in buffers:
            is_open = any(isinstance(size, Dim) for size in buffer.shape)
            shape = tuple(value_of(size, values) for size in buffer.shape)
            buffers[buffer] = replace(buffer, shape=shape) if is_open else buffer
        return buffers[buffer]

    def rule(node: PrimExpr) -> PrimExpr | None:
        if isinstance(node, TirVar):
            return numbers.get(node)
        return replace(node, buffer=sized(node.buffer)) if isinstance(node, Load) else None

    def on_stmt(stmt: Stmt) -> Stmt:
        mapped = map_statement(stmt, on_stmt, lambda expr: rewrite(expr, rule))
        if isinstance(mapped, Store | Allocate):
            return replace(mapped, buffer=sized(mapped.buffer))
        return mapped

    params = tuple(sized(buffer) for buffer in function.params)
    return replace(function, params=params, body=on_stmt(function.body), sizes=())
