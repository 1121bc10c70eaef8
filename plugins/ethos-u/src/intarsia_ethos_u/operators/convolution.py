# SPDX-License-Identifier: Apache-2.0
"""Convolution and matrix product with constant weights: ``CONV2D`` and ``DEPTHWISE_CONV2D``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Conv,
    Matmul,
    Support,
    array_of,
    label_of,
    operator_row,
    sizes,
)

from ..draft import TosaDraft, TosaValue, stored_bytes, zero_of
from ..tosa.program import Attr
from .row import MAX_STRIDE, YES, check_factors, is_image, wide

MAX_KERNEL = 4096
MAX_KERNEL_HEIGHT = 64
MAX_WEIGHT_SUM = 127 * 65536
BIAS = 8


def _attrs(call: Call) -> Conv.Attrs:
    assert isinstance(call.attrs, Conv.Attrs)
    return call.attrs


def is_depthwise(call: Call) -> bool:
    """Whether every channel is convolved by itself."""
    groups, channels = _attrs(call).groups, sizes(call.args[0])[1]
    return groups == channels and groups > 1


def _groups(call: Call) -> Support:
    groups = _attrs(call).groups
    if groups == 1 or is_depthwise(call):
        return YES
    return Support.no(
        Code.UNSUPPORTED_ATTRIBUTE,
        f"groups={groups} of {sizes(call.args[0])[1]} channels: 1 or one for each channel",
    )


def _kernel(call: Call) -> Support:
    height, width = sizes(call.args[3])[2:]
    attrs = _attrs(call)
    if height * width > MAX_KERNEL or height > MAX_KERNEL_HEIGHT:
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"kernel {height}x{width}: at most {MAX_KERNEL_HEIGHT} rows and {MAX_KERNEL} elements",
        )
    if max(attrs.strides) > MAX_STRIDE:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"strides {attrs.strides}: 1 to {MAX_STRIDE} are taken"
        )
    reach = [
        (size - 1) * step + 1 for size, step in zip((height, width), attrs.dilation, strict=True)
    ]
    if reach[0] * reach[1] > MAX_KERNEL or reach[0] > MAX_KERNEL_HEIGHT:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            f"kernel {height}x{width} with dilation {attrs.dilation}: at most"
            f" {MAX_KERNEL_HEIGHT} rows and {MAX_KERNEL} elements",
        )
    return YES


def _weights(call: Call) -> Support:
    return check_weights(call, channel_axis=0)


def check_weights(call: Call, channel_axis: int) -> Support:
    """Refuse weights with a zero point for each channel, or too large together."""
    weight, zero = (array_of(call.args[index]) for index in (3, 5))
    if zero.size > 1 and np.unique(zero).size > 1:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "one zero point for all weights is taken, not one a channel"
        )
    whole = np.abs(weight.astype(np.int64) - int(zero.reshape(-1)[0]))
    axes = tuple(axis for axis in range(weight.ndim) if axis != channel_axis)
    largest = int(whole.sum(axis=axes).max(initial=0))
    if largest > MAX_WEIGHT_SUM:
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"the weights of a channel sum to {largest}: at most {MAX_WEIGHT_SUM}",
        )
    return check_factors(call.name, _factors(call))


def _factors(call: Call) -> np.ndarray:
    x_scale, w_scale, y_scale = (wide(call.args[index]) for index in (1, 4, 6))
    return np.asarray(x_scale * w_scale / y_scale)


def whole_windows(
    size: int, kernel: int, stride: int, dilation: int, pad: tuple[int, int]
) -> tuple[tuple[int, int], int]:
    """Return padding and rows of the input to drop, so that windows fit without a rest.

    TOSA refuses sizes that a stride does not divide; rows that no window reaches are taken off the
    padding behind, then off the input.
    """
    before, after = pad
    rest = (size + before + after - ((kernel - 1) * dilation + 1)) % stride
    return (before, after - min(rest, after)), max(rest - after, 0)


def fitted(
    draft: TosaDraft,
    value: str,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> tuple[str, tuple[int, ...]]:
    """Return an image cut so that windows fit, and its padding in TOSA's order."""
    n, height, width, channels = draft.shape(value)
    rows = [
        whole_windows(size, kernel[d], strides[d], dilation[d], padding[d])
        for d, size in enumerate((height, width))
    ]
    (top, dropped), (left, lost) = rows
    if dropped or lost:
        shape = (n, height - dropped, width - lost, channels)
        attrs: dict[str, Attr] = {"start": (0, 0, 0, 0), "size": shape}
        value = draft.add("SLICE", (value,), shape, attrs=attrs)
    return value, (*top, *left)


def convolve(
    draft: TosaDraft,
    call: Call,
    value: str,
    weight: np.ndarray,
    shape: Sequence[int],
    attrs: dict[str, Attr],
) -> str:
    """Append a convolution and its RESCALE.

    Args:
        draft: Where to.
        call: Its operands 2 and 5 to 8 are zero points, the result's scale and a bias.
        value: The image.
        weight: int8, in TOSA's order.
        shape: Of the result.
        attrs: Padding, strides, dilation.
    """
    depthwise = "depthwise" in attrs
    channels = shape[3]
    bias = array_of(call.args[BIAS]) if len(call.args) > BIAS else np.zeros(channels, np.int32)
    operands = (
        value,
        draft.constant(np.ascontiguousarray(weight)),
        draft.constant(bias.astype(np.int32)),
        draft.number(zero_of(call.args[2])),
        draft.number(zero_of(call.args[5])),
    )
    kept = {key: item for key, item in attrs.items() if key != "depthwise"}
    kept |= {"local_bound": False, "acc_type": "INT32"}
    op = "DEPTHWISE_CONV2D" if depthwise else "CONV2D"
    total = draft.add(op, operands, shape, dtype="INT32", attrs=kept, label=label_of(call))
    factors = _factors(call).reshape(-1).tolist()
    return draft.rescale(total, factors, (0, zero_of(call.args[7])), label=label_of(call))


def _lower_conv(draft: TosaDraft, call: Call) -> TosaValue:
    attrs = _attrs(call)
    weight = stored_bytes(array_of(call.args[3]))
    padding = [(int(before), int(after)) for before, after in attrs.padding]
    value, pad = fitted(
        draft,
        draft.image(call.args[0]),
        weight.shape[2:],
        attrs.strides,
        attrs.dilation,
        padding,
    )
    n, channels, height, width = sizes(call)
    numbers: dict[str, Attr] = {"pad": pad, "stride": attrs.strides, "dilation": attrs.dilation}
    if is_depthwise(call):
        groups = attrs.groups
        weight = weight.reshape(groups, channels // groups, *weight.shape[2:])
        weight = weight.transpose(2, 3, 0, 1)
        numbers["depthwise"] = True
    else:
        weight = weight.transpose(0, 2, 3, 1)
    shape = (n, height, width, channels)
    return TosaValue(convolve(draft, call, value, weight, shape, numbers), image=True)


def _matmul_attrs(call: Call) -> Matmul.Attrs:
    assert isinstance(call.attrs, Matmul.Attrs)
    return call.attrs


def _product(call: Call) -> Support:
    if _matmul_attrs(call).transpose_a:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "a transposed first operand is not taken")
    rank = len(sizes(call.args[3]))
    if rank != 2:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"weights of rank {rank}, only 2 is taken")
    if len(sizes(call.args[0])) < 2:
        return Support.no(Code.UNSUPPORTED_SHAPE, "a vector as first operand is not taken")
    return YES


def _product_weights(call: Call) -> Support:
    return check_weights(call, channel_axis=0 if _matmul_attrs(call).transpose_b else 1)


def _lower_matmul(draft: TosaDraft, call: Call) -> TosaValue:
    """A 1x1 convolution over the rows."""
    shape = sizes(call)
    weight = stored_bytes(array_of(call.args[3]))
    columns = weight if _matmul_attrs(call).transpose_b else weight.T
    depth, rows = columns.shape[1], int(np.prod(shape[:-1]))
    value = draft.reshape(draft.plain(call.args[0]), (1, 1, rows, depth))
    numbers: dict[str, Attr] = {"pad": (0, 0, 0, 0), "stride": (1, 1), "dilation": (1, 1)}
    kernel = columns.reshape(columns.shape[0], 1, 1, depth)
    result = convolve(draft, call, value, kernel, (1, 1, rows, columns.shape[0]), numbers)
    return TosaValue(draft.reshape(result, shape), image=False)


_CONSTANT = (1, 2, 3, 4, 5, 6, 7, BIAS)
ROWS = (
    operator_row(
        "qnn.conv",
        _lower_conv,
        is_image,
        _groups,
        _kernel,
        _weights,
        data=(0, 3),
        constant=_CONSTANT,
        doc=f"images; constant weights and bias; kernel, dilated, up to {MAX_KERNEL_HEIGHT} rows"
        f" and {MAX_KERNEL} elements; strides 1 to {MAX_STRIDE}; groups 1 or one for each"
        " channel; one zero point for all weights; weights of a channel sum to at most"
        f" {MAX_WEIGHT_SUM}",
    ),
    operator_row(
        "qnn.matmul",
        _lower_matmul,
        _product,
        _product_weights,
        data=(0, 3),
        constant=_CONSTANT,
        doc="constant two-dimensional weights; no transposed or one-dimensional first operand;"
        " one zero point for all weights",
    ),
)
