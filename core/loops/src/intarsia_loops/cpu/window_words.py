# SPDX-License-Identifier: Apache-2.0
"""8-bit convolutions of one or two channels: im2col along rows fills the words of Int8x4.

A word has four channels of a pixel, so an image of one channel, such as a spectrogram, would take
four times the products. The taps of a window row are contiguous in a channels-last image. They
become the channels of an image as wide as the result, and the window becomes one tap wide: im2col
along rows, ``KW * C`` bytes for each pixel of the result. With a dot micro-kernel, whose call costs
as much as some products, the rows of the window are merged too: ``KH * KW * C``.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from intarsia_ir.graph.expr import Expr, call, tensor_type
from intarsia_ir.ops.nn import Conv
from intarsia_ir.ops.shape import Concatenate
from intarsia_ir.ops.slicing import Pad

from .packing import INT8_PER_WORD
from .relayout import reshaped, sliced

Array = np.ndarray

LEAST_OUTPUTS = 16
"""Outputs from which on a copy of each window's row repays."""


def row_windows(
    plain: Conv.Attrs, source: Expr, weight: Array, zero: int, *, whole: bool
) -> tuple[Conv.Attrs, Expr, Array] | None:
    """Return a convolution, its image and weights with rows of windows as channels.

    ``None`` if that does not take half of the words or fewer.

    Args:
        plain: The convolution of an image, in one group.
        source: The image ``[N, H, W, C]``.
        weight: ``[O, C, KH, KW]``.
        zero: What padding holds.
        whole: Whether all rows of a window shall be channels, not each for itself.
    """
    outputs, channels, height, width = weight.shape
    words = -(-channels // INT8_PER_WORD) * width
    taken = -(-channels * width // INT8_PER_WORD)
    if plain.groups != 1 or 2 * taken > words or outputs < LEAST_OUTPUTS:
        return None
    image = _taps_as_channels(source, plain, 1, width, zero)
    rows = weight.transpose(0, 2, 3, 1).reshape(outputs, height, width * channels)
    strides, padding, dilation = plain.strides[:1], plain.padding[:1], plain.dilation[:1]
    if whole and height > 1:
        image = _taps_as_channels(image, plain, 0, height, zero)
        rows = rows.reshape(outputs, 1, -1)
        strides, padding, dilation = (1,), ((0, 0),), (1,)
    attrs = replace(
        plain, strides=(*strides, 1), padding=(*padding, (0, 0)), dilation=(*dilation, 1)
    )
    return attrs, image, np.ascontiguousarray(rows.transpose(0, 2, 1))[..., None]


def _taps_as_channels(x: Expr, plain: Conv.Attrs, side: int, taps: int, zero: int) -> Expr:
    """Put the taps of a window along one side of an image, 0 or 1, behind one another."""
    axis, (before, behind) = side + 1, plain.padding[side]
    stride, apart = plain.strides[side], plain.dilation[side]
    if before or behind:
        x = _padded(x, axis, (before, behind), zero)
    size = tensor_type(x).shape[axis]
    if side == 1 and apart == 1 and 1 < stride < taps:
        return _steps_as_channels(x, stride, taps, zero)
    last = size - (taps - 1) * apart  # behind the last first tap
    parts = [sliced(x, axis, (tap * apart, tap * apart + last), stride) for tap in range(taps)]
    return call(Concatenate, *parts, attrs=Concatenate.Attrs(axis=3), span=x.span)


def _steps_as_channels(x: Expr, stride: int, taps: int, zero: int) -> Expr:
    """Put the neighbouring taps of windows along rows behind one another, a step at a time.

    A window is a few steps of as many pixels as it moves by, the last of which may be cut. Each is
    a run of bytes: STFT windows of 512 samples, a step of 160, are four runs, not 512 bytes.
    """
    batch, height, size, channels = tensor_type(x).shape
    windows, steps = (size - taps) // stride + 1, -(-taps // stride)
    whole = (windows + (steps - 1)) * stride
    if steps * stride > taps:
        x = _padded(x, 2, (0, steps * stride - taps), zero)
    x = sliced(x, 2, (0, whole))
    x = reshaped(x, (batch, height, windows + (steps - 1), stride * channels))
    parts = [sliced(x, 2, (step, step + windows)) for step in range(steps)]
    used = (taps - (steps - 1) * stride) * channels
    parts[-1] = sliced(parts[-1], 3, (0, used))
    return call(Concatenate, *parts, attrs=Concatenate.Attrs(axis=3), span=x.span)


def _padded(x: Expr, axis: int, width: tuple[int, int], zero: int) -> Expr:
    widths = tuple(width if d == axis else (0, 0) for d in range(4))
    return call(Pad, x, attrs=Pad.Attrs(widths=widths, value=float(zero)), span=x.span)
