# SPDX-License-Identifier: Apache-2.0
"""Convolution, depthwise convolution and transposed convolution; one dimension is two with a 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.plugin.accelerator import (
    Code,
    Constant,
    DType,
    Expr,
    Match,
    Support,
    label_of,
    op,
    sizes,
)

from ..draft import AclDraft, AclTensor
from .row import AclRow


def _one_or_two_dimensional(match: Match) -> Support:
    rank = len(sizes(match.root))
    if rank not in (3, 4):
        return Support.no(Code.UNSUPPORTED_SHAPE, f"{rank - 2} spatial dimensions (1 or 2 are)")
    return Support.yes()


def is_depthwise(match: Match) -> bool:
    """Whether every channel has filters of its own."""
    attrs: Any = match.attrs
    channels = sizes(match.root.args[0])[1]
    return attrs.groups == channels and attrs.groups > 1


def supports_conv(match: Match) -> Support:
    """Refuse groups of several channels, and three dimensions."""
    attrs: Any = match.attrs
    verdict = _one_or_two_dimensional(match)
    if not verdict:
        return verdict
    if attrs.groups != 1 and not is_depthwise(match):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            f"{attrs.groups} groups of several channels (one group, or one channel a group is)",
        )
    return Support.yes()


def accepts_conv(match: Match) -> Support:
    """Say what the library's ``validate()`` says of a convolution."""
    attrs: Any = match.attrs
    if not is_depthwise(match):
        return Support.yes()
    extents = [(k - 1) * d + 1 for k, d in zip(_kernel(match), _two(attrs.dilation), strict=True)]
    data = _spatial(match.root.args[0])
    pads = _pads(attrs.padding)
    if any(e > n + sum(p) for e, n, p in zip(extents, data, pads, strict=True)):
        return Support.no(
            Code.UNSUPPORTED_SHAPE, f"a depthwise kernel spans {extents}, more than the data"
        )
    return Support.yes()


def _two(values: tuple[int, ...]) -> tuple[int, int]:
    """Return the setting of height and width."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def _pads(padding: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], tuple[int, int]]:
    return ((0, 0), padding[0]) if len(padding) == 1 else (padding[0], padding[1])


def _kernel(match: Match) -> tuple[int, int]:
    return _two(sizes(weight_of(match))[2:])


def weight_of(match: Match) -> Expr:
    """Return the weight of a convolution, quantized or not."""
    return match.root.args[3 if match.root.name.startswith("qnn.") else 1]


def _spatial(expr: Any) -> tuple[int, int]:
    return _two(sizes(expr)[2:])


def with_height(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape ``(N, C, W)`` as ``(N, C, 1, W)``; four sizes stay."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def pad_stride(match: Match, rounding: str = "FLOOR") -> str:
    """Return strides and padding as the library's ``PadStrideInfo``."""
    attrs: Any = match.attrs
    down, across = _two(attrs.strides)
    (top, bottom), (left, right) = _pads(attrs.padding)
    numbers = f"{across}U, {down}U, {left}U, {right}U, {top}U, {bottom}U"
    return f"PadStrideInfo({numbers}, DimensionRoundingType::{rounding})"


def _bias(draft: AclDraft, match: Match) -> AclTensor | None:
    return draft.value(match.root.args[2]) if len(match.root.args) > 2 else None


def _lower_conv(draft: AclDraft, match: Match) -> AclTensor:
    root = match.root
    data, weight = (draft.value(arg) for arg in root.args[:2])
    return convolve(draft, match, data, weight, _bias(draft, match), draft.new_result(match))


def convolve(
    draft: AclDraft,
    match: Match,
    data: AclTensor,
    weight: AclTensor,
    bias: AclTensor | None,
    result: AclTensor,
) -> AclTensor:
    """Append the convolution of a match and return its result, of the operator's shape."""
    attrs: Any = match.attrs
    label = label_of(match.root)
    shape = result.shape
    data = draft.view(data, with_height(data.shape), label)
    weight = draft.view(weight, with_height(weight.shape), label)
    if len(shape) == 3:
        flat = draft.new_tensor(with_height(shape), result.dtype)
        draft.relate(flat, result)
        result = flat
    down, across = _two(attrs.dilation)
    dilation = f"Size2D({across}U, {down}U)"
    if is_depthwise(match):
        # A filter for each output channel; those of one input channel lie side by side.
        weight = draft.view(weight, (1, weight.shape[0], *weight.shape[2:]), label)
        multiplier = f"{result.shape[1] // data.shape[1]}U"
        args = (pad_stride(match), multiplier, "{activation}", dilation)
        function = "NEDepthwiseConvolutionLayer"
    else:
        args = (pad_stride(match), "WeightsInfo()", dilation, "{activation}")
        function = "NEConvolutionLayer"
    result = draft.add(
        function,
        *(data, weight, bias, result, *args),
        result=result,
        label=label,
        activation="" if result.dtype is DType.FLOAT32 else None,
    )
    return draft.view(result, shape, label)


def supports_transposed(match: Match) -> Support:
    """Refuse groups, dilation, and what reaches beyond the kernel; quantized or not."""
    attrs: Any = match.attrs
    verdict = _one_or_two_dimensional(match)
    if not verdict:
        return verdict
    if attrs.groups != 1:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"{attrs.groups} groups, only 1 is taken")
    if any(size != 1 for size in attrs.dilation):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"dilation {attrs.dilation}")
    if any(attrs.output_padding):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"output_padding {attrs.output_padding}, only 0 is taken"
        )
    if any(low < 0 or high < 0 for low, high in attrs.padding):
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"negative padding {attrs.padding}")
    kernel = sizes(weight_of(match))[2:]
    if any(max(pair) >= size for pair, size in zip(attrs.padding, kernel, strict=True)):
        # The library accepts it, and writes outside of its buffers.
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            f"padding {attrs.padding} reaches as far as the kernel {list(kernel)}",
        )
    return Support.yes()


def accepts_transposed(match: Match) -> Support:
    """Say what the library's ``validate()`` says of a transposed convolution."""
    height, width = _kernel(match)
    if height != width:
        return Support.no(
            Code.UNSUPPORTED_SHAPE, f"a kernel of {height} x {width}, only squares are taken"
        )
    return Support.yes()


def _lower_transposed(draft: AclDraft, match: Match) -> AclTensor:
    root = match.root
    data = draft.value(root.args[0])
    given = root.args[1]
    assert isinstance(given, Constant)  # the row asks for it
    # The library wants output channels outermost.
    weight = draft.constant(np.swapaxes(given.data.reshape(with_height(sizes(given))), 0, 1))
    result = draft.new_tensor(with_height(sizes(root)), data.dtype)
    return convolve_back(draft, match, data, weight, _bias(draft, match), result)


def convolve_back(
    draft: AclDraft,
    match: Match,
    data: AclTensor,
    weight: AclTensor,
    bias: AclTensor | None,
    result: AclTensor,
) -> AclTensor:
    """Append the transposed convolution of a match; return its result of the operator's shape.

    ``weight`` and ``result`` have four sizes; the output channels of the weight are outermost.
    """
    label = label_of(match.root)
    data = draft.view(data, with_height(data.shape), label)
    draft.add(
        "NEDeconvolutionLayer",
        *(data, weight, bias, result, pad_stride(match)),
        result=result,
        label=label,
    )
    return draft.view(result, sizes(match.root), label)


ROWS = (
    AclRow(
        "nn.conv",
        op("nn.conv"),
        _lower_conv,
        supports_conv,
        constant=(1, 2),
        validates=accepts_conv,
        doc="1 or 2 spatial dimensions; one group, or one channel a group (depthwise)",
    ),
    AclRow(
        "nn.conv_transpose",
        op("nn.conv_transpose"),
        _lower_transposed,
        supports_transposed,
        constant=(1, 2),
        validates=accepts_transposed,
        doc="1 or 2 spatial dimensions; one group, square kernels that padding does not reach;"
        " no dilation, no output padding",
    ),
)
