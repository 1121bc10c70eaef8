# SPDX-License-Identifier: Apache-2.0
"""Every rule of the IR, broken once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import (
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
    call,
    make_tuple,
    tensor_type,
)
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.scopes import scopes
from intarsia_ir.graph.types import TensorType, TupleType, variable
from intarsia_ir.graph.verify import verify
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError, VerifyError

F2 = TensorType((2,), DType.FLOAT32)
F3 = TensorType((3,), DType.FLOAT32)
BOOL = TensorType((), DType.BOOL)
X, Y, C = Var("x", F2), Var("y", F3), Var("c", BOOL)
SIN = call(OPERATORS["sin"], X, span=Span("s"))
PAIR = TupleType((F2, F2))


def function(body: Expr, *params: Var, names: tuple[str, ...] = ()) -> Function:
    return Function(params or (X, Y, C), body, names)


def module(body: Expr, **more: Function) -> IRModule:
    return IRModule({"main": function(body), **more})


def test_values_and_functions_that_are_not_there() -> None:
    with pytest.raises(VerifyError, match=r"expected a tensor, got \("):
        tensor_type(Var("pair", PAIR))
    empty = IRModule({})
    with pytest.raises(VerifyError, match="the module has no function 'main'"):
        assert empty.main
    with pytest.raises(VerifyError, match="the module has no function '@region'"):
        empty.function(GlobalVar("region"))
    with pytest.raises(
        UnsupportedError, match=r"Tensor\[\(N, 2\), float32\] is not known at"
    ) as why:
        assert TensorType((variable("N"), 2), DType.FLOAT32).static_shape
    assert "--shape" in why.value.hint


ODD = np.zeros((2, 2), np.float32).T
BROKEN = [
    (module(replace(SIN, type=F3)), r"@main, s: the type is Tensor\[\(3,\), float32\], should be"),
    (module(replace(SIN, attrs=OPERATORS["clip"].Attrs())), "'sin' has attributes of class Clip"),
    (module(replace(SIN, args=(X, X))), "'sin' does not accept its operands: sin: takes 1"),
    (module(Constant(ODD, TensorType((2, 2), DType.FLOAT32))), "a constant is not C-contiguous"),
    (module(Constant(np.zeros(3, np.int8), F3)), r"float32\] holds int8 \(3,\)"),
    (module(Constant(np.zeros(3, np.float32), F2)), r"holds float32 \(3,\)"),
    (module(Tuple((X, Y), PAIR)), "should be"),
    (module(TupleGetItem(X, 0, F2)), "no field 0 in a value of type Tensor"),
    (module(TupleGetItem(make_tuple((X,)), 1, F2)), "no field 1"),
    (module(TupleGetItem(make_tuple((X,)), 0, F3)), "should be"),
    (module(Let(Var("v", F3), X, Y, F3)), "variable 'v' of type .* is bound to a"),
    (module(Let(Var("v", F2), X, Y, F2)), "should be"),
    (module(If(X, X, X, F2)), "the condition of an if is a"),
    (module(If(C, X, Y, F2)), "should be"),
    (module(Var("z", F2)), "variable 'z' is not bound"),
    (module(CallFunction(GlobalVar("g"), (), F2)), "the module has no function '@g'"),
    (module(CallFunction(GlobalVar("f"), (Y,), F2), f=function(X, X)), "'@f' takes"),
    (module(CallFunction(GlobalVar("f"), (X,), F3), f=function(X, X)), "should be"),
    (IRModule({"main": function(X, X, Var("x", F3))}), "two parameters are called 'x'"),
    (IRModule({"main": function(X, X, names=("a", "b"))}), "2 output names for 1 outputs"),
    (
        IRModule({"main": function(make_tuple((X, X)), X, names=("a", "a"))}),
        "two outputs are called 'a'",
    ),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_rule_is_named(broken, message):
    with pytest.raises(VerifyError, match=message):
        verify(broken)


def test_one_variable_is_one_parameter():
    with pytest.raises(VerifyError, match="'x'"):
        verify(IRModule({"main": Function((X, X), X)}))


def test_functions_may_not_call_in_a_circle():
    inner = CallFunction(GlobalVar("g"), (X,), F2)
    outer = CallFunction(GlobalVar("f"), (X,), F2)
    with pytest.raises(VerifyError, match="calls itself"):
        verify(module(outer, f=function(inner, X), g=function(outer, X)))
    verify(module(outer, f=function(inner, X), g=function(SIN, X)))


def test_a_variable_is_bound_once():
    v = Var("v", F2)
    inner = Let(v, X, v, F2)
    with pytest.raises(VerifyError, match="'v' is bound twice"):
        verify(module(Let(v, inner, v, F2)))


def test_a_variable_is_used_in_its_body_only():
    v = Var("v", F2)
    bound = Let(v, X, call(OPERATORS["sin"], v), F2)
    with pytest.raises(VerifyError, match="'v' is used outside the body it is bound in"):
        verify(module(call(OPERATORS["add"], bound, v)))
    verify(module(bound))


def test_scopes_of_a_deep_chain_are_found_quickly():
    tree: Expr = X
    for _ in range(3000):
        tree = If(C, call(OPERATORS["sin"], tree), X, F2)
    found = scopes(tree)
    assert max(scope.depth for scope in found.values()) == 3000
    assert found[X].depth == found[C].depth == 0
