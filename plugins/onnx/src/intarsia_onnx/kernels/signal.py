# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms and mel filters. The last dimension holds real and imaginary part."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from intarsia_ir.ops.arrays import widen

from ..tensors import array_type
from .call import NumpyCall


def _complex(x: np.ndarray) -> np.ndarray:
    wide = widen(x)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _parts(y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.stack([np.real(y), np.imag(y)], -1).astype(dtype)


def dft(
    call: NumpyCall,
    x: np.ndarray,
    length: np.ndarray | None = None,
    axis: np.ndarray | None = None,
) -> np.ndarray:
    """The discrete Fourier transform along a dimension, or its inverse."""
    if call.opset >= 20:
        along = -2 if axis is None else int(axis.reshape(()))
    else:
        along = call.integer("axis", 1)
    along = call.normal_axis(along, x.ndim)
    if along == x.ndim - 1:
        raise call.model_error("the last dimension holds the parts of a number, it is no signal")
    count = None if length is None else int(length.reshape(()))
    signal = _complex(x)
    onesided = bool(call.integer("onesided", 0))
    if call.integer("inverse", 0):
        if onesided:
            return np.fft.irfft(signal, count, along)[..., None].astype(x.dtype)
        return _parts(np.fft.ifft(signal, count, along), x.dtype)
    if onesided and np.isrealobj(signal):
        return _parts(np.fft.rfft(signal, count, along), x.dtype)
    return _parts(np.fft.fft(signal, count, along), x.dtype)


def stft(
    call: NumpyCall,
    signal: np.ndarray,
    step: np.ndarray,
    window: np.ndarray | None = None,
    length: np.ndarray | None = None,
) -> np.ndarray:
    """Fourier transforms of frames of a signal, weighed by a window."""
    if length is not None:
        size = int(length.reshape(()))
    else:
        size = signal.shape[1] if window is None else window.shape[0]
    hop = int(step.reshape(()))
    if hop < 1 or not 1 <= size <= signal.shape[1]:
        raise call.model_error(f"frames of {size} every {hop} in {signal.shape[1]} samples")
    waves = _complex(signal) if signal.ndim == 3 else widen(signal)
    call.reserve((len(waves), (waves.shape[1] - size) // hop + 1, size), waves.itemsize)
    starts = np.arange(0, int(waves.shape[1]) - size + 1, hop)
    frames = waves[:, starts[:, None] + np.arange(size)]
    if window is not None:
        frames = frames * widen(window)
    onesided = bool(call.integer("onesided", 1)) and np.isrealobj(frames)
    result = np.fft.rfft(frames, axis=-1) if onesided else np.fft.fft(frames, axis=-1)
    return _parts(result, signal.dtype)


def mel_weight_matrix(
    call: NumpyCall,
    bands: np.ndarray,
    length: np.ndarray,
    rate: np.ndarray,
    lowest: np.ndarray,
    highest: np.ndarray,
) -> np.ndarray:
    """Triangular filters, evenly spaced on the mel scale, one column a band."""
    count, size = int(bands), int(length)
    call.reserve((size // 2 + 1, count))
    low, high = (2595 * np.log10(1 + float(edge) / 700) for edge in (lowest, highest))
    edges = np.arange(count + 2) * ((high - low) / (count + 2)) + low
    bins = np.floor((size + 1) * 700 * (10 ** (edges / 2595) - 1) / int(rate)).astype(np.int64)
    result = np.zeros((size // 2 + 1, count), np.float64)
    places = np.arange(size // 2 + 1)
    for band in range(count):
        start, peak, end = bins[band : band + 3]
        if peak > start:
            rising = (places >= start) & (places <= peak)
            result[rising, band] = (places[rising] - start) / (peak - start)
        else:
            result[peak, band] = 1
        if end > peak:
            falling = (places >= peak) & (places < end)
            result[falling, band] = (end - places[falling]) / (end - peak)
    return result.astype(array_type(call.integer("output_datatype", 1), str(call.span)))


KERNELS = MappingProxyType(
    {("", "DFT"): dft, ("", "STFT"): stft, ("", "MelWeightMatrix"): mel_weight_matrix}
)
