# SPDX-License-Identifier: Apache-2.0
"""Control flow in the graph IR: calls of operators that carry out functions of the module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from intarsia_runtime.errors import VerifyError

from .expr import Call, CallFunction, Expr, Function
from .op import Op, OpAttrs
from .types import Dim, TensorType
from .walk import post_order

if TYPE_CHECKING:
    import numpy as np

Invoke: TypeAlias = "Callable[[str, Sequence[np.ndarray]], tuple[np.ndarray, ...]]"
"""Evaluates a function of the module, by its name."""


class Control(Op):
    """Base of the operators of control flow."""

    @staticmethod
    def functions(attrs: OpAttrs) -> tuple[str, ...]:
        """Return the names of the functions that a call carries out."""
        raise NotImplementedError

    @staticmethod
    def renamed(attrs: OpAttrs, names: Sequence[str]) -> OpAttrs:
        """Return attributes that name other functions, in the order of :meth:`functions`."""
        raise NotImplementedError

    @staticmethod
    def params(attrs: OpAttrs, types: Sequence[TensorType], function: str) -> list[TensorType]:
        """Return the types that the parameters of a function must have.

        Args:
            attrs: Of the call.
            types: Of its operands.
            function: One of :meth:`functions`.
        """
        raise NotImplementedError

    @staticmethod
    def results(attrs: OpAttrs) -> list[TensorType]:
        """Return the types that the results of every function must have."""
        raise NotImplementedError

    @staticmethod
    def defined(attrs: OpAttrs) -> tuple[str, ...]:
        """Return the size variables that a call defines; its first results are their values."""
        raise NotImplementedError

    @staticmethod
    def inner(attrs: OpAttrs) -> tuple[str, ...]:
        """Return the size variables that parameters of its functions have besides."""
        return ()

    @staticmethod
    def captured(attrs: OpAttrs) -> int:
        """Return the number of the first operand that is a captured value."""
        raise NotImplementedError

    @staticmethod
    def evaluate(
        attrs: OpAttrs,
        arrays: Sequence[np.ndarray],
        invoke: Invoke,
        sizes: Mapping[str, int],
    ) -> tuple[np.ndarray, ...]:
        """Compute a call: the definition.

        Args:
            attrs: Of the call.
            arrays: Its operands.
            invoke: Evaluates a function of the module.
            sizes: Values of size variables.
        """
        raise NotImplementedError


def same_types(
    types: Sequence[TensorType], wanted: Sequence[TensorType], free: Collection[str]
) -> bool:
    """Whether types are equal, but for sizes where ``wanted`` has one of the ``free`` variables."""
    return len(types) == len(wanted) and all(
        own.dtype is other.dtype
        and own.rank == other.rank
        and all(
            size == given or (isinstance(given, Dim) and given.is_variable and given.name in free)
            for size, given in zip(own.shape, other.shape, strict=True)
        )
        for own, other in zip(types, wanted, strict=True)
    )


def control_of(expr: Expr) -> type[Control] | None:
    """Return the operator of a call of control flow; ``None`` for any other expression."""
    if isinstance(expr, Call) and issubclass(expr.op, Control):
        return expr.op
    return None


def called_by(expr: Expr) -> tuple[str, ...]:
    """Return the names of the functions that an expression calls or carries out."""
    if isinstance(expr, CallFunction):
        return (expr.function.name,)
    op = control_of(expr)
    return op.functions(expr.attrs) if op is not None and isinstance(expr, Call) else ()


def control_calls(function: Function) -> Iterator[tuple[Call, type[Control]]]:
    """Yield every call of control flow in a function, operands before users."""
    for node in post_order(function.body):
        op = control_of(node)
        if op is not None and isinstance(node, Call):
            yield node, op


def bodies_of(functions: Mapping[str, Function]) -> tuple[str, ...]:
    """Return the names of the functions that ``main`` carries out by control flow, at any depth.

    A function comes before those that it carries out itself.

    Raises:
        VerifyError: There is no such function.
    """
    found: dict[str, None] = {}
    todo = ["main"]
    while todo:
        name = todo.pop(0)
        if name not in functions:
            raise VerifyError(f"the module has no function '@{name}'")
        for node, op in control_calls(functions[name]):
            for inner in op.functions(node.attrs):
                if inner not in found:
                    found[inner] = None
                    todo.append(inner)
    return tuple(found)
