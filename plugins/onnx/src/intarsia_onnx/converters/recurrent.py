# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN: operators; steps of other activations or element types are unrolled."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from msgspec import Struct, field

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import require_equal
from intarsia_ir.ops import binary, compare, nn, unary
from intarsia_ir.ops.type_rules import shape_text
from intarsia_ir.passes.unroll_recurrent import MOST_STEPS
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from ..builder import dtype_of
from ..context import NodeContext
from .named_activations import NamedActivation, named_activations
from .open_recurrent import (
    QuantizedProducts,
    clip,
    has_lengths,
    initial,
    may_be,
    open_recurrent,
    peepholes,
)
from .wide import with_steps_in_float32

_DEFAULTS = MappingProxyType(
    {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
)
_GATES = MappingProxyType({"LSTM": 4, "GRU": 3, "RNN": 1})


class _Cell(Struct, frozen=True):
    """One direction of one layer.

    Attributes:
        node: The node.
        hidden: Size of the state.
        recurrence: Recurrent weight ``[gates * hidden, hidden]``.
        bias: Recurrent bias ``[gates * hidden]``, or ``None``.
        functions: Activation functions.
        limit: What their operands are limited to on both sides, 0 for none. As in ONNX Runtime,
            the cell of an LSTM is not: only what comes from products is.
        rounded: What products take of the state.
        peepholes: What the cell is multiplied with for each gate ``[3 * hidden]``, or ``None``.
        weights: Parts of the recurrent weight, which all steps share.
    """

    node: NodeContext
    hidden: int
    recurrence: Expr
    bias: Expr | None
    functions: tuple[NamedActivation, ...]
    limit: float
    rounded: Callable[[Expr], Expr]
    peepholes: Expr | None = None
    weights: dict[tuple[int, int], Expr] = field(default_factory=dict[tuple[int, int], Expr])

    def times(self, a: Expr, b: Expr) -> Expr:
        return self.node.call(binary.Multiply, a, b)

    def plus(self, a: Expr, b: Expr) -> Expr:
        return self.node.call(binary.Add, a, b)

    def apply(self, index: int, x: Expr) -> Expr:
        """Return what a function gives for a sum of products, which ``clip`` limits."""
        if self.limit:
            attrs = unary.Clip.Attrs(min=-self.limit, max=self.limit)
            x = self.node.call(unary.Clip, x, attrs=attrs)
        return self.functions[index].applied(self.node, x)

    def seen(self, gate: Expr, index: int, c: Expr) -> Expr:
        """Return a gate with what it sees of the cell, before its activation."""
        if self.peepholes is None:
            return gate
        rows = index * self.hidden, (index + 1) * self.hidden
        weight = self.node.folded(self.node.slice(self.peepholes, 0, *rows))
        return self.plus(gate, self.times(weight, c))

    def gate(self, x: Expr, index: int) -> Expr:
        return self.node.slice(x, 1, index * self.hidden, (index + 1) * self.hidden)

    def recurrent(self, h: Expr, first: int, last: int, *, with_bias: bool) -> Expr:
        """Return the state's part of gates ``first`` to ``last`` (exclusive)."""
        node, rows = self.node, (first * self.hidden, last * self.hidden)
        if rows not in self.weights:
            self.weights[rows] = node.folded(node.slice(self.recurrence, 0, *rows))
        result = product(node, self.rounded(h), self.weights[rows])
        if self.bias is None or not with_bias:
            return result
        return self.plus(result, node.folded(node.slice(self.bias, 0, *rows)))


_State: TypeAlias = tuple[Expr, ...]
_Step: TypeAlias = Callable[[_Cell, Expr, _State], _State]


def product(node: NodeContext, x: Expr, weight: Expr) -> Expr:
    """Multiply by the transpose of a weight matrix."""
    return node.call(nn.Matmul, x, weight, attrs=nn.Matmul.Attrs(transpose_b=True))


def _lstm_step(cell: _Cell, x: Expr, state: _State) -> _State:
    h, c = state
    total = cell.plus(x, cell.recurrent(h, 0, 4, with_bias=False))
    i = cell.apply(0, cell.seen(cell.gate(total, 0), 0, c))
    if cell.node.integer("input_forget", 0):
        f = cell.node.call(binary.Subtract, cell.node.scalar(1.0, dtype_of(i)), i)
    else:
        f = cell.apply(0, cell.seen(cell.gate(total, 2), 2, c))
    new = cell.apply(1, cell.gate(total, 3))
    c = cell.plus(cell.times(f, c), cell.times(i, new))
    o = cell.apply(0, cell.seen(cell.gate(total, 1), 1, c))
    return cell.times(o, cell.functions[2].applied(cell.node, c)), c


def _gru_step(cell: _Cell, x: Expr, state: _State) -> _State:
    (h,) = state
    before = bool(cell.node.integer("linear_before_reset", 0))
    gates = cell.recurrent(h, 0, 2, with_bias=True)
    z, r = (
        cell.apply(0, cell.plus(cell.gate(x, index), cell.gate(gates, index))) for index in range(2)
    )
    if before:
        inner = cell.times(r, cell.recurrent(h, 2, 3, with_bias=True))
    else:
        inner = cell.recurrent(cell.times(r, h), 2, 3, with_bias=True)
    new = cell.apply(1, cell.plus(cell.gate(x, 2), inner))
    difference = cell.node.call(binary.Subtract, h, new)
    return (cell.plus(new, cell.times(z, difference)),)


def _rnn_step(cell: _Cell, x: Expr, state: _State) -> _State:
    total = cell.plus(x, cell.recurrent(state[0], 0, 1, with_bias=False))
    return (cell.apply(0, total),)


_STEPS: MappingProxyType[str, _Step] = MappingProxyType(
    {"LSTM": _lstm_step, "GRU": _gru_step, "RNN": _rnn_step}
)


@with_steps_in_float32
def recurrent(node: NodeContext) -> tuple[Expr, ...]:
    """Convert LSTM, GRU and RNN in one or both directions."""
    return layer(node)


def layer(node: NodeContext, quantized: QuantizedProducts | None = None) -> tuple[Expr, ...]:
    """Convert a layer, whose products may be of bytes.

    Args:
        node: The node, or one with its operands in the form of LSTM's.
        quantized: Products in the place of those of float weights.
    """
    x = node.input(0)
    batch_first = bool(node.integer("layout", 0))
    if len(node.static_shape(0)) != 3:
        raise node.model_error(f"the sequence must have three dimensions, got {node.type_of(0)}")
    if batch_first:
        x = node.transpose(x, (1, 0, 2))
    steps, batch, _ = _checked(node, batch_first)
    direction = node.string("direction", "forward")
    reversed_by = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in reversed_by:
        raise node.model_error(f"direction='{direction}' is not defined")
    flags = reversed_by[direction]
    hidden = node.static_shape(2)[-1] if node.type_of(2).rank == 3 else 0
    _check_weights(node, len(flags), hidden)
    size = node.type_of(1).shape[2]
    if isinstance(size, int):
        x = node.with_size(x, 2, size)
    if _takes_operator(node, steps, len(flags)):
        return open_recurrent(node, x, flags, (steps, batch, hidden), quantized)
    sequences: list[list[Expr]] = []
    finals: list[_State] = []
    for index, backward in enumerate(flags):
        cell = _cell(node, index, len(flags), hidden, quantized)
        sizes = (steps, batch, hidden)
        outputs, state = _direction(cell, x, index, backward, sizes, quantized)
        sequences.append(outputs)
        finals.append(state)
    return _results(node, sequences, finals, (steps, batch, hidden), batch_first)


def _checked(node: NodeContext, batch_first: bool) -> tuple[int, int, int]:
    """Check what cannot be unrolled and return steps, batch and input size."""
    first, second, size = node.static_shape(0)
    steps, batch = (second, first) if batch_first else (first, second)
    if node.optional(4) is not None and not may_be(node.static_shape(4), (batch,)):
        raise node.model_error(f"the lengths {node.type_of(4)} are not one for each of {batch}")
    return steps, batch, size


def _takes_operator(node: NodeContext, steps: int, directions: int) -> bool:
    """Whether a layer becomes an operator; refuse those that cannot be unrolled either.

    Those in float32 with the usual activations do. A target whose devices have products, but no
    loops, unrolls them later.

    Raises:
        UnsupportedError: The length is open, or too large to be unrolled, and the node asks for
            what no operator does.
    """
    usual = {_DEFAULTS[node.op_type]}
    if node.op_type == "RNN":
        usual.add(("Relu",))
    chosen = [_functions(node, index, directions) for index in range(directions)]
    fits = all(tuple(function.name for function in functions) in usual for functions in chosen)
    # The operator keeps a state behind the end of its sequence by gates that ``clip`` would limit.
    fits = fits and not (clip(node) and has_lengths(node, steps))
    if fits and dtype_of(node.input(0)) is DType.FLOAT32:
        return True
    if isinstance(steps, Dim):
        raise node.unsupported(
            f"{node.op_type} over {steps} steps, other than float32 with the usual activations",
            "give every input a shape, e.g. --shape input:16,1,80",
        )
    if not 1 <= steps <= MOST_STEPS:
        raise node.unsupported(
            f"{steps} steps, other than float32 with the usual activations;"
            f" 1 to {MOST_STEPS} can be unrolled"
        )
    return False


def _check_weights(node: NodeContext, directions: int, hidden: int) -> None:
    rows = _GATES[node.op_type] * hidden
    size = node.static_shape(0)[2]
    expected = {
        1: (directions, rows, size),
        2: (directions, rows, hidden),
        3: (directions, 2 * rows),
    }
    if node.op_type == "LSTM":
        expected[7] = (directions, 3 * hidden)
    for index, shape in expected.items():
        if node.optional(index) is not None and not may_be(node.static_shape(index), shape):
            raise node.model_error(
                f"input {index} must have shape {shape_text(shape)}, got {node.type_of(index)}"
            )
    declared = node.integer("hidden_size") if node.has("hidden_size") else hidden
    if not require_equal(hidden, declared, f"{node.span}: hidden_size is not the weights'"):
        raise node.model_error(f"hidden_size={declared}, weights have {hidden}")


def _functions(node: NodeContext, index: int, directions: int) -> tuple[NamedActivation, ...]:
    defaults = _DEFAULTS[node.op_type]
    names = list(node.strings("activations")) or list(defaults * directions)
    if len(names) == len(defaults) and directions == 2:
        names = names * 2
    if len(names) != len(defaults) * directions:
        raise node.model_error(f"{len(names)} activations for {directions} directions")
    chosen = named_activations(node, names)
    return tuple(chosen[index * len(defaults) : (index + 1) * len(defaults)])


def _cell(
    node: NodeContext,
    index: int,
    directions: int,
    hidden: int,
    quantized: QuantizedProducts | None,
) -> _Cell:
    """Return what the steps of a direction share; biases of a GRU stay apart."""
    bias = None
    if node.optional(3) is not None and node.op_type == "GRU":
        rows = _GATES[node.op_type] * hidden
        bias = node.folded(node.slice(node.item(node.input(3), 0, index), 0, rows, 2 * rows))
    recurrence = node.folded(node.item(node.input(2), 0, index))
    functions = _functions(node, index, directions)
    rounded = quantized.state if quantized else _same
    seen = peepholes(node, index) if node.op_type == "LSTM" else None
    return _Cell(node, hidden, recurrence, bias, functions, clip(node), rounded, seen)


def _same(x: Expr) -> Expr:
    return x


def _input_bias(node: NodeContext, index: int, rows: int) -> Expr | None:
    """Return what is added to the inputs' part of the gates."""
    if node.optional(3) is None:
        return None
    both = node.item(node.input(3), 0, index)
    own, other = (node.folded(node.slice(both, 0, n * rows, (n + 1) * rows)) for n in range(2))
    return own if node.op_type == "GRU" else node.folded(node.call(binary.Add, own, other))


def _direction(
    cell: _Cell,
    x: Expr,
    index: int,
    backward: bool,
    sizes: tuple[int, int, int],
    quantized: QuantizedProducts | None,
) -> tuple[list[Expr], _State]:
    """Unroll one direction; the inputs of all steps are multiplied at once."""
    node = cell.node
    steps, batch, hidden = sizes
    rows = _GATES[node.op_type] * hidden
    if quantized is None:
        weight = node.folded(node.item(node.input(1), 0, index))
        flat = node.reshape(x, (steps * batch, node.static_shape(0)[2]))
        gates = product(node, flat, weight)
    else:
        gates = node.reshape(quantized.gates(x, index), (steps * batch, rows))
    bias = _input_bias(node, index, rows)
    if bias is not None:
        gates = node.call(binary.Add, gates, bias)
    state = [initial(node, 5, index, batch, hidden)]
    if node.op_type == "LSTM":
        state.append(initial(node, 6, index, batch, hidden))
    current = tuple(state)
    outputs: list[Expr | None] = [None] * steps
    lengths, nothing = _lengths(node, steps, batch), node.full((batch, hidden), 0.0, dtype_of(x))
    for step in reversed(range(steps)) if backward else range(steps):
        part = node.slice(gates, 0, step * batch, (step + 1) * batch)
        new = _STEPS[node.op_type](cell, part, current)
        if lengths is None:
            current, outputs[step] = new, new[0]
            continue
        # Behind its end a sequence keeps its state, and gives zeros.
        inside = node.call(compare.Greater, lengths, node.scalar(step, dtype_of(lengths)))
        pairs = zip(new, current, strict=True)
        current = tuple(node.call(compare.Where, inside, a, b) for a, b in pairs)
        outputs[step] = node.call(compare.Where, inside, new[0], nothing)
    return [value for value in outputs if value is not None], current


def _lengths(node: NodeContext, steps: int, batch: int) -> Expr | None:
    """Return the lengths of the sequences as a column; ``None`` if all are whole."""
    if node.optional(4) is None:
        return None
    known = node.constant_value(4)
    if known is not None and np.all(known == steps):
        return None
    return node.reshape(node.input(4), (batch, 1))


def _results(
    node: NodeContext,
    sequences: list[list[Expr]],
    finals: list[_State],
    sizes: tuple[int, int, int],
    batch_first: bool,
) -> tuple[Expr, ...]:
    """Join steps and directions into ``[steps, directions, batch, hidden]`` and final states."""
    steps, batch, hidden = sizes
    each = (steps, 1, batch, hidden)
    joined = [
        node.reshape(node.concat([node.reshape(h, (1, batch, hidden)) for h in sequence], 0), each)
        for sequence in sequences
    ]
    whole = node.concat(joined, 1)
    states = [
        node.concat([node.reshape(state[i], (1, batch, hidden)) for state in finals], 0)
        for i in range(len(finals[0]))
    ]
    if batch_first:
        whole = node.transpose(whole, (2, 0, 1, 3))
        states = [node.transpose(state, (1, 0, 2)) for state in states]
    return (whole, *states)


CONVERTERS = MappingProxyType({"GRU": recurrent, "LSTM": recurrent, "RNN": recurrent})
