# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM, against ONNX Runtime with a thread for each row of the batch.

Its threads share a scale between the rows that they hold; with a row each, it is that of the row.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError

from .contributed_cases import DOMAIN, Case, Const, expected, imported

RNG = np.random.default_rng(7)
STEPS, SIZE, HIDDEN = 12, 6, 16


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def lstm(
    *,
    batch: int = 3,
    direction: str = "forward",
    signed: bool = True,
    columns: bool = False,
    bias: bool = True,
    lengths: list[int] | None = None,
    initial: bool = False,
    peepholes: np.ndarray | None = None,
    outputs: tuple[int, ...] = (0, 1, 2),
    open_sizes: bool = False,
    **attrs: object,
) -> Case:
    """A node with random weights."""
    ways = 2 if direction == "bidirectional" else 1
    dtype = np.int8 if signed else np.uint8
    shape = (ways, 4 * HIDDEN) if columns else (ways,)
    parameters: list[Const] = []
    for point in (130, 121):
        zero = np.full(shape, 0 if signed else point, dtype)
        scale = RNG.uniform(0.5, 1.5, shape) * 0.005
        parameters += [Const(scale.astype(np.float32)), Const(zero)]
    low = -127 if signed else 0
    weights = [
        Const(RNG.integers(low, low + 255, (ways, rows, 4 * HIDDEN)).astype(dtype))
        for rows in (SIZE, HIDDEN)
    ]
    states = [Const(floats(ways, batch, HIDDEN) * 0.3) for _ in range(2)] if initial else [None] * 2
    operands = (
        floats(STEPS, batch, SIZE),
        *weights,
        Const(floats(ways, 8 * HIDDEN) * 0.1) if bias else None,
        None if lengths is None else Const(np.array(lengths, np.int32)),
        *states,
        None if peepholes is None else Const(peepholes),
        *parameters,
    )
    attrs |= {"direction": direction, "hidden_size": HIDDEN}
    opened = {0: {0: "T"} if initial else {0: "T", 1: "B"}} if open_sizes else {}
    return Case("DynamicQuantizeLSTM", operands, attrs, outputs, DOMAIN, opened)


CASES = [
    *(
        lstm(direction=way, signed=signed, columns=columns, open_sizes=True)
        for way, signed, columns in product(
            ("forward", "reverse", "bidirectional"), (True, False), (True, False)
        )
    ),
    lstm(batch=1, open_sizes=True),
    lstm(bias=False, open_sizes=True),
    lstm(initial=True, open_sizes=True),
    lstm(initial=True, direction="bidirectional", columns=True),
    lstm(lengths=[5, 9, 3]),
    lstm(lengths=[12, 12, 12]),
    lstm(lengths=[5, 9, 3], direction="reverse"),
    lstm(lengths=[12, 9, 3], direction="bidirectional", signed=False),
    *(
        lstm(lengths=[5, 9, 3], direction=way)._replace(open={0: {0: "T"}})
        for way in ("forward", "reverse", "bidirectional")
    ),
    *(
        lstm(direction=way, peepholes=floats(2 if way == "bidirectional" else 1, 3 * HIDDEN) * 0.3)
        for way in ("reverse", "bidirectional")
    ),
    lstm(peepholes=floats(1, 3 * HIDDEN), open_sizes=True),
    lstm(peepholes=floats(1, 3 * HIDDEN), activations=["HardSigmoid", "Softsign", "Tanh"]),
    lstm(activations=["Sigmoid", "Tanh", "Relu"]),
    lstm(activations=["HardSigmoid", "Softsign", "Tanh"]),
    lstm(outputs=(0,)),
    lstm(outputs=(0, 2)),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_results_are_those_of_onnx_runtime(number):
    one = CASES[number]
    wanted = expected(one, threads=4)
    for module in imported(one):
        for ours, theirs in zip(evaluate(module.main, one.feeds), wanted, strict=True):
            # A rounding of 1e-7 may move an element of the state by one of 255 steps.
            np.testing.assert_allclose(ours, theirs, atol=4e-3)
            assert np.median(np.abs(ours - theirs)) < 1e-6


def test_the_product_with_the_sequence_is_of_bytes():
    found = [call.name for call in calls(from_onnx(lstm().model()).main)]
    assert found.count("qnn.matmul_integer") == 1
    assert found.count("nn.lstm") == 1


def test_scales_of_other_shapes_are_a_fault_of_the_model():
    one = lstm()
    operands = list(one.operands)
    operands[8] = Const(floats(2))
    with pytest.raises(ModelError, match="input 8 must have shape"):
        from_onnx(one._replace(operands=tuple(operands)).model())
