# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: what a state becomes along a sequence, whose length only the run may know.

The part of the gates that the inputs give is an operand, so that one product makes it for all
steps. States and weights are of ``hidden`` columns; rows of a batch are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Size, TensorType, TupleType, Type
from ..tir.buffer import Buffer, Scope
from ..tir.build import allocate, cell, get, let, load, parallel, put, seq, serial
from ..tir.expr import (
    Broadcast,
    Load,
    PrimExpr,
    Ramp,
    cast,
    const,
    equal,
    index,
    intrinsic,
    maximum,
    minimum,
    select,
)
from ..tir.func import PrimFunc
from ..tir.intrinsic import Intrinsic
from ..tir.stmt import Stmt, Store
from ..tir.tensor import extents
from .arrays import Array, sigmoid
from .batch_axis import BATCH_AXES
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import operands, same_size, shape_text

_WHOLE = (DType.INT8, DType.INT16)
"""Element types of the weight of a quantized layer, beside float32 of whole numbers."""

_WIDTHS = (16, 8, 4, 2, 1)
"""Columns of each gate whose sums are in registers together, the widest first."""


@operator("nn.lstm", OpKind.OPAQUE)
class Lstm(Op):
    """A long short-term memory along a sequence.

    Operands: ``x`` ``[steps, batch, 4 * hidden]``, the inputs' part of the gates with all biases;
    the first state ``[batch, hidden]`` and cell ``[batch, hidden]``; and the recurrent weight
    ``[hidden, 4 * hidden]``. Gates lie in ONNX's order: input, output, forget, cell. Results:
    the states of all steps ``[steps, batch, hidden]``, the last state and the last cell.

    With ``quantize_state`` the weight is of whole numbers, a scale for each column ``[4 * hidden]``
    follows it, and each row of the state is rounded to 256 steps before its product.
    """

    fixed_sizes = "the last of every operand: rows of the weight are read by vectors"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``reverse``: from the last step to the first.

        ``quantize_state``: dynamic quantization of the state, with scale and zero point of each
        row; the weight may then be int8 or int16, and what its zero point was is taken off.
        """

        reverse: bool = False
        quantize_state: bool = False

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """States of all steps, the last state and the last cell."""
        x, h, c, r, *scale = operands(cls.name, types, 5 if attrs.quantize_state else 4)
        hidden = _hidden(cls.name, (x, h, c, r))
        weight = r.with_dtype(x.dtype) if attrs.quantize_state and r.dtype in _WHOLE else r
        _check(cls.name, (x, h, c, weight), (x.shape[1], hidden), 4)
        for vector in scale:
            _check_vector(cls.name, "the scale", vector, 4 * hidden)
        return TupleType((x.with_shape((*x.shape[:2], hidden)), h, c))

    @staticmethod
    def reference(
        attrs: Attrs, x: Array, h: Array, c: Array, r: Array, *scale: Array
    ) -> tuple[Array, Array, Array]:
        """Step by step."""
        states, weight = np.empty((*x.shape[:2], r.shape[0]), x.dtype), r.astype(x.dtype)
        for step in _steps(len(x), attrs.reverse):
            if scale:
                levels, factor = _rounded(h)
                total = x[step] + (levels @ weight) * (factor * scale[0])
            else:
                total = x[step] + h @ weight
            i, o, f, g = np.split(total, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            states[step] = h = sigmoid(o) * np.tanh(c)
        return states, h.copy(), c.copy()

    @staticmethod
    def loops(attrs: Attrs, *types: TensorType) -> PrimFunc:
        """Go along the sequence for each row; sums of all gates are in registers together."""
        cells = _buffer("cells", types[2])

        def start(layer: _Layer, row: PrimExpr) -> Stmt:
            given = layer.given[2]
            return layer.over(lambda j, width: _set(cells, row, j, _items(given, row, j, width)))

        def step(layer: _Layer, at: PrimExpr, row: PrimExpr) -> Stmt:
            def update(j: PrimExpr, totals: Sequence[PrimExpr]) -> Stmt:
                i, o, f = (_sigmoid(total) for total in totals[:3])
                old = _items(cells, row, j, totals[0].lanes)
                kept = _set(cells, row, j, f * old + i * _tanh(totals[3]))
                return seq(kept, layer.put(at, row, j, o * _tanh(old)))

            if attrs.quantize_state:
                return _quantized_step(layer, at, row, update)

            def block(j: PrimExpr, width: int) -> Stmt:
                starts = [layer.gate(at, row, gate, j, width) for gate in range(4)]
                last = layer.last(row)
                return layer.products(last, range(4), j, starts, lambda sums: update(j, sums))

            return layer.over(block)

        return _layer("lstm", attrs.reverse, types, (cells,), start, step)


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
        state.
        """

        reverse: bool = False
        linear_before_reset: bool = False

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """States of all steps and the last state."""
        given = operands(cls.name, types, 4)
        x, h, r, bias = given
        hidden = _hidden(cls.name, given[:3])
        _check(cls.name, (x, h, r), (x.shape[1], hidden), 3)
        _check_vector(cls.name, "the bias", bias, 3 * hidden)
        return TupleType((x.with_shape((*x.shape[:2], hidden)), h))

    @staticmethod
    def reference(attrs: Attrs, x: Array, h: Array, r: Array, bias: Array) -> tuple[Array, Array]:
        """Step by step."""
        hidden = r.shape[0]
        states = np.empty((*x.shape[:2], hidden), x.dtype)
        for step in _steps(len(x), attrs.reverse):
            gates = x[step, :, : 2 * hidden] + h @ r[:, : 2 * hidden] + bias[: 2 * hidden]
            update, reset = np.split(sigmoid(gates), 2, axis=1)
            weight, own = r[:, 2 * hidden :], bias[2 * hidden :]
            if attrs.linear_before_reset:
                inner = reset * (h @ weight + own)
            else:
                inner = (reset * h) @ weight + own
            new = np.tanh(x[step, :, 2 * hidden :] + inner)
            states[step] = h = new + update * (h - new)
        return states, h.copy()

    @staticmethod
    def loops(
        attrs: Attrs, x: TensorType, h: TensorType, r: TensorType, bias: TensorType
    ) -> PrimFunc:
        """Go along the sequence for each row; sums of the gates are in registers together."""
        step = _gru_before if attrs.linear_before_reset else _gru_after
        return _layer("gru", attrs.reverse, (x, h, r, bias), (), None, step)


class _Layer(Struct, frozen=True):
    """The buffers of a layer; ``last`` is the state before a step, and after all of them."""

    given: tuple[Buffer, ...]
    weight: Buffer
    states: Buffer
    final: Buffer

    @property
    def hidden(self) -> int:
        return self.weight.shape[0]

    def over(self, block: Callable[[PrimExpr, int], Stmt]) -> Stmt:
        """Do ``block(first, width)`` for all columns of the state."""
        parts: list[Stmt] = []
        done = 0
        for width in _WIDTHS:
            count = (self.hidden - done) // width
            if count:
                parts.append(_blocks(done, count, width, block))
            done += count * width
        return seq(*parts)

    def gate(self, at: PrimExpr, row: PrimExpr, gate: int, j: PrimExpr, width: int) -> PrimExpr:
        """The inputs' part of columns of a gate."""
        return _items(self.given[0], at, row, j + gate * self.hidden, width)

    def put(self, at: PrimExpr, row: PrimExpr, j: PrimExpr, value: PrimExpr) -> Stmt:
        """Write columns of the state after a step."""
        return _set(self.states, at, row, j, value)

    def last(self, row: PrimExpr) -> Callable[[PrimExpr], PrimExpr]:
        """Read elements of the state before the step."""
        return lambda k: load(self.final, row, k)

    def products(
        self,
        state: Callable[[PrimExpr], PrimExpr],
        gates: Sequence[int],
        j: PrimExpr,
        starts: Sequence[PrimExpr],
        finish: Callable[[Sequence[PrimExpr]], Stmt],
    ) -> Stmt:
        """Add a state's products with columns of the gates to ``starts``."""
        width = starts[0].lanes
        sums = [Buffer(f"sum{gate}", (width,), DType.FLOAT32, Scope.REGISTER) for gate in gates]
        current = [_items(buffer, index(0), width) for buffer in sums]

        def one(k: PrimExpr) -> Stmt:
            def add(value: PrimExpr) -> Stmt:
                parts: list[Stmt] = []
                for gate, buffer, total in zip(gates, sums, current, strict=True):
                    column = _items(self.weight, k, j + gate * self.hidden, width)
                    column = cast(column, DType.FLOAT32)
                    parts.append(_set(buffer, index(0), total + _spread(value, width) * column))
                return seq(*parts)

            return let(state(k), add, "state")

        begin = [_set(buffer, index(0), start) for buffer, start in zip(sums, starts, strict=True)]
        return allocate(sums, seq(*begin, serial(self.hidden, one, "k"), finish(current)))


def _reader(buffer: Buffer) -> Callable[[PrimExpr], PrimExpr]:
    """Read elements of a vector."""
    return lambda k: load(buffer, k)


def _rounded(h: Array) -> tuple[Array, Array]:
    """Return each row as whole numbers, and the factor that they are to be multiplied by.

    A row has 256 steps from its smallest to its largest element, 0 among them.
    """
    low, high = np.minimum(h.min(1, keepdims=True), 0), np.maximum(h.max(1, keepdims=True), 0)
    scale = np.where(low == high, np.float32(1), (high - low) / np.float32(255))
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return np.clip(np.rint(h / scale) + zero, 0, 255) - zero, scale


def _quantized_step(
    layer: _Layer,
    at: PrimExpr,
    row: PrimExpr,
    update: Callable[[PrimExpr, Sequence[PrimExpr]], Stmt],
) -> Stmt:
    """Round the state, then add its products to the gates.

    Products of a byte and of a byte less a zero point are whole numbers below 2**16, so sums of
    256 of them, and of more unless all are large, are exact in float32: they are those of int32.
    """
    rounded = Buffer("rounded", (layer.hidden,), DType.FLOAT32, Scope.STACK)
    factor, scales = cell("factor", DType.FLOAT32), layer.given[4]

    def block(j: PrimExpr, width: int) -> Stmt:
        def finish(sums: Sequence[PrimExpr]) -> Stmt:
            totals: list[PrimExpr] = []
            for gate, total in enumerate(sums):
                scale = _items(scales, j + gate * layer.hidden, width) * _spread(get(factor), width)
                totals.append(layer.gate(at, row, gate, j, width) + total * scale)
            return update(j, totals)

        zeros = [_spread(const(0.0, DType.FLOAT32), width)] * 4
        return layer.products(_reader(rounded), range(4), j, zeros, finish)

    return allocate([rounded, factor], seq(_round(layer, row, rounded, factor), layer.over(block)))


def _round(layer: _Layer, row: PrimExpr, rounded: Buffer, factor: Buffer) -> Stmt:
    """Write a row of the state to ``rounded`` and its scale to ``factor``; see :func:`_rounded`."""
    low, high = (cell(name, DType.FLOAT32) for name in ("low", "high"))
    zero = const(0.0, DType.FLOAT32)

    def widen(k: PrimExpr) -> Stmt:
        def both(value: PrimExpr) -> Stmt:
            return seq(put(low, minimum(get(low), value)), put(high, maximum(get(high), value)))

        return let(load(layer.final, row, k), both, "state")

    def with_scale(scale: PrimExpr) -> Stmt:
        start = intrinsic(Intrinsic.ROUND, minimum(maximum(zero - get(low) / scale, 0.0), 255.0))

        def with_zero(point: PrimExpr) -> Stmt:
            def block(j: PrimExpr, width: int) -> Stmt:
                offset = _spread(point, width)
                ratio = _items(layer.final, row, j, width) / _spread(scale, width)
                level = intrinsic(Intrinsic.ROUND, ratio) + offset
                return _set(rounded, j, minimum(maximum(level, 0.0), 255.0) - offset)

            return seq(put(factor, scale), layer.over(block))

        return let(start, with_zero, "zero")

    span = get(high) - get(low)
    scale = select(equal(span, 0.0), const(1.0, DType.FLOAT32), span / 255.0)
    found = serial(layer.hidden, widen, "k")
    body = seq(put(low, zero), put(high, zero), found, let(scale, with_scale, "scale"))
    return allocate([low, high], body)


def _gru_before(layer: _Layer, at: PrimExpr, row: PrimExpr) -> Stmt:
    """A step whose reset gate multiplies the product with the state."""
    bias, hidden = layer.given[3], layer.hidden

    def block(j: PrimExpr, width: int) -> Stmt:
        own = [_items(bias, j + gate * hidden, width) for gate in range(3)]
        starts = [layer.gate(at, row, gate, j, width) + own[gate] for gate in range(2)]

        def finish(sums: Sequence[PrimExpr]) -> Stmt:
            inner = layer.gate(at, row, 2, j, width) + _sigmoid(sums[1]) * sums[2]
            old = _items(layer.final, row, j, width)

            def put(new: PrimExpr) -> Stmt:
                return layer.put(at, row, j, new + _sigmoid(sums[0]) * (old - new))

            return let(_tanh(inner), put, "new")

        return layer.products(layer.last(row), range(3), j, [*starts, own[2]], finish)

    return layer.over(block)


def _gru_after(layer: _Layer, at: PrimExpr, row: PrimExpr) -> Stmt:
    """A step whose reset gate multiplies the state."""
    bias, hidden = layer.given[3], layer.hidden
    update, reset = (
        Buffer(name, (hidden,), DType.FLOAT32, Scope.STACK) for name in ("update", "reset")
    )

    def start(gate: int, j: PrimExpr, width: int) -> PrimExpr:
        return layer.gate(at, row, gate, j, width) + _items(bias, j + gate * hidden, width)

    def gates(j: PrimExpr, width: int) -> Stmt:
        def finish(sums: Sequence[PrimExpr]) -> Stmt:
            old = _items(layer.final, row, j, width)
            kept = _set(reset, j, _sigmoid(sums[1]) * old)
            return seq(_set(update, j, _sigmoid(sums[0])), kept)

        starts = [start(gate, j, width) for gate in range(2)]
        return layer.products(layer.last(row), range(2), j, starts, finish)

    def new(j: PrimExpr, width: int) -> Stmt:
        def finish(sums: Sequence[PrimExpr]) -> Stmt:
            old, part = _items(layer.final, row, j, width), _items(update, j, width)

            def put(value: PrimExpr) -> Stmt:
                return layer.put(at, row, j, value + part * (old - value))

            return let(_tanh(sums[0]), put, "new")

        return layer.products(_reader(reset), (2,), j, [start(2, j, width)], finish)

    return allocate((update, reset), seq(layer.over(gates), layer.over(new)))


def _layer(
    name: str,
    reverse: bool,
    types: tuple[TensorType, ...],
    kept: tuple[Buffer, ...],
    start: Callable[[_Layer, PrimExpr], Stmt] | None,
    step: Callable[[_Layer, PrimExpr, PrimExpr], Stmt],
) -> PrimFunc:
    """Return the loops over rows and steps; ``kept`` are the results behind the last state."""
    given = tuple(_buffer(f"in{number}", type_) for number, type_ in enumerate(types))
    weight = given[3 if len(kept) else 2]
    steps, batch, _ = given[0].shape
    states = Buffer("states", (steps, batch, weight.shape[0]), DType.FLOAT32)
    final = _buffer("final", types[1])
    layer = _Layer(given, weight, states, final)

    def along(row: PrimExpr) -> Stmt:
        def one(number: PrimExpr) -> Stmt:
            def at_step(at: PrimExpr) -> Stmt:
                def keep(j: PrimExpr, width: int) -> Stmt:
                    return _set(final, row, j, _items(states, at, row, j, width))

                return seq(step(layer, at, row), layer.over(keep))

            return let(index(steps) - 1 - number if reverse else number, at_step, "at")

        first = layer.over(lambda j, width: _set(final, row, j, _items(given[1], row, j, width)))
        more = [] if start is None else [start(layer, row)]
        return seq(first, *more, serial(index(steps), one, "step"))

    whole = along(index(0)) if batch == 1 else parallel(batch, along)
    return PrimFunc(name, (*given, states, final, *kept), 2 + len(kept), whole)


def _blocks(first: int, count: int, width: int, block: Callable[[PrimExpr, int], Stmt]) -> Stmt:
    if count == 1:
        return block(index(first), width)
    return serial(count, lambda number: block(number * width + first, width), "block")


def _buffer(name: str, type_: TensorType) -> Buffer:
    return Buffer(name, extents(type_.shape), type_.dtype)


def _items(buffer: Buffer, *place: PrimExpr | int) -> PrimExpr:
    """Read neighbours in the last dimension; the last of ``place`` is how many."""
    *at, width = place
    assert isinstance(width, int)
    return Load(buffer, _place(at, width), buffer.dtype, width)


def _set(buffer: Buffer, *place: PrimExpr) -> Stmt:
    """Write neighbours in the last dimension; the last of ``place`` is the value."""
    *at, value = place
    return Store(buffer, _place(at, value.lanes), value)


def _place(at: Sequence[PrimExpr | int], width: int) -> tuple[PrimExpr, ...]:
    where = [index(part) for part in at]
    return (*where[:-1], where[-1] if width == 1 else Ramp(where[-1], 1, width))


def _spread(value: PrimExpr, width: int) -> PrimExpr:
    return value if width == 1 else Broadcast(value, width, value.dtype)


def _sigmoid(x: PrimExpr) -> PrimExpr:
    return intrinsic(Intrinsic.SIGMOID, x)


def _tanh(x: PrimExpr) -> PrimExpr:
    return intrinsic(Intrinsic.TANH, x)


def _steps(count: int, reverse: bool) -> Sequence[int]:
    return range(count)[::-1] if reverse else range(count)


def _hidden(name: str, given: Sequence[TensorType]) -> int:
    """Return the size of the state, from the recurrent weight, the last operand."""
    weight = given[-1]
    hidden = weight.shape[0] if weight.rank == 2 else 0
    ranks = [type_.rank for type_ in given]
    if ranks != [3, *[2] * (len(given) - 1)] or not isinstance(hidden, int) or hidden < 1:
        shapes = ", ".join(shape_text(type_.shape) for type_ in given)
        raise TypeRuleError(f"{name}: operands {shapes} are no sequence, states and weight")
    return hidden


def _check(name: str, given: Sequence[TensorType], state: tuple[Size, int], gates: int) -> None:
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


BATCH_AXES.refuse("no model of padded batches has needed it: no rule is written", Lstm, Gru)
DERIVATIVES.refuse("training goes through unrolled steps: no rule is written", Lstm, Gru)
INTEGER_FORMS.refuse("states are fed back, and gates need real functions", Lstm, Gru)
