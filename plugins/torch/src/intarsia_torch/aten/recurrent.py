# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN of several layers and directions, as ONNX's operators, one a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.ops import binary, nn, unary

from .context import AtenContext, Converter, rank_of, sizes_of
from .slices import cut

_OPS = MappingProxyType({"gru": "GRU", "lstm": "LSTM", "rnn_tanh": "RNN", "rnn_relu": "RNN"})
_ORDER: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2), "RNN": (0,)}
)
"""For each gate of ONNX, the one of PyTorch: reset and update, forget and output trade places."""


def _recurrent(node: AtenContext) -> tuple[Expr, ...]:
    if node.overload != "input":
        node.unsupported("sequences of several lengths, packed")
    if node.flag("train") and node.number("dropout"):
        node.unsupported("dropout in training mode")
    op = _OPS[node.name]
    x = node.tensor("input")
    if node.flag("batch_first"):
        x = node.transpose(x, (1, 0, 2))
    states = node.tensors("hx") if op == "LSTM" else [node.tensor("hx")]
    params = node.tensors("params")
    directions = 2 if node.flag("bidirectional") else 1
    each = len(params) // (node.integer("num_layers") * directions)
    if each != (4 if node.flag("has_biases") else 2):
        node.unsupported("projections")
    finals: list[Sequence[Expr]] = []
    for layer in range(node.integer("num_layers")):
        begin = layer * directions
        own = [params[n * each : (n + 1) * each] for n in range(begin, begin + directions)]
        first = [cut(node, state, 0, begin, directions) for state in states]
        x, *last = _layer(node, op, x, own, first)
        finals.append(last)
    whole = node.transpose(x, (1, 0, 2)) if node.flag("batch_first") else x
    return whole, *(node.concat(parts, 0) for parts in zip(*finals, strict=True))


def _layer(
    node: AtenContext, op: str, x: Expr, params: Sequence[Sequence[Expr]], first: Sequence[Expr]
) -> tuple[Expr, ...]:
    """Apply one layer; ``params`` has the weights and biases of each direction."""

    def joined(index: int) -> Expr:
        parts = [_reordered(node, op, own[index]) for own in params]
        return node.folded(node.concat([_with_front(node, part) for part in parts], 0))

    bias: Expr | None = None
    if len(params[0]) == 4:
        rows = [
            node.concat([_reordered(node, op, own[index]) for index in (2, 3)], 0) for own in params
        ]
        bias = node.folded(node.concat([_with_front(node, row) for row in rows], 0))
    hidden = tensor_type(params[0][1]).static_shape[1]
    directions = len(params)
    attrs: dict[str, int | str | tuple[str, ...]] = {
        "hidden_size": hidden,
        "direction": "bidirectional" if directions == 2 else "forward",
    }
    if op == "GRU":
        attrs["linear_before_reset"] = 1
    if node.name == "rnn_relu":
        attrs["activations"] = ("Relu",) * directions
    results = node.onnx_results(
        1 + len(first), op, x, joined(0), joined(1), bias, None, *first, **attrs
    )
    steps, _, batch, _ = sizes_of(results[0])
    moved = node.transpose(results[0], (0, 2, 1, 3))
    return node.reshape(moved, (steps, batch, directions * hidden)), *results[1:]


def _with_front(node: AtenContext, x: Expr) -> Expr:
    return node.reshape(x, (1, *sizes_of(x)))


def _reordered(node: AtenContext, op: str, x: Expr) -> Expr:
    order = _ORDER[op]
    rows = tensor_type(x).static_shape[0] // len(order)
    return node.concat([cut(node, x, 0, gate * rows, rows) for gate in order], 0)


def _gates(node: AtenContext, x: Expr, weight: str, bias: str) -> Expr:
    attrs = nn.Matmul.Attrs(transpose_b=True)
    made = node.call(nn.Matmul, x, node.tensor(weight), attrs=attrs)
    added = node.optional(bias)
    return made if added is None else node.call(binary.Add, made, added)


def _cell(node: AtenContext) -> Expr | tuple[Expr, ...]:
    """One step: ``lstm_cell``, ``gru_cell``, ``rnn_tanh_cell`` and ``rnn_relu_cell``."""
    x = node.tensor("input")
    states = node.tensors("hx") if node.name == "lstm_cell" else [node.tensor("hx")]
    if rank_of(x) != 2:
        node.unsupported("an input that is no matrix")
    inputs = _gates(node, x, "w_ih", "b_ih")
    inner = _gates(node, states[0], "w_hh", "b_hh")
    if node.name == "lstm_cell":
        return _lstm_cell(node, node.call(binary.Add, inputs, inner), states[1])
    if node.name == "gru_cell":
        return _gru_cell(node, inputs, inner, states[0])
    total = node.call(binary.Add, inputs, inner)
    return node.call(unary.Tanh, total) if "tanh" in node.name else node.onnx("Relu", total)


def _lstm_cell(node: AtenContext, gates: Expr, cell: Expr) -> tuple[Expr, ...]:
    width = sizes_of(cell)[1]
    i, f, g, o = (cut(node, gates, 1, n * width, width) for n in range(4))
    i, f, o = (node.call(unary.Sigmoid, gate) for gate in (i, f, o))
    kept = node.call(binary.Multiply, f, cell)
    cell = node.call(binary.Add, kept, node.call(binary.Multiply, i, node.call(unary.Tanh, g)))
    return node.call(binary.Multiply, o, node.call(unary.Tanh, cell)), cell


def _gru_cell(node: AtenContext, inputs: Expr, inner: Expr, state: Expr) -> Expr:
    width = sizes_of(state)[1]
    rows = [[cut(node, x, 1, n * width, width) for n in range(3)] for x in (inputs, inner)]
    r, z = (
        node.call(unary.Sigmoid, node.call(binary.Add, rows[0][n], rows[1][n])) for n in range(2)
    )
    new = node.call(binary.Add, rows[0][2], node.call(binary.Multiply, r, rows[1][2]))
    new = node.call(unary.Tanh, new)
    change = node.call(binary.Multiply, z, node.call(binary.Subtract, state, new))
    return node.call(binary.Add, new, change)


CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(_OPS, _recurrent),
        **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), _cell),
    }
)
