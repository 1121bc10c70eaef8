# SPDX-License-Identifier: Apache-2.0
"""Who uses a value in which layout is found however long the way is."""

from __future__ import annotations

import pytest

from intarsia_ir.graph.expr import Call, Expr, Function, Var, call
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.activation import Relu
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.nn import Conv
from intarsia_ir.ops.unary import Exp
from intarsia_loops.cpu.layout_rules import follows_lines, is_used_in_planes, users_of
from intarsia_loops.cpu.shuffled_pixels import is_result
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, variable

LONG = 3000
"""More than Python's limit of recursion."""


def var(name: str, *shape: Size) -> Var:
    return Var(name, TensorType(shape, DType.FLOAT32))


def chain(node: Expr, length: int = LONG) -> Expr:
    for _ in range(length):
        node = call(Exp, node)
    return node


def ladder(node: Expr, length: int = 60) -> Expr:
    """A value that 2 ** length ways lead to."""
    for _ in range(length):
        node = call(Add, call(Exp, node), call(Relu, node))
    return node


def attrs(rank: int) -> Conv.Attrs:
    return Conv.Attrs(strides=(1,) * rank, padding=((0, 0),) * rank, dilation=(1,) * rank)


@pytest.mark.parametrize("does", [is_used_in_planes, is_result], ids=lambda does: does.__name__)
def test_a_long_chain_is_followed_to_its_end(does) -> None:
    x = var("x", 1, 4, 8, 8)
    first = call(Exp, x)
    end = chain(first)
    assert does(first, users_of(Function((x,), end)))
    used = call(Conv, end, var("w", 4, 4, 1, 1), attrs=attrs(2))
    assert not does(first, users_of(Function((x,), used)))


def test_all_ways_to_a_line_are_followed_once() -> None:
    x = var("x", 1, 4, variable("n"))
    first = call(Exp, x)
    assert isinstance(first, Call)
    end = ladder(chain(first))
    for result, expected in (
        (call(Conv, end, var("w", 4, 4, 1), attrs=attrs(1)), True),
        (end, False),
    ):
        users = users_of(Function((x,), result))
        # Its operand is no line that is channels last, so what uses it decides.
        assert follows_lines(first, users, set()) is expected
