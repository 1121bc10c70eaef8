# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers as operators, against loops over steps in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.recurrent_rows import RowTile
from intarsia_ir.tir.interp import run
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

SIZES = [(1, 1, 1), (5, 3, 8), (4, 2, 37), (0, 2, 3), (2, 0, 3)]


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize(("steps", "batch", "hidden"), SIZES)
def test_lstm(
    check_operator, steps: int, batch: int, hidden: int, peepholes: bool, reverse: bool
) -> None:
    x, r = floats(steps, batch, 4 * hidden), floats(hidden, 4 * hidden) / 4
    operands = x, floats(batch, hidden), floats(batch, hidden) * 2, r
    own = (floats(3 * hidden),) if peepholes else ()
    wanted = lstm(*operands, None, *own, reverse=reverse)
    check_operator(wanted, "nn.lstm", *operands, *own, reverse=reverse, peepholes=peepholes)


def lstm(x, h, c, r, scale=None, peepholes=None, *, reverse: bool) -> list[np.ndarray]:
    own = np.zeros(3 * r.shape[0], np.float32) if peepholes is None else peepholes
    from_i, from_o, from_f = np.split(own, 3)
    states = np.zeros((*x.shape[:2], r.shape[0]), np.float32)
    for at in reversed(range(len(x))) if reverse else range(len(x)):
        product = h @ r if scale is None else (eight_bits(h) @ r.astype(np.float32)) * scale
        i, o, f, g = np.split(x[at] + product, 4, 1)
        c = logistic(f + from_f * c) * c + logistic(i + from_i * c) * np.tanh(g)
        states[at] = h = logistic(o + from_o * c) * np.tanh(c)
    return [states, h, c]


@pytest.mark.parametrize("input_forget", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_lstm_with_limits_and_coupled_gates(
    check_operator, clip: float, input_forget: bool
) -> None:
    hidden, limit = 5, clip or np.inf
    x, r, h, c = floats(3, 2, 20), floats(hidden, 20), floats(2, hidden), floats(2, hidden) * 2
    given, states = (x, h, c, r), []
    for row in x:
        gates = np.split(np.clip(row + h @ r, -limit, limit), 4, 1)
        i, o, f = map(logistic, gates[:3])
        c = (1 - i if input_forget else f) * c + i * np.tanh(gates[3])
        h = o * np.tanh(c)
        states.append(h)
    attrs = {"clip": clip, "input_forget": input_forget}
    check_operator([np.stack(states), h, c], "nn.lstm", *given, **attrs)


@pytest.mark.parametrize("before", [False, True])
def test_gru_with_limits(check_operator, before: bool) -> None:
    x, r, h, bias = floats(3, 2, 15), floats(5, 15), floats(2, 5), floats(15)
    given, states = (x, h, r, bias), []
    weights, biases = np.split(r, 3, 1), np.split(bias, 3)
    for row in x:
        parts = np.split(row, 3, 1)
        sums = [parts[n] + h @ weights[n] + biases[n] for n in range(2)]
        z, reset = (logistic(np.clip(total, -0.3, 0.3)) for total in sums)
        if before:
            inner = reset * (h @ weights[2] + biases[2])
        else:
            inner = (reset * h) @ weights[2] + biases[2]
        h = (1 - z) * np.tanh(np.clip(parts[2] + inner, -0.3, 0.3)) + z * h
        states.append(h)
    attrs = {"clip": 0.3, "linear_before_reset": before}
    check_operator([np.stack(states), h], "nn.gru", *given, **attrs)


@pytest.mark.parametrize("clip", [-1.0, float("inf"), float("nan")])
@pytest.mark.parametrize(("name", "gates"), [("nn.lstm", 4), ("nn.gru", 3), ("nn.rnn", 1)])
def test_a_limit_that_is_none_is_refused(name: str, gates: int, clip: float) -> None:
    op = OPERATORS[name]
    shapes = [(2, 1, gates * 8), *[(1, 8)] * (2 if gates == 4 else 1), (8, gates * 8)]
    shapes += [(24,)] if gates == 3 else []
    types = [TensorType(shape, DType.FLOAT32) for shape in shapes]
    with pytest.raises(TypeRuleError, match=f"clip={clip} is no limit"):
        op.type_rule(op.Attrs(clip=clip), *types)


def eight_bits(h: np.ndarray) -> np.ndarray:
    """Rows as dynamic quantization stores them."""
    low, high = np.minimum(h.min(1, keepdims=True), 0), np.maximum(h.max(1, keepdims=True), 0)
    scale = np.where(low == high, 1, (high - low) / np.float32(255)).astype(np.float32)
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(h / scale) + zero, 0, 255) - zero) * scale


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
@pytest.mark.parametrize(("steps", "batch", "hidden"), SIZES)
def test_lstm_of_bytes(
    check_operator, steps: int, batch: int, hidden: int, dtype: str, reverse: bool
) -> None:
    rng = np.random.default_rng(hidden)
    largest = 127 if dtype == "int8" else 255
    r = rng.integers(-largest, largest + 1, (hidden, 4 * hidden)).astype(dtype)
    scale = (rng.random(4 * hidden) * 0.25 / largest).astype(np.float32)
    x, h, c = floats(steps, batch, 4 * hidden), floats(batch, hidden), floats(batch, hidden)
    attrs = {"reverse": reverse, "quantize_state": True}
    wanted = lstm(x, h, c, r, scale, reverse=reverse)
    check_operator(wanted, "nn.lstm", x, h, c, r, scale, **attrs)
    own = floats(3 * hidden)
    wanted = lstm(x, h, c, r, scale, own, reverse=reverse)
    check_operator(wanted, "nn.lstm", x, h, c, r, scale, own, **attrs, peepholes=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize(("steps", "batch", "hidden"), SIZES)
def test_rnn(
    check_operator,
    steps: int,
    batch: int,
    hidden: int,
    clip: float,
    activation: str,
    reverse: bool,
) -> None:
    x, r, h = floats(steps, batch, hidden), floats(hidden, hidden) / 4, floats(batch, hidden)
    states, given = np.zeros((steps, batch, hidden), np.float32), h
    for at in reversed(range(steps)) if reverse else range(steps):
        total = np.clip(x[at] + h @ r, *((-clip, clip) if clip else (None, None)))
        h = states[at] = np.tanh(total) if activation == "tanh" else np.maximum(total, 0)
    attrs = {"reverse": reverse, "activation": activation, "clip": clip}
    check_operator([states, h], "nn.rnn", x, given, r, **attrs)


def test_another_activation_of_an_rnn_is_refused() -> None:
    op = OPERATORS["nn.rnn"]
    types = [TensorType(shape, DType.FLOAT32) for shape in [(2, 1, 8), (1, 8), (8, 8)]]
    with pytest.raises(TypeRuleError, match="activation 'sin' is no tanh or relu"):
        op.type_rule(op.Attrs(activation="sin"), *types)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(("steps", "batch", "hidden"), SIZES)
def test_gru(
    check_operator, steps: int, batch: int, hidden: int, before: bool, reverse: bool
) -> None:
    x, r = floats(steps, batch, 3 * hidden), floats(hidden, 3 * hidden) / 4
    first, bias = floats(batch, hidden), floats(3 * hidden)
    h, states = first, np.zeros((steps, batch, hidden), np.float32)
    weights, biases = np.split(r, 3, 1), np.split(bias, 3)
    for at in reversed(range(steps)) if reverse else range(steps):
        parts = np.split(x[at], 3, 1)
        z, reset = (logistic(parts[n] + h @ weights[n] + biases[n]) for n in range(2))
        if before:
            new = np.tanh(parts[2] + reset * (h @ weights[2] + biases[2]))
        else:
            new = np.tanh(parts[2] + (reset * h) @ weights[2] + biases[2])
        h = (1 - z) * new + z * h
        states[at] = h
    attrs = {"reverse": reverse, "linear_before_reset": before}
    check_operator([states, h], "nn.gru", x, first, r, bias, **attrs)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 6, 8, 9])
@pytest.mark.parametrize(
    ("name", "gates", "attrs"),
    [
        ("nn.lstm", 4, {}),
        ("nn.gru", 3, {"linear_before_reset": True}),
        ("nn.gru", 3, {"linear_before_reset": False}),
        ("nn.rnn", 1, {"activation": "tanh"}),
    ],
)
def test_rows_that_go_along_together(
    name: str, gates: int, attrs: dict[str, object], batch: int
) -> None:
    """Four of them, or five where one would be left."""
    op, steps, hidden = OPERATORS[name], 3, 6
    states = [floats(batch, hidden)] * (2 if name == "nn.lstm" else 1)
    weight = floats(hidden, gates * hidden) / 4
    more = [floats(gates * hidden)] if name == "nn.gru" else []
    operands = [floats(steps, batch, gates * hidden), *states, weight, *more]
    types = [TensorType(array.shape, DType.FLOAT32) for array in operands]
    wanted = op.reference(op.Attrs(**attrs), *operands)
    found = [np.full_like(array, np.nan) for array in wanted]
    run(op.tiled(RowTile(4, 4), op.Attrs(**attrs), *types), *operands, *found)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("nn.lstm", [(2, 8), (1, 2), (1, 2), (2, 8)], "are no sequence, states and weight"),
        ("nn.lstm", [(2, 1, 8), (1, 2), (1, 3), (2, 8)], "do not go together"),
        ("nn.lstm", [(2, 1, 8), (1, 2), (3, 2), (2, 8)], "do not go together"),
        ("nn.gru", [(2, 1, 8), (1, 2), (2, 6), (6,)], "do not go together"),
        ("nn.gru", [(2, 1, 6), (1, 2), (2, 6), (5,)], "not one of 6 elements"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    name: str, shapes: list[tuple[int, ...]], message: str
) -> None:
    op = OPERATORS[name]
    with pytest.raises(TypeRuleError, match=message):
        op.type_rule(op.Attrs(), *(TensorType(shape, DType.FLOAT32) for shape in shapes))


def test_a_scale_of_another_size_is_refused() -> None:
    op = OPERATORS["nn.lstm"]
    types = [
        TensorType(shape, DType.FLOAT32) for shape in [(2, 1, 8), (1, 2), (1, 2), (2, 8), (2,)]
    ]
    with pytest.raises(TypeRuleError, match=r"the scale is .* not one of 8 elements"):
        op.type_rule(op.Attrs(quantize_state=True), *types)
    with pytest.raises(TypeRuleError, match=r"the weight of the cell is .* not one of 6 elements"):
        op.type_rule(op.Attrs(peepholes=True), *types)


def test_other_element_types_are_refused() -> None:
    op = OPERATORS["nn.lstm"]
    types = [TensorType(shape, DType.FLOAT64) for shape in [(2, 1, 8), (1, 2), (1, 2), (2, 8)]]
    with pytest.raises(TypeRuleError, match="takes float32"):
        op.type_rule(op.Attrs(), *types)


def test_closed_gates_leave_no_subnormal_states() -> None:
    """A vector of products with a subnormal number takes some 150 cycles."""
    steps, batch, hidden = 5, 1, 4
    x = np.zeros((steps, batch, 4 * hidden), np.float32)
    x[..., : 3 * hidden] = -60.0  # input, output and forget gate
    x[..., 3 * hidden :] = 1.0
    state = np.full((batch, hidden), 0.5, np.float32)
    operands = [x, state, state, np.zeros((hidden, 4 * hidden), np.float32)]
    types = [TensorType(array.shape, DType.FLOAT32) for array in operands]
    op = OPERATORS["nn.lstm"]
    found = [np.full_like(array, np.nan) for array in op.reference(op.Attrs(), *operands)]
    run(op.tiled(RowTile(1, 4), op.Attrs(), *types), *operands, *found)
    for array in found:
        assert np.all((array == 0) | (np.abs(array) >= np.finfo(np.float32).tiny))
        assert np.all(np.abs(array) < 1e-20)


def test_a_state_that_is_no_number_stays_so(check_operator) -> None:
    x, r = floats(2, 1, 8), np.zeros((2, 8), np.float32)
    h, c = np.zeros((1, 2), np.float32), np.array([[np.nan, 1.0]], np.float32)
    check_operator(lstm(x, h, c, r, reverse=False), "nn.lstm", x, h, c, r)
