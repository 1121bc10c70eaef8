# SPDX-License-Identifier: Apache-2.0
"""Random graphs, support tables, and an evaluator that knows nothing of partitioning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import (
    Call,
    CallFunction,
    Constant,
    Expr,
    Function,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    call,
    make_tuple,
)
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.pattern import Match, op
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import post_order
from intarsia_ir.ops import OPERATORS
from intarsia_ir.regions.support import Support, SupportRow, SupportTable
from intarsia_runtime.dtype import DType

VECTOR = TensorType((4,), DType.FLOAT32)
UNARY = ("nn.relu", "sigmoid", "tanh", "negative")
BINARY = ("add", "multiply", "maximum")


def node(name: str, *args: Expr, at: str = "", **attrs: Any) -> Call:
    """Return a call whose model node is called ``at``."""
    operator = OPERATORS[name]
    made = operator.Attrs(**attrs)
    return call(operator, *args, attrs=made, span=Span(at, name))


def main_of(params: Sequence[Var], *outputs: Expr) -> IRModule:
    """Return a module with one function."""
    body = outputs[0] if len(outputs) == 1 else make_tuple(outputs)
    return IRModule.from_function(Function(tuple(params), body))


def yes(_match: Match) -> Support:
    """Take everything."""
    return Support.yes()


def takes(*names: str) -> SupportTable:
    """Return a table with one row for each operator."""
    return SupportTable([SupportRow(name, op(name), yes) for name in names])


def random_module(choices: Sequence[tuple[int, int, int]], outputs: Sequence[int]) -> IRModule:
    """Build a graph: each choice is an operator and two operands, counted back from the end."""
    x, y = Var("x", VECTOR), Var("y", VECTOR)
    pool: list[Expr] = [x, y]
    names = (*UNARY, *BINARY)
    for i, (which, a, b) in enumerate(choices):
        name = names[which % len(names)]
        args = (pool[-1 - a % len(pool)], pool[-1 - b % len(pool)])
        pool.append(node(name, *(args if name in BINARY else args[:1]), at=f"n{i}"))
    return main_of((x, y), *(pool[-1 - o % len(pool)] for o in outputs))


def evaluate(module: IRModule, inputs: Mapping[str, Any]) -> list[Any]:
    """Run ``main``, every function inline."""
    result = _run(module, module.main, [inputs[p.name] for p in module.main.params])
    return list(result) if isinstance(result, tuple) else [result]


def _run(module: IRModule, function: Function, args: Sequence[Any]) -> Any:
    values: dict[Expr, Any] = dict(zip(function.params, args, strict=True))
    lets = {n.var: n.value for n in post_order(function.body) if isinstance(n, Let)}
    pending: list[Expr] = [function.body]
    while pending:
        top = pending[-1]
        need = [lets[top]] if isinstance(top, Var) and top in lets else list(_operands(top))
        missing = [n for n in need if n not in values]
        if top not in values and missing:
            pending.extend(missing)
            continue
        pending.pop()
        if top not in values:
            values[top] = _value(module, top, [values[n] for n in need])
    return values[function.body]


def _operands(expr: Expr) -> Sequence[Expr]:
    match expr:
        case Call() | CallFunction():
            return expr.args
        case Tuple():
            return expr.fields
        case TupleGetItem():
            return (expr.tuple,)
        case If():
            return (expr.condition, expr.then_branch, expr.else_branch)
        case Let():
            return (expr.body,)
        case _:
            return ()


def _value(module: IRModule, expr: Expr, args: list[Any]) -> Any:
    match expr:
        case Call():
            return expr.op.reference(expr.attrs, *args)
        case CallFunction():
            return _run(module, module.function(expr.function), args)
        case Tuple():
            return tuple(args)
        case TupleGetItem():
            return args[0][expr.index]
        case If():
            return args[1] if bool(np.all(args[0])) else args[2]
        case Constant():
            return expr.data
        case _:
            return args[0]
