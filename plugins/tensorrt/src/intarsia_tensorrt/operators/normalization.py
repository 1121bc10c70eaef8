# SPDX-License-Identifier: Apache-2.0
"""Softmax and normalizations; always in the exact type, as sums are sensitive."""

from __future__ import annotations

from typing import Any

import numpy as np

from intarsia.plugin.accelerator import (
    Call,
    Constant,
    Expr,
    operator_row,
    sizes,
    tensor_type,
    widen,
)

from ..draft import NetworkDraft, Tensor, mask, member
from .row import WEIGHED


def _lower_softmax(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    return softmax(draft, draft.exact(call.args[0]), attrs.axis)


def softmax(draft: NetworkDraft, x: Tensor, axis: int) -> Tensor:
    """Return the softmax along one axis."""
    layer = draft.network.add_softmax(x)
    layer.axes = mask((axis,))
    return draft.output_of(layer)


def _lower_log_softmax(draft: NetworkDraft, call: Call) -> Tensor:
    """Shift by the maximum, subtract the logarithm of the sum: a softmax would underflow."""
    attrs: Any = call.attrs
    x, axes = draft.exact(call.args[0]), (attrs.axis,)
    shifted = draft.binary(x, draft.reduce(x, "MAX", axes, keep=True), "SUB")
    total = draft.reduce(draft.unary(shifted, "EXP"), "SUM", axes, keep=True)
    return draft.binary(shifted, draft.unary(total, "LOG"), "SUB")


def _standardized(
    draft: NetworkDraft, x: Tensor, like: Expr, axes: tuple[int, ...], **more: Any
) -> Tensor:
    """Return zero mean and unit variance over axes: the library's layer with scale 1 and bias 0."""
    whole, groups = sizes(like), more.get("groups", 1)
    affine = [n if axis in axes else 1 for axis, n in enumerate(whole)]
    if axes == tuple(range(2, len(whole))):  # scale and bias of this case run along the channels
        affine = [1, groups if groups > 1 else whole[1], *[1] * (len(whole) - 2)]
    dtype = draft.dtype_of(x)
    ones, zeros = (draft.constant(np.full(affine, v, np.float32), dtype) for v in (1, 0))
    layer = draft.network.add_normalization(x, ones, zeros, mask(axes))
    if layer is None:
        raise draft.refused()
    layer.epsilon, layer.num_groups = more["epsilon"], groups
    return draft.output_of(layer)


def _scaled(draft: NetworkDraft, x: Tensor, affine: list[Tensor]) -> Tensor:
    result = draft.binary(x, affine[0], "PROD")
    return draft.binary(result, affine[1], "SUM") if len(affine) > 1 else result


def _columns(draft: NetworkDraft, call: Call) -> list[Tensor]:
    """Return scale and bias, one for each channel, as columns."""
    rest = (1,) * (len(sizes(call)) - 2)
    return [draft.reshape(draft.exact(v), (1, *sizes(v), *rest)) for v in call.args[1:]]


def _lower_layer_norm(draft: NetworkDraft, call: Call) -> Tensor:
    affine = [draft.exact(v) for v in call.args[1:]]
    return layer_norm(draft, call, draft.exact(call.args[0]), affine)


def layer_norm(draft: NetworkDraft, call: Call, x: Tensor, affine: list[Tensor]) -> Tensor:
    """Return a tensor normalized over the last axes, by the layer norm ``call``, and scaled."""
    attrs: Any = call.attrs
    axes = tuple(range(attrs.axis, len(sizes(call))))
    if attrs.axis == 0 or axes == tuple(range(2, len(sizes(call)))):
        # Statistics of everything, or scales that would run along the channels: in single layers.
        centred = draft.binary(x, draft.reduce(x, "AVG", axes, keep=True), "SUB")
        result = _unit(draft, centred, axes, attrs.epsilon)
    else:
        result = _standardized(draft, x, call, axes, epsilon=attrs.epsilon)
    return _scaled(draft, result, affine)


def _unit(draft: NetworkDraft, x: Tensor, axes: tuple[int, ...], epsilon: float) -> Tensor:
    """Return ``x`` by its root mean square over axes."""
    square = draft.reduce(draft.binary(x, x, "PROD"), "AVG", axes, keep=True)
    root = draft.unary(draft.binary(square, draft.number(epsilon, square), "SUM"), "SQRT")
    return draft.binary(x, root, "DIV")


def _lower_rms_norm(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    x = draft.exact(call.args[0])
    axes = tuple(range(attrs.axis, len(sizes(call))))
    return _scaled(draft, _unit(draft, x, axes, attrs.epsilon), [draft.exact(call.args[1])])


def _lower_instance_norm(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    x = draft.exact(call.args[0])
    axes = tuple(range(2, len(sizes(call))))
    result = _standardized(draft, x, call, axes, epsilon=attrs.epsilon)
    return _scaled(draft, result, _columns(draft, call))


def _lower_group_norm(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    x, whole = draft.exact(call.args[0]), sizes(call)
    grouped = draft.reshape(x, (whole[0], attrs.groups, whole[1] // attrs.groups, *whole[2:]))
    axes = tuple(range(2, len(whole) + 1))
    centred = draft.binary(grouped, draft.reduce(grouped, "AVG", axes, keep=True), "SUB")
    result = draft.reshape(_unit(draft, centred, axes, attrs.epsilon), whole)
    return _scaled(draft, result, _columns(draft, call))


def _lower_batch_norm(draft: NetworkDraft, call: Call) -> Tensor:
    """Fold the statistics into a scale and a shift for each channel."""
    attrs: Any = call.attrs
    given = [v.data for v in call.args[1:] if isinstance(v, Constant)]  # the row asks for all
    scale, bias, mean, var = (widen(array) for array in given)
    factor = scale / np.sqrt(var + np.float32(attrs.epsilon))
    dtype = tensor_type(call).dtype
    shift, factor = (
        draft.weights(array.astype(np.float32), dtype) for array in (bias - mean * factor, factor)
    )
    x = draft.exact(call.args[0])
    rank = len(sizes(call))
    if rank < 4:  # the library asks for at least two dimensions behind the channels
        x = draft.reshape(x, (*sizes(call), *(1,) * (4 - rank)))
    mode = member(draft.trt.ScaleMode, "CHANNEL")
    layer = draft.network.add_scale_nd(
        x, mode, shift, factor, draft.trt.Weights(draft.type_of(dtype)), 1
    )
    return draft.reshape(draft.output_of(layer), sizes(call))


def _lower_l2_normalize(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    x, axes = draft.exact(call.args[0]), (attrs.axis,)
    part = draft.binary(x, x, "PROD") if attrs.p == 2 else draft.unary(x, "ABS")
    length = draft.reduce(part, "SUM", axes, keep=True)
    if attrs.p == 2:
        length = draft.unary(length, "SQRT")
    empty = draft.binary(length, draft.number(0, length), "EQUAL")
    return draft.binary(x, draft.select(empty, draft.number(1, length), length), "DIV")


ROWS = (
    operator_row("nn.softmax", _lower_softmax),
    operator_row("nn.log_softmax", _lower_log_softmax),
    operator_row("nn.layer_norm", _lower_layer_norm),
    operator_row("nn.rms_norm", _lower_rms_norm),
    operator_row("nn.instance_norm", _lower_instance_norm),
    operator_row("nn.group_norm", _lower_group_norm),
    operator_row("nn.batch_norm", _lower_batch_norm, constant=(1, 2, 3, 4), dtypes=WEIGHED),
    operator_row("nn.l2_normalize", _lower_l2_normalize),
)
