# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that no compiled function has: products along an axis, determinants, shifts."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.ops.arrays import widen

from ..tensors import array_type
from .call import NumpyCall


def cum_prod(call: NumpyCall, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Products of the elements up to each one, along a dimension."""
    along = call.normal_axis(int(axis.reshape(())), x.ndim)
    moved = np.moveaxis(x, along, 0)
    ordered = moved[::-1] if call.integer("reverse", 0) else moved
    product = np.cumprod(ordered, axis=0, dtype=x.dtype)
    if call.integer("exclusive", 0):
        product = np.concatenate([np.ones_like(product[:1]), product[:-1]])
    product = product[::-1] if call.integer("reverse", 0) else product
    return np.ascontiguousarray(np.moveaxis(product, 0, along))


def det(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Determinants of square matrices in the last two dimensions."""
    return np.asarray(np.linalg.det(widen(x))).astype(x.dtype)


def einsum(call: NumpyCall, *operands: np.ndarray) -> np.ndarray:
    """Sum of products by an equation; a letter that is there twice in an operand is a diagonal."""
    equation = call.string("equation").replace(" ", "")
    result = np.einsum(equation, *(widen(x) for x in operands), optimize=len(operands) > 2)
    return np.array(result).astype(operands[0].dtype)


def pad(
    call: NumpyCall,
    x: np.ndarray,
    widths: np.ndarray | None = None,
    value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
) -> np.ndarray:
    """Grow a tensor by repeating it; other modes are left to the converter."""
    if call.string("mode", "constant") != "wrap" or widths is None:
        return NotImplemented
    order = range(x.ndim) if axes is None else [int(axis) % x.ndim for axis in axes]
    rows = [(0, 0)] * x.ndim
    half = len(widths) // 2
    for index, axis in enumerate(order):
        rows[axis] = (int(widths[index]), int(widths[half + index]))
    result = x
    for axis, (low, high) in enumerate(rows):
        size = int(x.shape[axis])
        sizes = (size + low + high, *(n for i, n in enumerate(result.shape) if i != axis))
        call.reserve(sizes, x.itemsize)
        result = np.take(result, np.arange(-low, size + high) % size, axis)
    return result


def flex_attention(call: NumpyCall, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Attention whose scores and probabilities graphs inside the node may change."""
    code = call.integer("softmax_precision", 0)
    wide = np.float64 if q.dtype == np.float64 else np.float32
    precision = array_type(code, str(call.span)) if code else np.dtype(wide)
    scale = call.number("scale", 1 / np.sqrt(q.shape[-1]).item())
    group = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(t.astype(wide), group, axis=1) for t in (k, v))
    scores = (q.astype(wide) @ np.swapaxes(keys, -1, -2) * wide(scale)).astype(precision)
    scores = _modified(call, "score_mod", scores)
    shifted = scores.astype(wide)
    grown = np.exp(shifted - shifted.max(-1, keepdims=True))
    chances = (grown / grown.sum(-1, keepdims=True)).astype(precision)
    chances = _modified(call, "prob_mod", chances)
    return (chances.astype(wide) @ values).astype(q.dtype)


def _modified(call: NumpyCall, name: str, x: np.ndarray) -> np.ndarray:
    if not call.has(name):
        return x
    graph = call.graph(name)
    (result,) = call.run_graph(graph, {graph.inputs[0].name: x})
    if not isinstance(result, np.ndarray) or result.shape != x.shape:
        raise call.model_error(f"'{name}' changes the shape of its tensor")
    return result


KERNELS = MappingProxyType(
    {
        ("", "CumProd"): cum_prod,
        ("", "Det"): det,
        ("", "Einsum"): einsum,
        ("", "Pad"): pad,
        ("ai.onnx.preview", "FlexAttention"): flex_attention,
    }
)
