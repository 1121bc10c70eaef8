# SPDX-License-Identifier: Apache-2.0
"""Default loops of an LSTM that multiplies bytes, and which layers become one."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Call, Var, call, constant, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.recurrent import Lstm
from intarsia_ir.tir.interp import run as run_kernel
from intarsia_loops.cpu.byte_lstm import ByteLstm, byte_lstm
from intarsia_loops.cpu.int8x4 import pack_int8x4_dense
from intarsia_loops.cpu.packed_operands import Int8x4
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType

BYTES = Int8x4(load=lambda first: first, add=lambda total, left, right: total + left * right)
"""Some instruction that multiplies bytes without sign."""


def layer(weight: np.ndarray, *, quantize_state: bool = True) -> Call:
    hidden = len(weight)
    shapes = {"x": (2, 1, 4 * hidden), "h": (1, hidden), "c": (1, hidden)}
    given = [Var(name, TensorType(shape, DType.FLOAT32)) for name, shape in shapes.items()]
    scale = [constant(np.ones(4 * hidden, np.float32))] if quantize_state else []
    attrs = Lstm.Attrs(quantize_state=quantize_state)
    return call(Lstm, *given, constant(weight), *scale, attrs=attrs)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_default_loops_are_those_of_the_reference(batch: int, reverse: bool) -> None:
    hidden, rng = 16, np.random.default_rng(batch)
    x = rng.standard_normal((3, batch, 4 * hidden), np.float32)
    h, c = (rng.standard_normal((batch, hidden), np.float32) for _ in range(2))
    weight = rng.integers(-128, 128, (hidden, 4 * hidden)).astype(np.int8)
    scale = rng.random(4 * hidden, np.float32) / 500
    sums = weight.sum(axis=0, dtype=np.int32)
    given = (x, h, c, pack_int8x4_dense(weight, 32), scale, sums)
    attrs = ByteLstm.Attrs(reverse=reverse)
    types = [TensorType(each.shape, DType(each.dtype.name)) for each in given]
    kernel = ByteLstm.loops(attrs, *types)
    made = [np.zeros(each.shape, np.float32) for each in kernel.output_params]
    run_kernel(kernel, *given, *made)
    wanted = Lstm.reference(
        Lstm.Attrs(reverse=reverse, quantize_state=True), x, h, c, weight, scale
    )
    for found, packed, expected in zip(
        made, ByteLstm.reference(attrs, *given), wanted, strict=True
    ):
        np.testing.assert_array_equal(packed, expected)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("weight", "quantize_state", "is_made"),
    [
        (np.ones((16, 64), np.int8), True, True),
        (np.ones((16, 64), np.int16), True, False),
        (np.ones((16, 64), np.float32), False, False),
        (np.ones((6, 24), np.int8), True, False),  # six bytes are no whole words
        (np.ones((4, 16), np.int8), True, False),  # 16 columns are no panel of 64
    ],
)
def test_which_layers_multiply_bytes(
    weight: np.ndarray, quantize_state: bool, is_made: bool
) -> None:
    node = layer(weight, quantize_state=quantize_state)
    assert byte_lstm(node, node.args, CpuTiling(16, 14)) is None  # a machine without any
    made = byte_lstm(node, node.args, CpuTiling(16, 14, int8x4=BYTES))
    assert (made is not None) == is_made
    if made is not None:
        assert made.type == node.type
        assert tensor_type(made.args[3]).shape == (1, 4, 64)
