# SPDX-License-Identifier: Apache-2.0
"""Unroll recurrent layers over a known number of steps into the operators of each step.

A loop over the steps is one kernel of a CPU. It compiles in a tenth of the time of unrolled steps
and is as fast. Devices and libraries that have matrix products, but no such loop, unroll: a GPU
runs each product on all of its cores, and a loop over rows of the batch on few.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
from msgspec import Struct, field

from ..graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    Tuple,
    TupleGetItem,
    call,
    constant,
    get_item,
    make_tuple,
)
from ..graph.op import Op
from ..graph.walk import rewrite_function
from ..ops import activation, nn, unary
from ..ops import shape as shaping
from ..ops.generate import Full
from ..ops.recurrent import Gru, Lstm, step_numbers
from ..ops.recurrent_plain import Rnn
from ..ops.terms import Term

MOST_STEPS = 512
"""Steps of a layer that is unrolled: each is some ten nodes of a graph."""

_States: TypeAlias = "tuple[Term, ...]"
"""What goes from a step to the next; the state itself comes first."""

_Step: TypeAlias = Callable[[Term, _States], _States]


def unroll_recurrent(function: Function) -> Function:
    """Return a function in which layers over a known number of steps, at most 512, are unrolled.

    Layers stay whose states are rounded, and those of an open batch or of no steps.
    """

    def rule(node: Expr) -> Expr | None:
        match node:
            case TupleGetItem(tuple=Tuple() as fields, index=index):
                return get_item(fields, index)
            case Call():
                return _unrolled(node)
            case _:
                return None

    return rewrite_function(function, rule)


class _Layer(Struct, frozen=True):
    """The weights of a layer.

    Attributes:
        weight: What states are multiplied with, ``[hidden, gates * hidden]``.
        more: The bias of a GRU, or the weights by which an LSTM's gates see the cell.
        clip: Limits what sigmoid and tanh take of sums, on both sides; 0 is no limit.
        parts: Columns of these, which all steps share.
    """

    weight: Term
    more: Term | None = None
    clip: float = 0.0
    parts: dict[tuple[Expr, int, int], Term] = field(
        default_factory=dict[tuple[Expr, int, int], Term]
    )

    @property
    def hidden(self) -> int:
        return self.weight.sizes[0]

    def activated(self, total: Term, op: type[Op]) -> Term:
        """Return what a function gives for sums within the limit."""
        if self.clip:
            total = total.apply(unary.Clip, attrs=unary.Clip.Attrs(min=-self.clip, max=self.clip))
        return total.apply(op)

    def gate(self, total: Term, first: int, count: int = 1) -> Term:
        """Return columns of gates."""
        return _part(total, first * self.hidden, (first + count) * self.hidden)

    def own(self, whole: Term | None, first: int, count: int = 1) -> Term:
        """Return columns of the weight, or of what there is beside it."""
        assert whole is not None
        key = whole.expr, first, count
        if key not in self.parts:
            self.parts[key] = self.gate(whole, first, count)
        return self.parts[key]

    def product(self, state: Term, first: int, count: int) -> Term | None:
        """Return the state's part of gates; ``None`` if the state is known to be zero."""
        if _is_zero(state.expr):
            return None
        return state.apply(nn.Matmul, self.own(self.weight, first, count))

    def with_bias(self, product: Term | None, like: Term, first: int, count: int) -> Term:
        """Add a GRU's bias to what :meth:`product` returned for rows like those of a state."""
        bias = self.own(self.more, first, count)
        if product is None:
            return bias.broadcast((like.sizes[0], count * self.hidden))
        return product + bias


def _unrolled(node: Call) -> Expr | None:
    """Return the results of an unrolled layer; ``None`` if it is none, or stays."""
    states = 2 if isinstance(node.attrs, Lstm.Attrs) else 1
    match node.attrs:
        case Lstm.Attrs(quantize_state=False):
            step = partial(_lstm_step, is_coupled=node.attrs.input_forget)
        case Gru.Attrs():
            step = partial(_gru_step, before=node.attrs.linear_before_reset)
        case Rnn.Attrs():
            step = partial(_rnn_step, activation=node.attrs.activation)
        case _:
            return None
    x, *given = (Term(arg, node.span) for arg in node.args)
    if not x.type.is_static or not 1 <= x.sizes[0] <= MOST_STEPS or 0 in x.sizes:
        return None
    more = given[states + 1] if len(given) > states + 1 else None
    layer = _Layer(given[states], more, node.attrs.clip)
    return _along(x, tuple(given[:states]), partial(step, layer), reverse=node.attrs.reverse)


def _along(x: Term, states: _States, step: _Step, *, reverse: bool) -> Expr:
    """Return the states of all steps, and ``states`` as they are behind the last."""
    steps, batch, columns = x.sizes
    rows = x.reshape((steps * batch, columns))
    outputs: dict[int, Expr] = {}
    for number in step_numbers(steps, reverse):
        states = step(rows.part(0, number * batch, (number + 1) * batch), states)
        outputs[number] = states[0].expr
    parts = [outputs[number] for number in range(steps)]
    whole = parts[0]
    if steps > 1:
        attrs = shaping.Concatenate.Attrs(axis=0)
        whole = call(shaping.Concatenate, *parts, attrs=attrs, span=x.span)
    shape = (steps, batch, states[0].sizes[1])
    every = Term(whole, x.span).reshape(shape).expr
    return make_tuple([every, *(state.expr for state in states)], span=x.span)


def _lstm_step(layer: _Layer, x: Term, states: _States, *, is_coupled: bool) -> _States:
    h, c = states
    product = layer.product(h, 0, 4)
    total = x if product is None else x + product

    def gate(number: int, cell: Term) -> Term:
        own = layer.gate(total, number)
        if layer.more is not None:
            own = own + cell * layer.own(layer.more, number)
        return layer.activated(own, unary.Sigmoid)

    i, new = gate(0, c), layer.activated(layer.gate(total, 3), unary.Tanh)
    kept = i * new
    if not _is_zero(c.expr):
        kept = (1.0 - i if is_coupled else gate(2, c)) * c + kept
    return gate(1, kept) * kept.apply(unary.Tanh), kept


def _gru_step(layer: _Layer, x: Term, states: _States, *, before: bool) -> _States:
    (h,) = states
    gates = layer.gate(x, 0, 2) + layer.with_bias(layer.product(h, 0, 2), h, 0, 2)
    both = (layer.gate(gates, number) for number in range(2))
    update, reset = (layer.activated(gate, unary.Sigmoid) for gate in both)
    if before:
        inner = reset * layer.with_bias(layer.product(h, 2, 1), h, 2, 1)
    else:
        kept = h if _is_zero(h.expr) else reset * h
        inner = layer.with_bias(layer.product(kept, 2, 1), h, 2, 1)
    new = layer.activated(layer.gate(x, 2) + inner, unary.Tanh)
    return (new + update * (h - new),)


def _rnn_step(layer: _Layer, x: Term, states: _States, *, activation: str) -> _States:
    product = layer.product(states[0], 0, 1)
    total = x if product is None else x + product
    return (layer.activated(total, _ACTIVATIONS[activation]),)


_ACTIVATIONS = {"tanh": unary.Tanh, "relu": activation.Relu}


def _part(x: Term, begin: int, end: int) -> Term:
    """Take columns, of a constant now: what libraries multiply with has to be one."""
    if (begin, end) == (0, x.sizes[-1]):
        return x
    if isinstance(x.expr, Constant):
        cut = np.ascontiguousarray(x.expr.data[..., begin:end])
        return Term(constant(cut, name=x.expr.name, span=x.expr.span), x.span)
    return x.part(x.type.rank - 1, begin, end)


def _is_zero(x: Expr) -> bool:
    match x:
        case Constant():
            return not np.any(x.data)
        case Call(attrs=Full.Attrs(value=value)):
            return value == 0
        case _:
            return False
