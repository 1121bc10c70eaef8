# SPDX-License-Identifier: Apache-2.0
"""Matching: orders, optional parts, sharing, and what may not be used outside."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia_ir.graph.expr import Call, Expr, Var, call, constant
from intarsia_ir.graph.match import inner_operators, match_pattern, root_operators
from intarsia_ir.graph.pattern import ANY, CONST, Match, OpPattern, Optional, Pattern, Wildcard, op
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import count_uses
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.dtype import DType

VECTOR = TensorType((4,), DType.FLOAT32)
X, Y = Var("x", VECTOR), Var("y", VECTOR)
K = constant(np.ones(4, np.float32))


def node(name: str, *args: Expr, **attrs: Any) -> Call:
    return call(OPERATORS[name], *args, attrs=OPERATORS[name].Attrs(**attrs))


def find(pattern: Pattern, root: Call, *more: Expr) -> Match | None:
    return match_pattern(pattern, root, count_uses((root, *more)))


def names(found: Match | None) -> list[str] | None:
    return None if found is None else [c.name for c in found.calls]


def add_one(inner: Pattern) -> Pattern:
    return op("add", inner, CONST)


def rectify(inner: Pattern) -> Pattern:
    return op("nn.relu", inner)


def silu_of(inner: Pattern) -> Pattern:
    return op("multiply", inner, op("sigmoid", inner))


def test_calls_come_operands_first_and_inputs_in_order_of_use():
    root = node("nn.relu", node("add", node("multiply", X, K), Y))
    found = find(op("nn.relu", op("add", op("multiply", ANY, CONST), ANY)), root)
    assert names(found) == ["multiply", "add", "nn.relu"]
    assert found is not None
    assert found.inputs == (X, K, Y)
    assert found.types == (VECTOR,)


def test_both_orders_of_a_commutative_operator_match():
    root = node("add", K, node("negative", X))
    assert names(find(op("add", op("negative", ANY), CONST), root)) == ["negative", "add"]
    root = node("subtract", K, node("negative", X))
    assert find(op("subtract", op("negative", ANY), CONST), root) is None


def test_optional_parts_are_preferred_and_may_be_absent():
    pattern = Optional(Optional(op("multiply", ANY, ANY), add_one), rectify)
    product = node("multiply", X, Y)
    biased = node("add", product, K)
    assert names(find(pattern, node("nn.relu", biased))) == ["multiply", "add", "nn.relu"]
    assert names(find(pattern, node("nn.relu", product))) == ["multiply", "nn.relu"]
    assert names(find(pattern, biased)) == ["multiply", "add"]
    assert names(find(pattern, product)) == ["multiply"]
    assert find(pattern, node("nn.relu", X)) is None


def test_one_pattern_object_is_one_call():
    inner = op("nn.relu", ANY)
    shared, other = node("nn.relu", X), node("nn.relu", Y)
    silu = silu_of(inner)
    assert names(find(silu, node("multiply", shared, node("sigmoid", shared)))) is not None
    assert find(silu, node("multiply", other, node("sigmoid", shared))) is None


def test_one_name_is_one_value():
    pattern = op("add", Wildcard("a"), op("negative", Wildcard("a")))
    found = find(pattern, node("add", X, node("negative", X)))
    assert found is not None
    assert dict(found.bound) == {"a": X}
    assert find(pattern, node("add", X, node("negative", Y))) is None


def test_inner_calls_may_not_be_used_outside():
    inner = node("negative", X)
    root = node("nn.relu", inner)
    pattern = op("nn.relu", op("negative", ANY))
    assert find(pattern, root) is not None
    assert find(pattern, root, inner) is None
    assert find(pattern, root, node("add", inner, Y)) is None


def test_an_input_may_not_be_a_call_inside():
    inner = node("negative", X)
    root = node("add", inner, inner)
    assert find(op("add", op("negative", ANY), ANY), root) is None


def test_number_of_arguments_conditions_and_constants_count():
    root = node("add", X, Y)
    assert find(op("add", ANY, CONST), root) is None
    assert find(op("add", ANY, ANY, ANY), root) is None
    assert names(find(op("add"), root)) == ["add"]
    assert find(op("multiply"), root) is None
    assert find(op("nn.relu", op("negative", ANY)), node("nn.relu", X)) is None
    assert find(op("clip", where=is_relu6), node("clip", X, min=0.0, max=1.0)) is None
    assert find(op("clip", where=is_relu6), node("clip", X, min=0.0, max=6.0)) is not None


def is_relu6(found: Call) -> bool:
    return "max=6.0" in repr(found.attrs)


def test_patterns_say_where_they_end_and_what_they_hold():
    pattern = Optional(op("multiply", op("negative", ANY), ANY), add_one)
    assert root_operators(pattern) == {"multiply", "add"}
    assert inner_operators(pattern) == {"multiply", "add", "negative"}
    assert root_operators(ANY) is None
    assert root_operators(Optional(ANY, rectify)) is None


def test_a_long_pattern_does_not_recurse():
    pattern: Pattern = ANY
    tree: Expr = X
    for _ in range(3000):
        pattern = OpPattern("sin", (pattern,))
        tree = node("sin", tree)
    assert isinstance(tree, Call)
    found = find(pattern, tree)
    assert found is not None
    assert len(found.calls) == 3000
