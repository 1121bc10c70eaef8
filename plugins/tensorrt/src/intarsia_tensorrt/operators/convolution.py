# SPDX-License-Identifier: Apache-2.0
"""Convolution and transposed convolution; one dimension is two with a height of 1."""

from __future__ import annotations

from typing import Any

from intarsia.plugin.accelerator import Call, Constant, Support, operator_row, sizes, tensor_type

from ..draft import NetworkDraft, Tensor
from .row import WEIGHED, attribute, shape


def two(values: tuple[int, ...], filler: int) -> tuple[int, ...]:
    """Return settings of one spatial dimension as those of two, others as they are."""
    return (filler, *values) if len(values) == 1 else values


def with_height(whole: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape ``(N, C, W)`` as ``(N, C, 1, W)``; larger ranks stay."""
    return (*whole[:2], 1, whole[2]) if len(whole) == 3 else whole


def _spatial_rank(call: Call) -> Support:
    rank = len(sizes(call))
    if not 3 <= rank <= 5:
        return shape(f"{rank - 2} spatial dimensions (1 to 3 are taken)")
    return Support.yes()


def _high_padding(call: Call) -> tuple[int, ...]:
    """What must be cut off the far end: padding less output padding."""
    attrs: Any = call.attrs
    extra = attrs.output_padding or (0,) * len(attrs.padding)
    return tuple(high - more for (_, high), more in zip(attrs.padding, extra, strict=True))


def supports_transposed(call: Call) -> Support:
    """Refuse output padding beyond the padding, dilation, and more than three dimensions."""
    attrs: Any = call.attrs
    if min(_high_padding(call)) < 0 or any(low < 0 for low, _ in attrs.padding):
        return attribute("output padding beyond what the padding cuts off")
    if any(size > 1 for size in attrs.dilation):
        return attribute(f"dilation {attrs.dilation} (the library has no such kernel)")
    return _spatial_rank(call)


def _weight_and_bias(draft: NetworkDraft, call: Call) -> tuple[tuple[int, ...], Any, Any]:
    """Return the kernel's shape, and weights and bias as the library takes them."""
    weight = call.args[1]
    assert isinstance(weight, Constant)  # the row asks for it
    bias = draft.no_weights(tensor_type(call).dtype)
    if len(call.args) > 2:
        given = call.args[2]
        assert isinstance(given, Constant)
        bias = draft.weights(given.data)
    return with_height(weight.data.shape)[2:], draft.weights(weight.data), bias


def _lower_conv(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    data = draft.value(call.args[0])
    kernel, weight, bias = _weight_and_bias(draft, call)
    data = draft.reshape(data, with_height(draft.shape_of(data)))
    outputs = sizes(call)[1]
    layer = draft.network.add_convolution_nd(data, outputs, kernel, weight, bias)
    if layer is None:
        raise draft.refused()
    layer.pre_padding = two(tuple(low for low, _ in attrs.padding), 0)
    layer.post_padding = two(tuple(high for _, high in attrs.padding), 0)
    layer.dilation_nd = two(attrs.dilation, 1)
    _set_window(layer, attrs)
    return draft.reshape(draft.output_of(layer), sizes(call))


def _lower_transposed(draft: NetworkDraft, call: Call) -> Tensor:
    return convolve_back(draft, call, draft.value(call.args[0]), _weight_and_bias(draft, call))


def convolve_back(
    draft: NetworkDraft, call: Call, data: Tensor, weights: tuple[tuple[int, ...], Any, Any]
) -> Tensor:
    """Append a transposed convolution: the kernel's shape, weights and bias are given."""
    attrs: Any = call.attrs
    kernel, weight, bias = weights
    data = draft.reshape(data, with_height(draft.shape_of(data)))
    layer = draft.network.add_deconvolution_nd(data, sizes(call)[1], kernel, weight, bias)
    if layer is None:
        raise draft.refused()
    layer.pre_padding = two(tuple(low for low, _ in attrs.padding), 0)
    layer.post_padding = two(_high_padding(call), 0)
    _set_window(layer, attrs)
    return draft.reshape(draft.output_of(layer), sizes(call))


def _set_window(layer: Any, attrs: Any) -> None:
    layer.stride_nd = two(attrs.strides, 1)
    layer.num_groups = attrs.groups


ROWS = (
    operator_row(
        "nn.conv",
        _lower_conv,
        _spatial_rank,
        constant=(1, 2),
        dtypes=WEIGHED,
        doc="1 to 3 spatial dimensions",
    ),
    operator_row(
        "nn.conv_transpose",
        _lower_transposed,
        supports_transposed,
        constant=(1, 2),
        dtypes=WEIGHED,
        doc="1 to 3 spatial dimensions; no dilation; output padding up to the padding",
    ),
)
