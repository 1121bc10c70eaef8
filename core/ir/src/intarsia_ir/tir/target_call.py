# SPDX-License-Identifier: Apache-2.0
"""Calls of a code generator's own functions, checked against what the generator has.

It is up to the author of a kernel to write such a call for the generator that will compile it; a
build refuses a call to another one, and a call that the generator would not understand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError, VerifyError

from .expr import CallTarget, PrimExpr
from .forward import KERNEL
from .func import PrimFunc
from .stmt import Invoke
from .walk import expr_nodes, statements


@dataclass(frozen=True, slots=True)
class CodegenSignature:
    """The arguments and the result of a function of a code generator.

    Attributes:
        arguments: Number of arguments.
        operands: Element types that arguments may have; any if empty.
        result: Element types of the result; that of the first argument if empty.
    """

    arguments: int
    operands: frozenset[DType] = frozenset()
    result: frozenset[DType] = frozenset()


def call_target_intrinsic(
    kind: str, name: str, *args: PrimExpr, dtype: DType | None = None
) -> CallTarget:
    """Return a call of a code generator's own function, lane by lane.

    ::

        call_target_intrinsic("loops", "loops.fma", a, b, c)

    Args:
        kind: The target kind whose code generator has the function.
        name: The function's name there.
        args: Scalars, or vectors of one number of lanes.
        dtype: Element type of the result; that of the first argument if ``None``.

    Raises:
        VerifyError: There are no arguments, or they differ in lanes.
    """
    if not args:
        raise VerifyError(f"'{name}' of '{kind}' is called without arguments")
    lanes = {arg.lanes for arg in args}
    if len(lanes) > 1:
        raise VerifyError(f"the arguments of '{name}' of '{kind}' differ in lanes")
    return CallTarget(kind, name, args, dtype or args[0].dtype, lanes.pop())


FindFunction: TypeAlias = Callable[[str], CodegenSignature | None]
"""The function of a code generator by its name; ``None`` if there is none."""


def verify_target_calls(func: PrimFunc, kind: str, find: FindFunction | None) -> None:
    """Check that the code generator that compiles a kernel has every function it calls by name.

    Args:
        func: The kernel.
        kind: The target kind that compiles it.
        find: Finds a function of its code generator; ``None`` if that has none.

    Raises:
        UnsupportedError: The kernel calls a function of another generator, or one that there is
            not.
        VerifyError: A call has the wrong number or types of arguments.
    """
    stmts = list(statements(func.body))
    for node in expr_nodes(stmts):
        if isinstance(node, CallTarget):
            signature = _known(node, func.name, kind, find, len(node.args))
            _verify(node, func.name, signature)
    for stmt in stmts:
        if isinstance(stmt, Invoke) and stmt.kind != KERNEL:
            operands = len(stmt.places) + len(stmt.values)
            _known(stmt, func.name, kind, find, operands)


def _known(
    call: CallTarget | Invoke, where: str, kind: str, find: FindFunction | None, operands: int
) -> CodegenSignature:
    """Return the signature of what is called."""
    if call.kind != kind:
        raise UnsupportedError(
            f"the kernel calls '{call.function}' of the code generator '{call.kind}', "
            f"and is compiled by '{kind}'",
            where=where,
        )
    signature = find(call.function) if find is not None else None
    if signature is None:
        raise UnsupportedError(
            f"the code generator '{kind}' has no function '{call.function}'", where=where
        )
    if operands != signature.arguments:
        raise VerifyError(
            f"'{call.function}' takes {signature.arguments} arguments, not {operands}", where=where
        )
    return signature


def _verify(call: CallTarget, where: str, signature: CodegenSignature) -> None:
    for arg in call.args:
        if signature.operands and arg.dtype not in signature.operands:
            raise VerifyError(f"'{call.function}' does not take {arg.dtype}", where=where)
    first = call.args[0].dtype
    if call.dtype not in (signature.result or {first}):
        raise VerifyError(f"'{call.function}' of {first} does not give {call.dtype}", where=where)
