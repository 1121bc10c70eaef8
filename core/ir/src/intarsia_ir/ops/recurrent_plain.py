# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers without gates, ONNX's ``RNN``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, TupleType, Type
from ..tir.build import seq
from ..tir.expr import PrimExpr, maximum
from ..tir.func import PrimFunc
from ..tir.stmt import Stmt
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .recurrent import check_clip, check_layer, clipped, hidden_size, step_numbers
from .recurrent_loops import Layer, items, layer_loops, tanh_of
from .recurrent_rows import Group, RowTile
from .type_rules import operands


@operator("nn.rnn", OpKind.OPAQUE)
class Rnn(Op):
    """A plain recurrent layer: the state is a function of the input and of the state before.

    Operands: ``x`` ``[steps, batch, hidden]``, the inputs' part with all biases; the first state
    ``[batch, hidden]``; and the recurrent weight ``[hidden, hidden]``. Results: the states of all
    steps ``[steps, batch, hidden]`` and the last state.
    """

    fixed_sizes = "the last of every operand: rows of the weight are read by vectors"

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``reverse``: from the last step to the first; ``activation``: ``tanh`` or ``relu``;
        ``clip``: limits what it takes, on both sides; 0 is no limit.
        """

        reverse: bool = False
        activation: str = "tanh"
        clip: float = 0.0

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TupleType:
        """States of all steps and the last state."""
        x, h, r = operands(cls.name, types, 3)
        if attrs.activation not in ("tanh", "relu"):
            raise TypeRuleError(f"{cls.name}: activation '{attrs.activation}' is no tanh or relu")
        check_clip(cls.name, attrs.clip)
        check_layer(cls.name, (x, h, r), (x.shape[1], hidden_size(cls.name, (x, h, r))), 1)
        return TupleType((x, h))

    @staticmethod
    def reference(attrs: Attrs, x: Array, h: Array, r: Array) -> tuple[Array, Array]:
        """Step by step."""
        states = np.empty_like(x)
        for step in step_numbers(len(x), attrs.reverse):
            total = clipped(attrs.clip, x[step] + h @ r)
            h = np.tanh(total) if attrs.activation == "tanh" else np.maximum(total, 0)
            states[step] = h
        return states, h.copy()

    @staticmethod
    def loops(attrs: Attrs, *types: TensorType) -> PrimFunc:
        """Go along the sequence for each row; sums of columns are in registers together."""
        return Rnn.tiled(RowTile(), attrs, *types)

    @staticmethod
    def tiled(tile: RowTile, attrs: Attrs, *types: TensorType) -> PrimFunc:
        """The loops for rows that go along together."""
        step = partial(_step, is_tanh=attrs.activation == "tanh")
        return layer_loops("rnn", attrs.reverse, types, (), None, step, tile, attrs.clip)


def _step(layer: Layer, at: PrimExpr, group: Group, *, is_tanh: bool) -> Stmt:
    """A step of a layer without gates.

    Four vectors of columns are accumulated together: one alone would wait for the latency of each
    multiply-add.
    """

    def columns(j: PrimExpr, width: int, count: int) -> Stmt:
        def start(row: PrimExpr, number: int) -> PrimExpr:
            return items(layer.given[0], at, row, j + number * width, width)

        def one(row: PrimExpr, j: PrimExpr, sums: Sequence[PrimExpr]) -> Stmt:
            given = map(layer.limited, sums)
            new = [tanh_of(total) if is_tanh else maximum(total, 0.0) for total in given]
            return seq(*(layer.put(at, row, j + n * width, value) for n, value in enumerate(new)))

        return layer.updates(group, range(count), j, width, start, one, apart=width)

    return layer.over_vectors(layer.hidden, columns)


DERIVATIVES.refuse("training goes through unrolled steps: no rule is written", Rnn)
INTEGER_FORMS.refuse("states are fed back, and a function is real", Rnn)
