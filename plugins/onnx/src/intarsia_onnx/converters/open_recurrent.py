# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN as operators, whose sizes may only be known at run time.

Sequences of a batch may differ in length. Behind the end of one its gates are set so that the state
stays: of LSTM the cell is kept and nothing is added to it, of GRU the state is kept. RNN has no
gates, and an LSTM that keeps a given cell does not keep the state with it: backward, these go
forward over sequences that are reversed, each up to its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Expr, get_item
from intarsia_ir.graph.types import Shape
from intarsia_ir.ops import binary, compare, generate, indexing, nn, recurrent, recurrent_plain
from intarsia_ir.ops.type_rules import same_size, shape_text
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from ..builder import dtype_of
from ..context import NodeContext

OPEN, SHUT = 1e4, -1e4
"""What a gate is before the logistic function, to be 1 and 0 whatever the state adds to it."""


class QuantizedProducts(Struct, frozen=True):
    """How a layer whose weights are bytes multiplies.

    Attributes:
        gates: Returns the product of a sequence with the weight of a direction.
        recurrent: Returns the recurrent weight of a direction ``[hidden, 4 * hidden]`` in whole
            numbers, and the scale of each column.
        state: Returns the state as products of floats take it: rows rounded to 8 bits.
    """

    gates: Callable[[Expr, int], Expr]
    recurrent: Callable[[int], tuple[Expr, Expr]]
    state: Callable[[Expr], Expr]


def open_recurrent(
    node: NodeContext,
    x: Expr,
    flags: Sequence[bool],
    sizes: tuple[int, int, int],
    quantized: QuantizedProducts | None = None,
) -> tuple[Expr, ...]:
    """Convert a layer to one operator for each direction.

    Args:
        node: The node, with default activations.
        x: The sequence ``[steps, batch, size]``.
        flags: For each direction, whether it goes backward.
        sizes: Steps, batch and the size of the state.
        quantized: Products in the place of those of float weights.

    Returns:
        The outputs in the node's layout.
    """
    steps, batch, hidden = sizes
    by_direction = [
        _direction(node, x, index, back, sizes, quantized) for index, back in enumerate(flags)
    ]
    states, *finals = zip(*by_direction, strict=True)
    whole = node.concat([node.reshape(y, (steps, 1, batch, hidden)) for y in states], 1)
    last = [
        node.concat([node.reshape(state, (1, batch, hidden)) for state in each], 0)
        for each in finals
    ]
    if node.integer("layout", 0):
        whole = node.transpose(whole, (2, 0, 1, 3))
        last = [node.transpose(state, (1, 0, 2)) for state in last]
    return (whole, *last)


def _direction(
    node: NodeContext,
    x: Expr,
    index: int,
    backward: bool,
    sizes: tuple[int, int, int],
    quantized: QuantizedProducts | None,
) -> tuple[Expr, ...]:
    """Return the states of all steps, the last state and for LSTM the last cell."""
    _, batch, hidden = sizes
    is_lstm, is_plain = node.op_type == "LSTM", node.op_type == "RNN"
    rows = (4 if is_lstm else 1 if is_plain else 3) * hidden
    if quantized is None:
        weight = node.folded(node.item(node.input(1), 0, index))
        product = node.call(nn.Matmul, x, weight, attrs=nn.Matmul.Attrs(transpose_b=True))
    else:
        product = quantized.gates(x, index)
    own: Expr = node.full((rows,), 0.0, dtype_of(x))
    if node.optional(3) is not None:
        both = node.item(node.input(3), 0, index)
        bias, own = (node.folded(node.slice(both, 0, n * rows, (n + 1) * rows)) for n in range(2))
        if is_lstm or is_plain:
            bias = node.folded(node.call(binary.Add, bias, own))
        product = node.call(binary.Add, product, bias)
    inside = _inside(node, sizes)
    if inside is not None and not is_plain:
        product = node.call(compare.Where, inside, product, _kept_gates(node, hidden))
    starts = is_plain or (is_lstm and any(node.optional(n) is not None for n in (5, 6)))
    is_reversed = backward and inside is not None and starts
    if is_reversed:
        product, backward = _reversed(node, product), False
    if quantized is None:
        weights = (node.folded(node.transpose(node.item(node.input(2), 0, index), (1, 0))),)
    else:
        weights = quantized.recurrent(index)
    first = initial(node, 5, index, batch, hidden)
    if is_lstm:
        cells = initial(node, 6, index, batch, hidden)
        given = product, first, cells, *weights
        result = _lstm(node, index, given, reverse=backward, rounds=quantized is not None)
    elif is_plain:
        names = [name.lower() for name in node.strings("activations")] or ["tanh"]
        plain = recurrent_plain.Rnn.Attrs(
            reverse=backward, activation=names[index % len(names)], clip=clip(node)
        )
        result = node.call(recurrent_plain.Rnn, product, first, *weights, attrs=plain)
    else:
        before = bool(node.integer("linear_before_reset", 0))
        attrs = recurrent.Gru.Attrs(reverse=backward, linear_before_reset=before, clip=clip(node))
        result = node.call(recurrent.Gru, product, first, *weights, own, attrs=attrs)
    states, last, *cells_left = (
        get_item(result, n, span=node.span) for n in range(3 if is_lstm else 2)
    )
    if inside is not None:
        if (is_lstm or is_plain) and not backward:
            last = _at_the_end(node, states, first, sizes)
        states = _reversed(node, states) if is_reversed else states
        states = node.call(compare.Where, inside, states, node.scalar(0.0, dtype_of(x)))
    return (states, last, *cells_left)


def _lstm(
    node: NodeContext, index: int, given: Sequence[Expr], *, reverse: bool, rounds: bool
) -> Expr:
    """Return an LSTM with what its gates see of the cell; ``rounds`` means products of bytes."""
    seen = peepholes(node, index)
    is_seen, more = seen is not None, () if seen is None else (seen,)
    attrs = recurrent.Lstm.Attrs(
        reverse=reverse,
        quantize_state=rounds,
        peepholes=is_seen,
        clip=clip(node),
        input_forget=bool(node.integer("input_forget", 0)),
    )
    return node.call(recurrent.Lstm, *given, *more, attrs=attrs)


def _reversed(node: NodeContext, x: Expr) -> Expr:
    """Reverse the steps of each sequence, up to its length."""
    attrs = indexing.ReverseSequence.Attrs(time=0, batch=1)
    return node.call(indexing.ReverseSequence, x, node.input(4), attrs=attrs)


def clip(node: NodeContext) -> float:
    """Return the limit of what activations take of sums of products; 0 if there is none.

    Raises:
        ModelError: The limit is no number above 0.
    """
    if not node.has("clip"):
        return 0.0
    limit = node.number("clip")
    if not 0 < limit < float("inf"):
        raise node.model_error(f"clip={limit} must be a number above 0")
    return limit


def peepholes(node: NodeContext, direction: int) -> Expr | None:
    """Return the weights ``[3 * hidden]`` by which a direction's gates see the cell.

    ``None`` where there are none, or zeros.
    """
    if node.optional(7) is None:
        return None
    known = node.constant_value(7)
    if known is not None and not np.any(known[direction]):
        return None
    return node.folded(node.item(node.input(7), 0, direction))


def has_lengths(node: NodeContext, steps: int) -> bool:
    """Whether a sequence of the batch may be shorter than the steps."""
    known = node.constant_value(4)
    return node.optional(4) is not None and not (known is not None and np.all(known == steps))


def _inside(node: NodeContext, sizes: tuple[int, int, int]) -> Expr | None:
    """Whether a step ``[steps, batch, 1]`` is one of its sequence; ``None`` if all are."""
    steps, batch, _ = sizes
    if not has_lengths(node, steps):
        return None
    lengths = node.cast(node.input(4), DType.INT64)
    stop = extents((steps,))[0]
    attrs = generate.Arange.Attrs(start=0, stop=stop, step=1, dtype=DType.INT64)
    numbers = node.reshape(node.call(generate.Arange, attrs=attrs), (steps, 1, 1))
    return node.call(compare.Less, numbers, node.reshape(lengths, (1, batch, 1)))


def _kept_gates(node: NodeContext, hidden: int) -> Expr:
    """Return gates that keep the state, in ONNX's order."""
    order = (SHUT, 0.0, OPEN, 0.0) if node.op_type == "LSTM" else (OPEN, 0.0, 0.0)
    return node.array(np.repeat(np.array(order, np.float32), hidden))


def _at_the_end(node: NodeContext, states: Expr, first: Expr, sizes: tuple[int, int, int]) -> Expr:
    """Return the state of each sequence's last step; of an empty one the first state."""
    steps, batch, hidden = sizes
    lengths = node.cast(node.input(4), DType.INT64)
    one = node.scalar(1, DType.INT64)
    width = node.reshape(node.size_tensor(batch), ())
    attrs = generate.Arange.Attrs(start=0, stop=extents((batch,))[0], step=1, dtype=DType.INT64)
    row = node.call(binary.Multiply, node.call(binary.Subtract, lengths, one), width)
    places = node.call(binary.Add, row, node.call(generate.Arange, attrs=attrs))
    flat = node.reshape(states, (steps * batch, hidden))
    found = node.call(indexing.Take, flat, places, attrs=indexing.Take.Attrs(axis=0))
    is_any = node.call(compare.GreaterEqual, node.reshape(lengths, (batch, 1)), one)
    return node.call(compare.Where, is_any, found, first)


def initial(node: NodeContext, index: int, direction: int, batch: int, hidden: int) -> Expr:
    """Return the first state of a direction, zeros if none is given.

    Raises:
        ModelError: The one that is given has another shape.
    """
    if node.optional(index) is None:
        return node.full((batch, hidden), 0.0, dtype_of(node.input(0)))
    directions = node.static_shape(1)[0]
    is_batch_first = bool(node.integer("layout", 0))
    each = (batch, directions) if is_batch_first else (directions, batch)
    if not may_be(node.static_shape(index), (*each, hidden)):
        wanted = shape_text((*each, hidden))
        raise node.model_error(
            f"the initial state must have shape {wanted}, got {node.type_of(index)}"
        )
    return node.item(node.input(index), 1 if is_batch_first else 0, direction)


def may_be(shape: Shape, wanted: Shape) -> bool:
    """Whether two shapes are equal, or may be where sizes are open."""
    return len(shape) == len(wanted) and all(map(same_size, shape, wanted))
