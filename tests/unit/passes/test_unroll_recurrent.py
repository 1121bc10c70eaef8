# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers as the operators of their steps, for devices without such loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Constant, Function, Var, call, constant, get_item
from intarsia_ir.graph.op import Op
from intarsia_ir.graph.types import Size, TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.ops.recurrent import Gru, Lstm
from intarsia_ir.ops.recurrent_plain import Rnn
from intarsia_ir.passes.unroll_recurrent import unroll_recurrent
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable

STEPS, HIDDEN = 5, 6
GATES = {Lstm: 4, Gru: 3, Rnn: 1}
LAYERS: list[tuple[type[Op], dict[str, Any]]] = [
    (Lstm, {}),
    (Lstm, {"reverse": True, "peepholes": True}),
    (Gru, {"reverse": True}),
    (Gru, {"linear_before_reset": True}),
    (Rnn, {"reverse": True}),
    (Rnn, {"activation": "relu"}),
    (Lstm, {"clip": 0.5, "input_forget": True}),
    (Gru, {"clip": 0.5}),
    (Rnn, {"clip": 0.5}),
]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def layer(
    op: type[Op], attrs: dict[str, Any], steps: int = STEPS, batch: Size = 3, *, zeros: bool = False
) -> Function:
    """Return a layer whose results are the function's, with given states or zeros."""
    gates = GATES[op]
    x = Var("x", TensorType((steps, batch, gates * HIDDEN), DType.FLOAT32))
    states: list[Any] = [
        Var(name, TensorType((batch, HIDDEN), DType.FLOAT32))
        for name in ("h", "c")[: 2 if op is Lstm else 1]
    ]
    params = (x, *([] if zeros else states))
    if zeros:
        states = [constant(np.zeros((batch, HIDDEN), np.float32)) for _ in states]
    weights = [constant(numbers(HIDDEN, gates * HIDDEN) / 3, name="r")]
    if attrs.get("quantize_state"):
        weights.append(constant(np.ones(gates * HIDDEN, np.float32)))
    if attrs.get("peepholes") or op is Gru:
        weights.append(constant(numbers(3 * HIDDEN)))
    made = call(op, x, *states, *weights, attrs=op.Attrs(**attrs))
    last = get_item(made, 1 if op is not Lstm else 2)
    both = call_sum(get_item(made, 0), last)
    return Function(params, both)


def call_sum(states: Any, last: Any) -> Call:
    """The states of all steps plus the last state, or cell, which both results go into."""
    return call(Add, states, last)


@pytest.mark.parametrize(("op", "attrs"), LAYERS)
@pytest.mark.parametrize("zeros", [False, True])
def test_steps_do_what_the_layer_does(op: type[Op], attrs: dict[str, Any], zeros: bool) -> None:
    before = layer(op, attrs, zeros=zeros)
    after = unroll_recurrent(before)
    values = {param.name: numbers(*param.type.static_shape) for param in before.params}
    (want,), (got,) = evaluate(before, values), evaluate(after, values)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    names = [node.name for node in calls(after)]
    assert not {"nn.lstm", "nn.gru", "nn.rnn"} & set(names)
    each = 2 if op is Gru else 1
    assert names.count("matmul") == each * (STEPS - zeros)  # zeros are not multiplied


@pytest.mark.parametrize(("op", "attrs"), LAYERS)
def test_steps_share_their_weights(op: type[Op], attrs: dict[str, Any]) -> None:
    products = [node for node in calls(unroll_recurrent(layer(op, attrs))) if node.name == "matmul"]
    weights = {node.args[1] for node in products}
    assert len(weights) == (2 if op is Gru else 1)
    assert all(isinstance(weight, Constant) and weight.name == "r" for weight in weights)


@pytest.mark.parametrize(
    "function",
    [
        layer(Lstm, {"quantize_state": True}),
        layer(Lstm, {}, steps=513),
        layer(Gru, {}, steps=0),
        layer(Rnn, {}, batch=variable("n")),
        layer(Rnn, {}, batch=0),
    ],
    ids=["rounded", "long", "empty", "open", "no rows"],
)
def test_layers_that_stay(function: Function) -> None:
    assert unroll_recurrent(function) is function


def test_as_many_steps_as_are_unrolled() -> None:
    names = [node.name for node in calls(unroll_recurrent(layer(Rnn, {}, steps=512)))]
    assert names.count("matmul") == 512
