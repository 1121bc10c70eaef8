# SPDX-License-Identifier: Apache-2.0
"""The reference executor: runs a function with the operators' NumPy definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

import ml_dtypes
import numpy as np

from intarsia_runtime.errors import ModelError, VerifyError

from ..budget import budget
from ..graph.control import Control, control_of
from ..graph.expr import (
    Call,
    CallFunction,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
)
from ..graph.module import IRModule, StoredAs
from ..graph.op import OpAttrs, closed_attrs
from ..graph.size_scopes import defined_size
from ..graph.types import Dim, TensorType, TupleType
from ..graph.walk import children, count_uses
from .arrays import Array, numpy_dtype

Value: TypeAlias = "Array | tuple[Value, ...]"


def evaluate(
    function: Function, inputs: Mapping[str, Array], module: IRModule | None = None
) -> tuple[Array, ...]:
    """Run ``function`` and return its outputs in order.

    Every value is dropped after its last use. Of an ``If``, only the chosen branch is evaluated.

    Args:
        function: What to run.
        inputs: Array for each parameter, by name.
        module: Where the functions it calls are found; not needed if it calls none. Of its
            ``main``, arrays of narrow types are taken and given as such, see :class:`StoredAs`.

    Raises:
        ModelError: An input is missing, unknown, or of another type than its parameter.
        VerifyError: The function calls another one and no module is given.
        ResourceError: The time or memory of the work in progress is over.
    """
    stored = _stored(function, module)
    inputs = {
        name: np.ascontiguousarray(array).view(np.uint8) if name in stored else array
        for name, array in inputs.items()
    }
    fields = _evaluated(function, inputs, module, {})
    names = function.output_names or ("",) * len(fields)
    return tuple(
        np.asarray(field).view(stored.get(name, None) or np.asarray(field).dtype)
        for name, field in zip(names, fields, strict=True)
    )


def _evaluated(
    function: Function,
    inputs: Mapping[str, Array],
    module: IRModule | None,
    known: Mapping[str, int],
) -> tuple[Value, ...]:
    """Run a function; ``known`` has size variables that its inputs may not show."""
    sizes = {**known, **_check_inputs(function, inputs)}
    values: dict[Expr, Value] = {param: np.asarray(inputs[param.name]) for param in function.params}
    result = _Run(function.body, values, module, sizes).value(function.body)
    return result if isinstance(result, tuple) else (result,)


def _stored(function: Function, module: IRModule | None) -> Mapping[str, np.dtype]:
    """Element types of inputs and outputs that the function has as bytes."""
    if module is None or module.functions.get("main") is not function:
        return {}
    found = module.attr(StoredAs)
    types: Mapping[str, str] = {} if found is None else found.types
    return {name: np.dtype(getattr(ml_dtypes, narrow)) for name, narrow in types.items()}


def _check_inputs(function: Function, inputs: Mapping[str, Array]) -> dict[str, int]:
    """Check the inputs; return the values of the size variables."""
    names = {param.name for param in function.params}
    for name in inputs:
        if name not in names:
            raise ModelError(f"'{name}' is no input; inputs: {', '.join(sorted(names))}")
    bound: dict[Dim, int] = {}
    for param in function.params:
        if param.name not in inputs:
            raise ModelError(f"input '{param.name}' is missing")
        array, type_ = np.asarray(inputs[param.name]), param.type
        if not isinstance(type_, TensorType):
            raise ModelError(f"parameter '{param.name}' is no tensor but {type_}")
        sizes = zip(type_.shape, array.shape, strict=False)
        fits = array.ndim == type_.rank and all(
            size == given if isinstance(size, int) else bound.setdefault(size, given) == given
            for size, given in sizes
        )
        if not fits or array.dtype != numpy_dtype(type_.dtype):
            raise ModelError(
                f"input '{param.name}' must be {type_}, got shape {array.shape} of {array.dtype}"
            )
    return {size.name: given for size, given in bound.items() if size.is_variable}


class _Run:
    """One evaluation: values by expression, and how often each is still needed."""

    def __init__(
        self,
        body: Expr,
        values: dict[Expr, Value],
        module: IRModule | None,
        sizes: dict[str, int],
    ) -> None:
        self._sizes = sizes
        self._values = values
        self._module = module
        self._uses = count_uses((body,))
        self._budget = budget()

    def value(self, body: Expr) -> Value:
        """Evaluate ``body``, operands before users, without recursion."""
        stack: list[Expr] = [body]
        while stack:
            node = stack[-1]
            if node in self._values:
                stack.pop()
                continue
            missing = [operand for operand in self._needed(node) if operand not in self._values]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self._values[node] = self._compute(node)
            if not isinstance(node, Var | Constant):
                self._release(children(node))
        return self._values[body]

    def _needed(self, node: Expr) -> tuple[Expr, ...]:
        """Return the operands that must be there before the node, as far as is known by now."""
        match node:
            case If():
                if node.condition not in self._values:
                    return (node.condition,)
                return (self._chosen(node),)
            case Let():
                if node.value not in self._values:
                    return (node.value,)
                self._values[node.var] = self._values[node.value]
                return (node.body,)
            case _:
                return children(node)

    def _chosen(self, node: If) -> Expr:
        condition = np.asarray(self._values[node.condition])
        return node.then_branch if bool(condition.reshape(())) else node.else_branch

    def _compute(self, node: Expr) -> Value:
        match node:
            case Constant():
                return node.data
            case Call():
                self._budget.check(node.span)
                if isinstance(node.type, TensorType) and node.type.is_static:
                    self._budget.reserve(node.type.bytes, node.span)
                operator = control_of(node)
                if operator is not None:
                    return self._controlled(node, operator)
                attrs = self._attrs(node)
                with np.errstate(all="ignore"):
                    result = node.op.reference(attrs, *(self._values[arg] for arg in node.args))
                self._note_size(node, result)
                if isinstance(result, tuple):
                    return cast("tuple[Value, ...]", result)
                return np.asarray(result)
            case CallFunction():
                return self._call_function(node)
            case Tuple():
                return tuple(self._values[item] for item in node.fields)
            case TupleGetItem():
                return self._values[node.tuple][node.index]
            case Let():
                return self._values[node.body]
            case If():
                return self._values[self._chosen(node)]
            case Var():
                raise VerifyError(f"variable '{node.name}' is used but not defined")

    def _controlled(self, node: Call, operator: type[Control]) -> Value:
        """Carry out control flow, and note the sizes that it defines."""
        operands = [np.asarray(self._values[arg]) for arg in node.args]
        carry_out = partial(self._carry_out, inner=operator.inner(node.attrs))
        results = operator.evaluate(node.attrs, operands, carry_out, self._sizes)
        for name, value in zip(operator.defined(node.attrs), results, strict=False):
            self._sizes[name] = int(value.reshape(()))
        return results

    def _attrs(self, node: Call) -> OpAttrs:
        """Return the attributes of a call with numbers for sizes."""
        if not self._sizes or node.op.defines_size:
            return node.attrs
        return closed_attrs(node.attrs, self._sizes)

    def _note_size(self, node: Call, result: object) -> None:
        """Give a size variable that a call defines its value."""
        name = defined_size(node)
        if name is not None:
            value = int(np.asarray(result).reshape(()))
            if value < 0:
                raise ModelError(f"the model computes {value} for the size '{name}'")
            self._sizes[name] = value

    def _call_function(self, node: CallFunction) -> Value:
        operands = [np.asarray(self._values[arg]) for arg in node.args]
        results = self._carry_out(node.function.name, operands)
        return results if isinstance(node.type, TupleType) else results[0]

    def _carry_out(
        self, name: str, operands: Sequence[Array], inner: Sequence[str] = ()
    ) -> tuple[Array, ...]:
        """Evaluate a function of the module; ``inner`` are the sizes that are its parameters."""
        if self._module is None:
            raise VerifyError(f"calls '@{name}', but no module is given")
        called = self._module.function(GlobalVar(name))
        names = (param.name for param in called.params)
        given = dict(zip(names, operands, strict=True))
        own = {size: int(given[size].reshape(())) for size in inner if size in given}
        results = _evaluated(called, given, self._module, {**self._sizes, **own})
        return tuple([np.asarray(result) for result in results])

    def _release(self, operands: tuple[Expr, ...]) -> None:
        """Count uses down; drop what nobody needs any more, untaken branches included."""
        pending = list(operands)
        while pending:
            node = pending.pop()
            self._uses[node] -= 1
            if self._uses[node] > 0:
                continue
            if node in self._values:
                del self._values[node]
            elif not isinstance(node, Var):
                pending.extend(children(node))
