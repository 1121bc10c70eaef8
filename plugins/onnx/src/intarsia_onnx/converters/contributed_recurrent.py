# SPDX-License-Identifier: Apache-2.0
"""DynamicQuantizeLSTM of the domain ``com.microsoft``, which ONNX Runtime's quantiser writes.

Weights are real numbers again when the model is compiled. ONNX Runtime rounds what they are
multiplied with to eight bits as well, anew for each product; that is not done here, so that results
are nearer to those of the model before it was quantized.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr

from ..builder import STATIC_HINT
from ..context import NodeContext
from .contributed import DOMAIN
from .recurrent import recurrent

_OPERANDS = 8
"""Operands of LSTM; scale and zero point of both weights follow."""


def dynamic_quantize_lstm(node: NodeContext) -> tuple[Expr, ...]:
    """Convert DynamicQuantizeLSTM, whose weights lie the other way round than those of LSTM."""
    args = [node.optional(index) for index in range(_OPERANDS)]
    for index, scale in ((1, 8), (2, 10)):
        args[index] = _dequantized(node, index, scale)
    return recurrent(node.as_standard("LSTM", args))


def _dequantized(node: NodeContext, index: int, scale: int) -> Expr:
    """Return a weight ``[directions, inputs, 4 * hidden]`` as ``[directions, 4 * hidden, inputs]``.

    Its scale and zero point are those of a direction, or of each column of one.
    """
    weight = node.required_value(index, "a weight")
    factor = node.required_value(scale, "the scale of a weight")
    point = node.constant_value(scale + 1) if node.optional(scale + 1) is not None else None
    if node.optional(scale + 1) is not None and point is None:
        raise node.unsupported("the zero point of a weight is not known", STATIC_HINT)
    if weight.ndim != 3 or weight.dtype.kind not in "iu":
        raise node.model_error(f"a weight must be eight bits of rank 3, got {weight.dtype}")
    factor = _beside(node, factor, weight.shape)
    zero = np.zeros((1, 1, 1)) if point is None else _beside(node, point, weight.shape)
    real = (weight.astype(np.float32) - zero.astype(np.float32)) * factor.astype(np.float32)
    return node.array(np.ascontiguousarray(real.transpose(0, 2, 1)))


def _beside(node: NodeContext, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of a direction, or of its columns, so that they broadcast to a weight."""
    directions, _, columns = shape
    if values.size not in (1, directions, directions * columns):
        raise node.model_error(f"{values.size} numbers do not fit a weight of shape {shape}")
    if values.size == directions * columns:
        return values.reshape(directions, 1, columns)
    return values.reshape(-1, 1, 1)


CONVERTERS = MappingProxyType({f"{DOMAIN}::DynamicQuantizeLSTM": dynamic_quantize_lstm})
