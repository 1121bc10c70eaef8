# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms of known lengths: products with a matrix of sines and cosines."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import require_at_most
from intarsia_ir.ops import binary, generate, indexing, nn
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size, product

from ..builder import dtype_of, sizes_of
from ..context import NodeContext
from .mel import mel_weight_matrix

MOST_WEIGHTS = 1 << 21
"""Elements of a matrix; longer transforms are faster on the host, in NumPy."""


MOST_WIDE = 1 << 12
"""Elements of a matrix that is multiplied in float64: what cancels out does so to the last bit."""


def dft(node: NodeContext) -> Expr:
    """Convert DFT along a known dimension; the last one holds real and imaginary part.

    Back from frequencies only if those are half of them, and the result is real.
    """
    x = node.input(0)
    shape = sizes_of(x)
    if node.opset >= 20:
        is_given = node.optional(2) is not None
        axis = node.required_integer(2, "the axis") if is_given else -2
    else:
        axis = node.integer("axis", 1)
    axis = node.normal_axis(axis, len(shape))
    length, given = shape[axis], shape[-1]
    if axis == len(shape) - 1 or given not in (1, 2):
        raise node.model_error(f"axis {axis} of {node.type_of(0)} is no signal")
    if not isinstance(length, int):
        raise node.unsupported("DFT of a signal whose length is known only at run time")
    inverse, onesided = bool(node.integer("inverse", 0)), bool(node.integer("onesided", 0))
    real = inverse and onesided
    usual = 2 * (length - 1) if real else length
    count = usual if node.optional(1) is None else node.required_integer(1, "the length")
    if count < 1:
        raise node.model_error(f"a transform of {count} elements")
    half = onesided and (real or given == 1)
    parts = 1 if real else 2
    weights = _weights(
        node, length, count, numbers=2 * parts if given == 2 else parts, inverse=inverse, half=half
    )
    order = [i for i in range(len(shape)) if i != axis]
    moved = node.transpose(x, [*order[:-1], axis, order[-1]])
    result = _transformed(node, moved, weights, parts=parts)
    places = list(range(len(shape) - 2))
    return node.transpose(result, [*places[:axis], len(shape) - 2, *places[axis:], len(shape) - 1])


def _weights(
    node: NodeContext, size: int, count: int, *, numbers: int, inverse: bool, half: bool
) -> np.ndarray:
    """Return complex factors ``[size, results]`` of a transform of ``count`` elements.

    Args:
        node: The node, for the error if there are too many.
        size: Elements there are: fewer are followed by zeros, more are left out.
        count: Elements of the transform.
        numbers: How many elements of a matrix a factor becomes.
        inverse: From frequencies to elements.
        half: Only frequencies up to the middle: the others mirror them.
    """
    bins = count // 2 + 1
    results = count if inverse or not half else bins
    if size * results * numbers > MOST_WEIGHTS:
        raise node.unsupported(f"{node.op_type} of {size} elements as a product with a matrix")
    rows, columns = np.arange(size)[:, None], np.arange(results)
    angles = 2 * np.pi * ((rows * columns) % count) / count
    factors = np.exp((1j if inverse else -1j) * angles)
    used = bins if inverse and half else count
    factors = np.where(rows < used, factors, 0)
    if inverse:
        factors = factors / count
    if inverse and half:
        mirrored = (rows > 0) & (2 * rows != count)
        factors = factors * np.where(mirrored, 2, 1)
    return factors


def _transformed(node: NodeContext, x: Expr, factors: np.ndarray, *, parts: int) -> Expr:
    """Multiply ``[..., size, real or complex]`` by factors; ``parts`` of the results are kept."""
    *batch, size, given = sizes_of(x)
    assert isinstance(size, int)  # as long as the factors
    assert isinstance(given, int)  # one number or two
    results = factors.shape[1]
    complex_ = np.stack([factors * 1j**part for part in range(given)], axis=1)
    split = np.stack([complex_.real, complex_.imag][:parts], axis=-1)
    kind = DType.FLOAT64 if split.size <= MOST_WIDE else dtype_of(x)
    matrix = split.reshape(size * given, results * parts).astype(numpy_dtype(kind))
    rows = node.reshape(node.cast(x, kind), (product(batch), size * given))
    found = node.cast(node.call(nn.Matmul, rows, node.array(matrix)), dtype_of(x))
    return node.reshape(found, (*batch, results, parts))


def stft(node: NodeContext) -> Expr:
    """Convert STFT of frames of a known length at known places; the run may know how many."""
    node.ranked_shape(0, 2, 3)
    signal = sizes_of(node.input(0))
    length, given = signal[1], signal[2] if len(signal) == 3 else 1
    hop, size = node.required_integer(1, "the step"), _frame_length(node, length)
    fits = require_at_most(size, length, f"{node.op_type}: a frame is as long as the signal")
    if hop < 1 or size < 1 or not fits or given not in (1, 2):
        raise node.model_error(f"frames of {size} every {hop} in {node.type_of(0)}")
    assert isinstance(given, int)  # that is said above
    x = node.reshape(node.input(0), (*signal[:2], given))
    places = _places(node, length - size + 1, hop, size)
    frames = node.call(indexing.Take, x, places, attrs=indexing.Take.Attrs(axis=1))
    window = node.optional(2)
    if window is not None:
        factors = node.reshape(node.cast(window, dtype_of(x)), (size, 1))
        frames = node.call(binary.Multiply, frames, factors)
    half = given == 1 and bool(node.integer("onesided", 1))
    weights = _weights(node, size, size, numbers=2 * given, inverse=False, half=half)
    return _transformed(node, frames, weights, parts=2)


def _places(node: NodeContext, stop: Size, hop: int, size: int) -> Expr:
    """Return the places ``[frames, size]`` of frames that begin before ``stop``."""
    if isinstance(stop, int):
        return node.array(np.arange(0, stop, hop)[:, None] + np.arange(size))
    first, last = extents((0, stop))
    attrs = generate.Arange.Attrs(start=first, stop=last, step=hop, dtype=DType.INT64)
    starts = node.call(generate.Arange, attrs=attrs)
    column = node.reshape(starts, (*sizes_of(starts), 1))
    return node.call(binary.Add, column, node.array(np.arange(size)))


def _frame_length(node: NodeContext, length: Size) -> int:
    """Return the length of a frame: as given, or of the window, or of the signal."""
    if node.optional(3) is not None:
        return node.required_integer(3, "the length")
    if node.optional(2) is not None:
        node.ranked_shape(2, 1)
        (length,) = sizes_of(node.input(2))
    if not isinstance(length, int):
        raise node.unsupported("STFT of frames whose length is known only at run time")
    return length


CONVERTERS = MappingProxyType({"DFT": dft, "MelWeightMatrix": mel_weight_matrix, "STFT": stft})
