# SPDX-License-Identifier: Apache-2.0
"""Pools and means. A mean of all-constant counts is a depthwise convolution with ones."""

from __future__ import annotations

from math import prod

import numpy as np

from intarsia.plugin.accelerator import (
    AvgPool,
    Call,
    Code,
    PoolAttrs,
    ReduceOp,
    Support,
    label_of,
    operator_row,
    sizes,
)

from ..draft import TosaDraft, TosaValue, scale_of, zero_of
from ..tosa.program import Attr
from .convolution import MAX_KERNEL, MAX_KERNEL_HEIGHT, fitted
from .row import MAX_STRIDE, YES, check_factors, is_image, wide

MAX_WINDOW = 65536
MAX_WINDOW_HEIGHT = 256
MAX_PADDED = 8


def _attrs(call: Call) -> PoolAttrs:
    assert isinstance(call.attrs, PoolAttrs)
    return call.attrs


def _window(call: Call) -> Support:
    attrs = _attrs(call)
    height, width = attrs.kernel
    if attrs.ceil_mode:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, "ceil_mode is not taken")
    if set(attrs.dilation) != {1}:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"dilation {attrs.dilation}, only 1 is taken")
    if max(attrs.strides) > MAX_STRIDE:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"strides {attrs.strides}: 1 to {MAX_STRIDE} are taken"
        )
    if height * width > MAX_WINDOW or height > MAX_WINDOW_HEIGHT:
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"window {height}x{width}: at most {MAX_WINDOW_HEIGHT} rows and {MAX_WINDOW} elements",
        )
    for size, pad in zip(attrs.kernel, attrs.padding, strict=True):
        if max(pad) >= size:
            return Support.no(
                Code.UNSUPPORTED_ATTRIBUTE, f"padding {attrs.padding} reaches over {attrs.kernel}"
            )
    return YES


def _lower_max_pool(draft: TosaDraft, call: Call) -> TosaValue:
    attrs = _attrs(call)
    padding = [(int(before), int(after)) for before, after in attrs.padding]
    source = draft.image(call.args[0])
    value, pad = fitted(draft, source, attrs.kernel, attrs.strides, attrs.dilation, padding)
    n, channels, height, width = sizes(call)
    numbers: dict[str, Attr] = {
        "kernel": attrs.kernel,
        "stride": attrs.strides,
        "pad": pad,
        "nan_mode": "PROPAGATE",
    }
    shape = (n, height, width, channels)
    name = draft.add("MAX_POOL2D", (value,), shape, attrs=numbers, label=label_of(call))
    return TosaValue(name, image=True)


def _padded(call: Call) -> bool:
    return any(any(pair) for pair in _attrs(call).padding)


def _counts_all(call: Call) -> bool:
    """Whether every window is divided by its whole size."""
    assert isinstance(call.attrs, AvgPool.Attrs)
    return call.attrs.count_include_pad or not _padded(call)


def _same_scale(call: Call) -> bool:
    return scale_of(call.args[1]) == scale_of(call.args[3])


def _average(call: Call) -> Support:
    height, width = _attrs(call).kernel
    if sizes(call)[0] != 1:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"batch {sizes(call)[0]}, only 1 is taken")
    if _counts_all(call):
        if height * width > MAX_KERNEL or height > MAX_KERNEL_HEIGHT:
            return Support.no(
                Code.UNSUPPORTED_SHAPE,
                f"window {height}x{width}: at most {MAX_KERNEL_HEIGHT} rows and {MAX_KERNEL}"
                " elements",
            )
        return check_factors(call.name, wide(call.args[1]) / wide(call.args[3]) / (height * width))
    if max(height, width) > MAX_PADDED:
        return Support.no(
            Code.UNSUPPORTED_SHAPE, f"padded window {height}x{width}: at most {MAX_PADDED} a side"
        )
    if not _same_scale(call):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, "a padded mean keeps its scale; this one changes it"
        )
    return YES


def _ones(
    draft: TosaDraft,
    call: Call,
    value: str,
    kernel: tuple[int, int],
    attrs: dict[str, Attr],
    shape: tuple[int, ...],
) -> str:
    """Append sums of windows, and the RESCALE that makes them means."""
    channels = shape[3]
    operands = (
        value,
        draft.constant(np.ones((*kernel, channels, 1), np.int8)),
        draft.constant(np.zeros(channels, np.int32)),
        draft.number(zero_of(call.args[2])),
        draft.number(0),
    )
    numbers = attrs | {"dilation": (1, 1), "local_bound": False, "acc_type": "INT32"}
    total = draft.add(
        "DEPTHWISE_CONV2D", operands, shape, dtype="INT32", attrs=numbers, label=label_of(call)
    )
    factor = scale_of(call.args[1]) / scale_of(call.args[3]) / prod(kernel)
    return draft.rescale(total, (factor,), (0, zero_of(call.args[4])), label=label_of(call))


def _lower_avg_pool(draft: TosaDraft, call: Call) -> TosaValue:
    attrs = _attrs(call)
    padding = [(int(before), int(after)) for before, after in attrs.padding]
    source = draft.image(call.args[0])
    value, pad = fitted(draft, source, attrs.kernel, attrs.strides, attrs.dilation, padding)
    n, channels, height, width = sizes(call)
    shape = (n, height, width, channels)
    numbers: dict[str, Attr] = {"stride": attrs.strides, "pad": pad}
    rows, columns = attrs.kernel
    if _counts_all(call):
        return TosaValue(_ones(draft, call, value, (rows, columns), numbers, shape), image=True)
    operands = (value, draft.number(zero_of(call.args[2])), draft.number(zero_of(call.args[4])))
    numbers |= {"kernel": attrs.kernel, "acc_type": "INT32"}
    name = draft.add("AVG_POOL2D", operands, shape, attrs=numbers, label=label_of(call))
    return TosaValue(name, image=True)


def _mean_attrs(call: Call) -> ReduceOp.Attrs:
    assert isinstance(call.attrs, ReduceOp.Attrs)
    return call.attrs


def _mean(call: Call) -> Support:
    n, _, height, width = sizes(call.args[0])
    if tuple(sorted(_mean_attrs(call).axes)) != (2, 3):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            f"axes {_mean_attrs(call).axes}: only means over height and width are taken",
        )
    if n != 1:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"batch {n}, only 1 is taken")
    if height * width > MAX_KERNEL or height > MAX_KERNEL_HEIGHT:
        return Support.no(
            Code.UNSUPPORTED_SHAPE,
            f"mean over {height}x{width}: at most {MAX_KERNEL_HEIGHT} rows and {MAX_KERNEL}"
            " elements",
        )
    return check_factors(call.name, wide(call.args[1]) / wide(call.args[3]) / (height * width))


def _lower_mean(draft: TosaDraft, call: Call) -> TosaValue:
    n, channels, height, width = sizes(call.args[0])
    numbers: dict[str, Attr] = {"stride": (1, 1), "pad": (0, 0, 0, 0)}
    value = draft.image(call.args[0])
    mean = _ones(draft, call, value, (height, width), numbers, (n, 1, 1, channels))
    if _mean_attrs(call).keepdims:
        return TosaValue(mean, image=True)
    return TosaValue(draft.reshape(mean, (n, channels)), image=False)


ROWS = (
    operator_row(
        "nn.max_pool",
        _lower_max_pool,
        is_image,
        _window,
        data=(0,),
        doc=f"images; windows up to {MAX_WINDOW_HEIGHT} rows and {MAX_WINDOW} elements; strides"
        f" 1 to {MAX_STRIDE}; no dilation, no ceil_mode",
    ),
    operator_row(
        "qnn.avg_pool",
        _lower_avg_pool,
        is_image,
        _window,
        _average,
        data=(0,),
        constant=(1, 2, 3, 4),
        doc=f"as nn.max_pool, batch 1; windows up to {MAX_KERNEL_HEIGHT} rows and {MAX_KERNEL}"
        f" elements; if padding is not counted, up to {MAX_PADDED} a side and without a"
        " change of scale",
    ),
    operator_row(
        "qnn.mean",
        _lower_mean,
        is_image,
        _mean,
        data=(0,),
        constant=(1, 2, 3, 4),
        doc=f"images, batch 1, over height and width, up to {MAX_KERNEL_HEIGHT} rows and"
        f" {MAX_KERNEL} elements",
    ),
)
