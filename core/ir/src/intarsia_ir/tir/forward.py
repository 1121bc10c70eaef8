# SPDX-License-Identifier: Apache-2.0
"""Calls between functions of a module: kernels that only call another one, and procedures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeGuard

from .buffer import Buffer
from .expr import IntImm, Load, PrimExpr, TirVar
from .func import PrimFunc
from .stmt import Invoke
from .walk import statements

KERNEL = "kernel"
"""The kind of a procedure that is a kernel of the same module."""


def forward_to(name: str, params: Sequence[Buffer], sizes: Sequence[PrimExpr]) -> Invoke:
    """Return the call of a kernel.

    Args:
        name: Of the kernel.
        params: Its buffers.
        sizes: Its size variables.
    """
    first = [Load(b, tuple(IntImm(0) for _ in b.shape), b.dtype, 1) for b in params]
    return Invoke(KERNEL, name, tuple(first), tuple(sizes))


def forwarded(function: PrimFunc) -> str | None:
    """Return the name of the kernel that a function calls, if it does nothing else."""
    body = function.body
    return body.function if isinstance(body, Invoke) and body.kind == KERNEL else None


def procedures(functions: Iterable[PrimFunc]) -> tuple[PrimFunc, ...]:
    """Return the procedures that functions call, each once, and before those that call it."""
    found: dict[PrimFunc, None] = {}
    for function in functions:
        for stmt in statements(function.body):
            callee = stmt.callee if isinstance(stmt, Invoke) else None
            if callee is not None and callee not in found:
                found |= dict.fromkeys((*procedures([callee]), callee))
    return tuple(found)


def number_name(number: int) -> str:
    """Return the name of a size variable that is a number, which forwards pass."""
    return f"<{number}>"


LEAST_SCALAR, MOST_SCALAR = 2.0**-40, 2.0**20
"""Sizes of floats between which a parameter may be a passed scalar: scales of quantized layers."""


def scalar_name(number: int) -> str:
    """Return the name of a parameter that is a scalar constant of the model.

    Code may read it before the loops, and a float among them is neither very large nor very small:
    from :data:`LEAST_SCALAR` to :data:`MOST_SCALAR`, with either sign.
    """
    return f"s{number}"


def is_scalar_name(name: str) -> bool:
    """Whether a parameter of this name is one of :func:`scalar_name`."""
    return name[:1] == "s" and name[1:].isdigit()


def is_passed_scalar(expr: PrimExpr) -> TypeGuard[Load]:
    """Whether an expression reads a parameter of :func:`scalar_name`."""
    return isinstance(expr, Load) and not expr.indices and is_scalar_name(expr.buffer.name)


def is_passed_number(expr: PrimExpr) -> bool:
    """Whether an expression is a variable that is a number wherever the kernel is called."""
    return isinstance(expr, TirVar) and expr.name[:1] == "<" and expr.name[1:-1].isdigit()
