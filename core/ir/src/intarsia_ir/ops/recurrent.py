# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: what a state becomes along a sequence, whose length only the run may know.

The part of the gates that the inputs give is an operand, so that one product makes it for all
steps. States and weights are of ``hidden`` columns; rows of a batch are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Size, TensorType, TupleType, Type
from ..tir.build import seq
from ..tir.expr import PrimExpr, const
from ..tir.func import PrimFunc
from ..tir.stmt import Stmt
from .arrays import Array, sigmoid
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .recurrent_gru import gru_after, gru_before
from .recurrent_loops import (
    Layer,
    Update,
    buffer_of,
    flushed,
    items,
    layer_loops,
    set_items,
    sigmoid_of,
    spread,
    tanh_of,
)
from .recurrent_quantized import quantized_step
from .recurrent_rows import Group, RowTile
from .type_rules import operands, same_size, shape_text

_WHOLE = (DType.INT8, DType.INT16)
"""Element types of the weight of a quantized layer, beside float32 of whole numbers."""


@operator("nn.lstm", OpKind.OPAQUE)
class Lstm(Op):
    """A long short-term memory along a sequence.

    Operands: ``x`` ``[steps, batch, 4 * hidden]``, the inputs' part of the gates with all biases;
    the first state ``[batch, hidden]`` and cell ``[batch, hidden]``; and the recurrent weight
    ``[hidden, 4 * hidden]``. Gates lie in ONNX's order: input, output, forget, cell. Results:
    the states of all steps ``[steps, batch, hidden]``, the last state and the last cell.

    With ``quantize_state`` the weight is of whole numbers, a scale for each column ``[4 * hidden]``
    follows it, and each row of the state is rounded to 256 steps before its product. With
    ``peepholes`` the weights of the cell ``[3 * hidden]`` come last: the cell before the step goes
    into the input and forget gates, the cell after it into the output gate.
    """

    fixed_sizes = "the last of every operand: rows of the weight are read by vectors"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``reverse``: from the last step to the first.

        ``quantize_state``: dynamic quantization of the state, with scale and zero point of each
        row; the weight may then be int8 or int16, and what its zero point was is taken off.

        ``peepholes``: gates see the cell, by weights in the order input, output, forget.

        ``clip``: limits what sigmoid and tanh take, on both sides, but not of the cell; 0 is no
        limit. ``input_forget``: the forget gate is 1 less the input gate.
        """

        reverse: bool = False
        quantize_state: bool = False
        peepholes: bool = False
        clip: float = 0.0
        input_forget: bool = False

        @property
        def has_plain_gates(self) -> bool:
            """Whether each gate is a function of its own sum of products alone."""
            return not (self.peepholes or self.clip or self.input_forget)

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """States of all steps, the last state and the last cell."""
        count = 4 + attrs.quantize_state + attrs.peepholes
        x, h, c, r, *vectors = operands(cls.name, types, count)
        check_clip(cls.name, attrs.clip)
        hidden = hidden_size(cls.name, (x, h, c, r))
        weight = r.with_dtype(x.dtype) if attrs.quantize_state and r.dtype in _WHOLE else r
        check_layer(cls.name, (x, h, c, weight), (x.shape[1], hidden), 4)
        if attrs.peepholes:
            _check_vector(cls.name, "the weight of the cell", vectors.pop(), 3 * hidden)
        for scale in vectors:
            _check_vector(cls.name, "the scale", scale, 4 * hidden)
        return TupleType((x.with_shape((*x.shape[:2], hidden)), h, c))

    @staticmethod
    def reference(
        attrs: Attrs, x: Array, h: Array, c: Array, r: Array, *vectors: Array
    ) -> tuple[Array, Array, Array]:
        """Step by step."""
        own = np.split(vectors[-1], 3) if attrs.peepholes else (np.float32(0),) * 3
        states, weight = np.empty((*x.shape[:2], r.shape[0]), x.dtype), r.astype(x.dtype)
        for step in step_numbers(len(x), attrs.reverse):
            if attrs.quantize_state:
                levels, factor = _rounded(h)
                total = x[step] + (levels @ weight) * (factor * vectors[0])
            else:
                total = x[step] + h @ weight
            i, o, f, g = np.split(total, 4, axis=1)
            i = sigmoid(clipped(attrs.clip, i + own[0] * c))
            f = 1 - i if attrs.input_forget else sigmoid(clipped(attrs.clip, f + own[2] * c))
            c = f * c + i * np.tanh(clipped(attrs.clip, g))
            states[step] = h = sigmoid(clipped(attrs.clip, o + own[1] * c)) * np.tanh(c)
        return states, h.copy(), c.copy()

    @staticmethod
    def loops(attrs: Attrs, *types: TensorType) -> PrimFunc:
        """Go along the sequence for each row; sums of all gates are in registers together."""
        return Lstm.tiled(RowTile(), attrs, *types)

    @staticmethod
    def tiled(
        tile: RowTile, attrs: Attrs, *types: TensorType, reverse: PrimExpr | None = None
    ) -> PrimFunc:
        """The loops for rows that go along together; ``reverse`` where the run says it."""
        step = quantized_step if attrs.quantize_state else _gates_step
        return lstm_loops("lstm", types, step, tile, attrs, reverse)


def lstm_loops(
    name: str,
    types: tuple[TensorType, ...],
    step: Callable[[Layer, PrimExpr, Group, Update], Stmt],
    tile: RowTile,
    attrs: Lstm.Attrs,
    reverse: PrimExpr | None = None,
) -> PrimFunc:
    """Return the loops of an LSTM over rows and steps.

    Args:
        name: Of the function.
        types: Of the operands, the inputs' part of the gates, state and cell in front.
        step: ``step(layer, at, group, update)``: does ``update`` with the gates of all columns.
        tile: Rows that go along together.
        attrs: Of the LSTM; with ``peepholes`` their weight is the last operand.
        reverse: 1 from the last step to the first, or 0; ``None`` if the attributes say it.
    """
    cells = buffer_of("cells", types[2])

    def start(layer: Layer, row: PrimExpr) -> Stmt:
        given = layer.given[2]
        return layer.over(lambda j, width: set_items(cells, row, j, items(given, row, j, width)))

    def along(layer: Layer, at: PrimExpr, group: Group) -> Stmt:
        def update(row: PrimExpr, j: PrimExpr, totals: Sequence[PrimExpr]) -> Stmt:
            width = totals[0].lanes
            cell = items(cells, row, j, width)

            def gate(number: int) -> PrimExpr:
                total = totals[number]
                if attrs.peepholes:
                    total = total + cell * items(layer.given[-1], j + number * layer.hidden, width)
                return sigmoid_of(layer.limited(total))

            i, o = gate(0), gate(1)
            one = spread(const(1.0, DType.FLOAT32), width)
            f = one - i if attrs.input_forget else gate(2)
            new = tanh_of(layer.limited(totals[3]))
            kept = set_items(cells, row, j, flushed(f * cell + i * new))
            return seq(kept, layer.put(at, row, j, flushed(o * tanh_of(cell))))

        return step(layer, at, group, update)

    backwards = attrs.reverse if reverse is None else reverse
    return layer_loops(name, backwards, types, (cells,), start, along, tile, attrs.clip)


def _gates_step(layer: Layer, at: PrimExpr, group: Group, update: Update) -> Stmt:
    """Products of states with columns of all gates at once, and what becomes of these."""

    def block(j: PrimExpr, width: int) -> Stmt:
        def start(row: PrimExpr, gate: int) -> PrimExpr:
            return layer.gate(at, row, gate, j, width)

        return layer.updates(group, range(4), j, width, start, update)

    return layer.over(block)


@operator("nn.gru", OpKind.OPAQUE)
class Gru(Op):
    """A layer of gated recurrent units along a sequence.

    Operands: ``x`` ``[steps, batch, 3 * hidden]``, the inputs' part of the gates with their
    biases; the first state ``[batch, hidden]``; the recurrent weight ``[hidden, 3 * hidden]``; and
    the recurrent bias ``[3 * hidden]``. Gates lie in ONNX's order: update, reset, new. Results:
    the states of all steps ``[steps, batch, hidden]`` and the last state.
    """

    fixed_sizes = "the last of every operand: rows of the weight are read by vectors"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``reverse``: from the last step to the first.

        ``linear_before_reset``: the reset gate multiplies the product with the state, not the
        state. ``clip``: limits what sigmoid and tanh take, on both sides; 0 is no limit.
        """

        reverse: bool = False
        linear_before_reset: bool = False
        clip: float = 0.0

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """States of all steps and the last state."""
        given = operands(cls.name, types, 4)
        x, h, r, bias = given
        check_clip(cls.name, attrs.clip)
        hidden = hidden_size(cls.name, given[:3])
        check_layer(cls.name, (x, h, r), (x.shape[1], hidden), 3)
        _check_vector(cls.name, "the bias", bias, 3 * hidden)
        return TupleType((x.with_shape((*x.shape[:2], hidden)), h))

    @staticmethod
    def reference(attrs: Attrs, x: Array, h: Array, r: Array, bias: Array) -> tuple[Array, Array]:
        """Step by step."""
        hidden = r.shape[0]
        states = np.empty((*x.shape[:2], hidden), x.dtype)
        for step in step_numbers(len(x), attrs.reverse):
            gates = x[step, :, : 2 * hidden] + h @ r[:, : 2 * hidden] + bias[: 2 * hidden]
            update, reset = np.split(sigmoid(clipped(attrs.clip, gates)), 2, axis=1)
            weight, own = r[:, 2 * hidden :], bias[2 * hidden :]
            if attrs.linear_before_reset:
                inner = reset * (h @ weight + own)
            else:
                inner = (reset * h) @ weight + own
            new = np.tanh(clipped(attrs.clip, x[step, :, 2 * hidden :] + inner))
            states[step] = h = new + update * (h - new)
        return states, h.copy()

    @staticmethod
    def loops(
        attrs: Attrs, x: TensorType, h: TensorType, r: TensorType, bias: TensorType
    ) -> PrimFunc:
        """Go along the sequence for each row; sums of the gates are in registers together."""
        return Gru.tiled(RowTile(), attrs, x, h, r, bias)

    @staticmethod
    def tiled(
        tile: RowTile, attrs: Attrs, *types: TensorType, reverse: PrimExpr | None = None
    ) -> PrimFunc:
        """The loops for rows that go along together; ``reverse`` where the run says it."""
        step = gru_before if attrs.linear_before_reset else gru_after
        backwards = attrs.reverse if reverse is None else reverse
        return layer_loops("gru", backwards, types, (), None, step, tile, attrs.clip)


def _rounded(h: Array) -> tuple[Array, Array]:
    """Return each row as whole numbers, and the factor that they are to be multiplied by.

    A row has 256 steps from its smallest to its largest element, 0 among them.
    """
    low, high = np.minimum(h.min(1, keepdims=True), 0), np.maximum(h.max(1, keepdims=True), 0)
    scale = np.where(low == high, np.float32(1), (high - low) / np.float32(255))
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.clip(np.rint(h / scale) + zero, 0, 255) - zero, scale


def clipped(clip: float, x: Array) -> Array:
    """Elements within ``clip`` on both sides; all of them as they are if it is 0."""
    return np.clip(x, np.float32(-clip), np.float32(clip)) if clip else x


def check_clip(name: str, clip: float) -> None:
    """Check the limit of what functions of gates take."""
    if not 0 <= clip < math.inf:
        raise TypeRuleError(f"{name}: clip={clip} is no limit")


def step_numbers(count: int, reverse: bool) -> Sequence[int]:
    """Return the numbers of the steps in the order in which they are taken."""
    return range(count)[::-1] if reverse else range(count)


def hidden_size(name: str, given: Sequence[TensorType]) -> int:
    """Return the size of the state, from the recurrent weight, the last operand."""
    weight = given[-1]
    hidden = weight.shape[0] if weight.rank == 2 else 0
    ranks = [type_.rank for type_ in given]
    if ranks != [3, *[2] * (len(given) - 1)] or not isinstance(hidden, int) or hidden < 1:
        shapes = ", ".join(shape_text(type_.shape) for type_ in given)
        raise TypeRuleError(f"{name}: operands {shapes} are no sequence, states and weight")
    return hidden


def check_layer(
    name: str, given: Sequence[TensorType], state: tuple[Size, int], gates: int
) -> None:
    """Check the sizes of the gates, the states and the weight against one another."""
    x, *states, weight = given
    if {type_.dtype for type_ in given} != {DType.FLOAT32}:
        found = ", ".join(str(type_) for type_ in given)
        raise TypeRuleError(f"{name}: takes float32, got {found}")
    wide = gates * state[1]
    right = x.shape[2] == wide == weight.shape[1]
    for found in states:
        right = right and found.shape[1] == state[1] and same_size(found.shape[0], state[0])
    if not right:
        shapes = ", ".join(shape_text(type_.shape) for type_ in given)
        raise TypeRuleError(f"{name}: operands {shapes} do not go together")


def _check_vector(name: str, what: str, vector: TensorType, count: int) -> None:
    if vector.shape != (count,) or vector.dtype is not DType.FLOAT32:
        raise TypeRuleError(f"{name}: {what} is {vector}, not one of {count} elements")


DERIVATIVES.refuse("training goes through unrolled steps: no rule is written", Lstm, Gru)
INTEGER_FORMS.refuse("states are fed back, and gates need real functions", Lstm, Gru)
