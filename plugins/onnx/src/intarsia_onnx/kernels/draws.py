# SPDX-License-Identifier: Apache-2.0
"""Random tensors: MT19937, whose draws for a seed are those of ONNX's reference evaluator.

As in ONNX Runtime, a node with ``seed`` begins its sequence anew whenever the model is loaded, and
each run goes on in it; a node without one begins somewhere else at every load.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.ops.arrays import widen

from ..tensors import array_type, element_code
from .call import NumpyCall

_FLOAT, _INT32 = 1, 6  # ONNX's numbers of element types


_DRAW_BYTES = 20  # of an element: drawn in float64, then converted, scaled and moved


def _dtype(call: NumpyCall, default: int) -> np.dtype:
    """Element type of the result."""
    dtype = array_type(call.integer("dtype", default), str(call.span))
    if dtype.kind not in "fViu" and dtype != np.bool_:
        raise call.model_error(f"random numbers of element type {dtype}")
    return dtype


def _uniform(call: NumpyCall, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    call.reserve(shape, _DRAW_BYTES)
    low, high = call.number("low", 0.0), call.number("high", 1.0)
    drawn = np.asarray(call.generator().random_sample(shape)).astype(dtype)
    return drawn * dtype.type(high - low) + dtype.type(low)


def _normal(call: NumpyCall, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    call.reserve(shape, _DRAW_BYTES)
    drawn = np.asarray(call.generator().standard_normal(shape)).astype(dtype)
    mean, scale = dtype.type(call.number("mean", 0.0)), dtype.type(call.number("scale", 1.0))
    return drawn * scale + mean


def random_uniform(call: NumpyCall) -> np.ndarray:
    """Numbers between ``low`` and ``high``, all equally likely."""
    return _uniform(call, call.integers("shape"), _dtype(call, _FLOAT))


def random_uniform_like(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Numbers between ``low`` and ``high`` in the shape of another tensor."""
    return _uniform(call, x.shape, _dtype(call, element_code(x.dtype)))


def random_normal(call: NumpyCall) -> np.ndarray:
    """Numbers of the normal distribution with ``mean`` and standard deviation ``scale``."""
    return _normal(call, call.integers("shape"), _dtype(call, _FLOAT))


def random_normal_like(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Numbers of a normal distribution in the shape of another tensor."""
    return _normal(call, x.shape, _dtype(call, element_code(x.dtype)))


def bernoulli(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """1 with the probability that the element says, else 0."""
    dtype = _dtype(call, element_code(x.dtype))
    return np.asarray(call.generator().binomial(1, widen(x))).astype(dtype)


def multinomial(call: NumpyCall, x: np.ndarray) -> np.ndarray:
    """Numbers of classes for each row, whose elements are logarithms of their weights."""
    if x.ndim != 2 or not x.shape[1]:
        raise call.model_error(f"needs rows of at least one class, got shape {x.shape}")
    dtype = _dtype(call, _INT32)
    logs = widen(x).astype(np.float64)
    sums = np.cumsum(np.exp(logs - logs.max(1, keepdims=True)), 1)
    call.reserve((len(x), call.integer("sample_size", 1)))
    drawn = call.generator().random_sample((len(x), call.integer("sample_size", 1))) * sums[:, -1:]
    rows: list[np.ndarray] = [
        np.searchsorted(row, wanted, "right") for row, wanted in zip(sums, drawn, strict=True)
    ]
    return np.array(rows, np.int64).reshape(drawn.shape).astype(dtype)


KERNELS = MappingProxyType(
    {
        ("", "Bernoulli"): bernoulli,
        ("", "Multinomial"): multinomial,
        ("", "RandomNormal"): random_normal,
        ("", "RandomNormalLike"): random_normal_like,
        ("", "RandomUniform"): random_uniform,
        ("", "RandomUniformLike"): random_uniform_like,
    }
)
