# SPDX-License-Identifier: Apache-2.0
"""Two recurrent layers as one kernel: which are paired, and what their loops compute."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import (
    Call,
    Expr,
    Function,
    Let,
    Var,
    call,
    constant,
    get_item,
    make_tuple,
)
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.recurrent_rows import RowTile
from intarsia_ir.ops.shape import Concatenate
from intarsia_ir.tir.expr import IntImm
from intarsia_ir.tir.forward import procedures
from intarsia_ir.tir.interp import run as run_kernel
from intarsia_ir.tir.stmt import Invoke
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.packed_layers import PackedLayer, layer_deferred
from intarsia_loops.cpu.paired_layers import PackedPair, _procedures, pair_layers
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import variable

STEPS, BATCH, HIDDEN = 3, 2, 20


def layer(x: Expr, *, reverse: bool = False, kind: str = "lstm") -> Call:
    gates = 4 if kind == "lstm" else 3
    weight = np.ones((HIDDEN, gates * HIDDEN), np.float32)
    state = constant(np.zeros((BATCH, HIDDEN), np.float32))
    packed = constant(layer_deferred(weight, gates, 16).array())
    behind = [packed] if gates == 4 else [packed, constant(np.zeros(gates * HIDDEN, np.float32))]
    states = [state] * (gates - 2)
    attrs = PackedLayer.Attrs(kind=kind, reverse=reverse)
    return call(PackedLayer, x, *states, *behind, attrs=attrs)


def data(gates: int = 4) -> Var:
    return Var("x", TensorType((STEPS, BATCH, gates * HIDDEN), DType.FLOAT32))


def names(body: Expr, *params: Var) -> list[str]:
    function = pair_layers(Function(params, body))
    assert function.body.type == body.type
    return [node.name for node in calls(function) if node.name.startswith("cpu.recurrent")]


def stacked(*layers: Expr) -> Expr:
    """Results of layers as the gates of the next one."""
    states = [get_item(layers[n % len(layers)], 0) for n in range(4)]
    return call(Concatenate, *states, attrs=Concatenate.Attrs(axis=2))


def test_directions_of_each_layer_are_a_pair() -> None:
    x = data()
    first = stacked(layer(x), layer(x, reverse=True))
    second = stacked(layer(first), layer(first, reverse=True))
    assert names(second, x) == ["cpu.recurrent_pair"] * 2


def test_layers_that_need_each_other_are_none() -> None:
    x = data()
    assert names(stacked(layer(stacked(layer(x)))), x) == ["cpu.recurrent"] * 2


def test_the_last_of_three_is_alone() -> None:
    x = data()
    body = stacked(layer(x), layer(x), layer(x, reverse=True))
    assert names(body, x) == ["cpu.recurrent_pair", "cpu.recurrent"]


def test_other_kinds_are_none() -> None:
    x, y = data(), data(3)
    body = make_tuple([get_item(layer(x), 0), get_item(layer(y, kind="gru"), 0)])
    assert names(body, x, y) == ["cpu.recurrent"] * 2


def test_what_a_variable_stands_for_may_be_needed() -> None:
    x, bound = data(), Var("bound", layer(data()).type)
    first, second = layer(x), layer(stacked(bound))
    result = get_item(second, 0)
    body = Let(bound, first, result, result.type)
    assert names(body, x) == ["cpu.recurrent"] * 2


@pytest.mark.parametrize("tile", [RowTile(), RowTile(4, 16, 320), RowTile(4, 8, 40, lanes=4)])
@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_loops_are_those_of_the_reference(kind: str, batch: int, tile: RowTile) -> None:
    rng, gates = np.random.default_rng(batch), 4 if kind == "lstm" else 3
    one, other = (PackedLayer.Attrs(kind=kind, reverse=reverse) for reverse in (True, False))
    given: list[np.ndarray] = []
    for _ in range(2):
        weight = rng.standard_normal((HIDDEN, gates * HIDDEN), np.float32) / 4
        given.append(rng.standard_normal((STEPS, batch, gates * HIDDEN), np.float32))
        given += [rng.standard_normal((batch, HIDDEN), np.float32) for _ in range(gates - 2)]
        given.append(layer_deferred(weight, gates, 16).array())
        given += [] if gates == 4 else [rng.standard_normal(gates * HIDDEN, np.float32)]
    types = [TensorType(each.shape, DType(each.dtype.name)) for each in given]
    attrs = PackedPair.Attrs(one=one, other=other)
    kernel = PackedPair.tiled(tile, attrs, *types)
    made = [np.zeros(each.shape, np.float32) for each in kernel.output_params]
    run_kernel(kernel, *given, *made)
    wanted = PackedPair.reference(attrs, *given)
    assert PackedPair.type_rule(attrs, *types).fields == tuple(
        TensorType(each.shape, DType.FLOAT32) for each in wanted
    )
    for found, expected in zip(made, wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_pairs_of_the_same_types_share_procedures() -> None:
    """Both directions of both layers call one procedure for a row alone, and one for several."""
    steps, batch = variable("S"), variable("B")
    shapes = [(steps, batch, 80), (batch, HIDDEN), (batch, HIDDEN), (2, 4, HIDDEN, 16)]
    types = [TensorType(shape, DType.FLOAT32) for shape in shapes]
    one, other = (PackedLayer.Attrs(kind="lstm", reverse=reverse) for reverse in (False, True))
    kernels = [
        PackedPair.tiled(RowTile(4, 16, 320), PackedPair.Attrs(one=a, other=b), *types, *types)
        for a, b in ((one, other), (other, one))
    ]
    name = "rows_lstm_steps_batch_80_4_16_320_32"
    called = [stmt for stmt in statements(kernels[0].body) if isinstance(stmt, Invoke)]
    assert [call.function for call in called] == [f"{name}_{n}" for n in (0, 0, 1, 1)]
    reverse = [call.values[2] for call in called]
    assert [value.value for value in reverse if isinstance(value, IntImm)] == [0, 1, 0, 1]
    assert [procedure.name for procedure in procedures(kernels)] == [f"{name}_0", f"{name}_1"]


def test_procedures_of_few_lengths_are_kept() -> None:
    attrs = PackedLayer.Attrs(kind="lstm")
    for steps in range(1, 20):
        shapes = [(steps, 2, 80), (2, HIDDEN), (2, HIDDEN), (2, 4, HIDDEN, 16)]
        types = [TensorType(shape, DType.FLOAT32) for shape in shapes]
        PackedPair.tiled(
            RowTile(4, 16, 320), PackedPair.Attrs(one=attrs, other=attrs), *types, *types
        )
    assert _procedures.cache_info().currsize <= 16
