# SPDX-License-Identifier: Apache-2.0
"""Bytes halfway between two results: rounded as ONNX Runtime does, all pairs of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnxruntime as ort
import pytest
from tests.integration.frontend.test_onnx_counted import F32, typed
from tests.unit.frontend.onnx_models import node

import intarsia

FIRST, SECOND = (bytes_.ravel() for bytes_ in np.indices((256, 256)).astype(np.uint8))
HALVES = [(0.25, 0.5), (0.125, 1.0), (0.5, 4.0)]
"""Scales of what is read and of the result: they and their share are powers of two."""
SHARES = [*HALVES, (0.1, 0.2), (0.3, 1.2)]
"""Scales of which only the share is exact, by which sums multiply."""
WINDOW = {"kernel_shape": [2, 2], "strides": [2, 2]}


def quantized(
    op: str, operands: Sequence[np.ndarray], scales: tuple[float, float], zero: int,
    attrs: Mapping[str, object],
) -> bytes:  # fmt: skip
    """Return a model that dequantizes its inputs, calls ``op`` and quantizes the result."""
    dtype = operands[0].dtype.type
    names = [f"x{number}" for number in range(len(operands))]
    weights = {"s": F32(scales[0]), "z": dtype(3), "t": F32(scales[1]), "u": dtype(zero)}
    made = [node("DequantizeLinear", f"{name} s z", f"f{name}") for name in names]
    made += [node(op, " ".join(f"f{name}" for name in names), "r", **attrs)]
    made += [node("QuantizeLinear", "r t u")]
    inputs = {name: (dtype, x.shape) for name, x in zip(names, operands, strict=True)}
    return typed(made, inputs, weights=weights, opset=17)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 7, 8])
@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "scales"),
    [
        *(("Add", [(65536,)] * 2, {}, scales) for scales in SHARES),
        *(("AveragePool", [(1, 64, 32, 32)], WINDOW, scales) for scales in HALVES),
        *(("Mul", [(65536,)] * 2, {}, scales) for scales in HALVES),
    ],
)
def test_ties_are_rounded_behind_the_zero_point(
    op: str, shapes: Sequence[tuple[int, ...]], attrs: Mapping[str, object],
    scales: tuple[float, float], zero: int, dtype: type[np.integer],
) -> None:  # fmt: skip
    pairs = zip((FIRST, SECOND)[: len(shapes)], shapes, strict=True)
    operands = [x.view(dtype).reshape(shape) for x, shape in pairs]
    data = quantized(op, operands, scales, zero, attrs)
    feed = {f"x{number}": x for number, x in enumerate(operands)}
    (wanted,) = ort.InferenceSession(data).run(None, feed)
    with intarsia.build(data, "llvm").load(threads=1) as executable:
        (found,) = executable.run(feed).values()
    np.testing.assert_array_equal(found, wanted)
