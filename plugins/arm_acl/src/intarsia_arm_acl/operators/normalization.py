# SPDX-License-Identifier: Apache-2.0
"""Softmax and the normalizations."""

from __future__ import annotations

from math import prod
from typing import Any

from intarsia.plugin.accelerator import Code, Match, Support, label_of, op, sizes

from ..draft import AclDraft, AclTensor, real
from .row import AclRow


def _supports_softmax(match: Match) -> Support:
    if len(sizes(match.root)) > 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, "rank above 4")
    return Support.yes()


def accepts_softmax(match: Match) -> Support:
    """Say what the library's ``validate()`` says of a softmax."""
    attrs: Any = match.attrs
    if attrs.axis != len(sizes(match.root)) - 1:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"axis {attrs.axis} is not the innermost")
    return Support.yes()


def _lower_softmax(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    label = label_of(match.root)
    function = "NELogSoftmaxLayer" if match.root.name == "nn.log_softmax" else "NESoftmaxLayer"
    value = draft.value(match.root.args[0])
    result = draft.new_tensor(value.shape, value.dtype)
    axis = len(value.shape) - 1 - attrs.axis
    return draft.add(function, value, result, "1.0f", str(axis), result=result, label=label)


def _supports_batch_norm(match: Match) -> Support:
    rank = len(sizes(match.root))
    if rank != 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {rank}, only 4 is taken")
    return Support.yes()


def _lower_batch_norm(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    label = label_of(match.root)
    data, gamma, beta, mean, variance = (draft.value(arg) for arg in match.root.args)
    result = draft.new_tensor(data.shape, data.dtype)
    epsilon = real(attrs.epsilon)
    return draft.add(
        "NEBatchNormalizationLayer",
        *(data, result, mean, variance, beta, gamma, epsilon, "{activation}"),
        result=result,
        label=label,
        activation="",
    )


def _supports_lrn(match: Match) -> Support:
    attrs: Any = match.attrs
    rank = len(sizes(match.root))
    if rank != 4:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {rank}, only 4 is taken")
    if attrs.size > 2 * sizes(match.root)[1]:
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE, f"size {attrs.size} is beyond twice the channels"
        )
    return Support.yes()


def _accepts_lrn(match: Match) -> Support:
    attrs: Any = match.attrs
    if attrs.size % 2 == 0:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"size {attrs.size} is even")
    return Support.yes()


def _lower_lrn(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    value = draft.value(match.root.args[0])
    result = draft.new_tensor(value.shape, value.dtype)
    numbers = f"{attrs.size}U, {real(attrs.alpha)}, {real(attrs.beta)}, {real(attrs.bias)}"
    info = f"NormalizationLayerInfo(NormType::CROSS_MAP, {numbers})"
    return draft.add(
        "NENormalizationLayer", value, result, info, result=result, label=label_of(match.root)
    )


def _supports_layer_norm(match: Match) -> Support:
    attrs: Any = match.attrs
    shape = sizes(match.root)
    for arg in match.root.args[1:]:
        if prod(sizes(arg)) != prod(shape[attrs.axis :]):
            return Support.no(
                Code.UNSUPPORTED_SHAPE, f"scale or bias of shape {list(sizes(arg))} is broadcast"
            )
    return Support.yes()


def _lower_layer_norm(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    shape, label = sizes(match.root), label_of(match.root)
    rows, columns = prod(shape[: attrs.axis]), prod(shape[attrs.axis :])
    data, *affine = (draft.value(arg) for arg in match.root.args)
    data = draft.view(data, (rows, columns), label)
    value = draft.new_tensor(data.shape, data.dtype)
    epsilon = real(attrs.epsilon)
    draft.add("NEMeanStdDevNormalizationLayer", data, value, epsilon, result=value, label=label)
    multiply = ("1.0f", "ConvertPolicy::SATURATE", "RoundingPolicy::TO_ZERO")
    functions = (
        ("NEPixelWiseMultiplication", multiply),
        ("NEArithmeticAddition", ("ConvertPolicy::SATURATE",)),
    )
    for operand, (function, rest) in zip(affine, functions, strict=False):
        operand = draft.view(operand, (columns,), label)
        result = draft.new_tensor(value.shape, value.dtype)
        value = draft.add(function, value, operand, result, *rest, result=result, label=label)
    return draft.view(value, shape, label)


_SOFTMAX = "the innermost axis, rank 4 at most"

ROWS = (
    *(
        AclRow(
            name,
            op(name),
            _lower_softmax,
            _supports_softmax,
            validates=accepts_softmax,
            doc=_SOFTMAX,
        )
        for name in ("nn.softmax", "nn.log_softmax")
    ),
    AclRow(
        "nn.batch_norm",
        op("nn.batch_norm"),
        _lower_batch_norm,
        _supports_batch_norm,
        constant=(1, 2, 3, 4),
        doc="rank 4",
    ),
    AclRow(
        "nn.lrn",
        op("nn.lrn"),
        _lower_lrn,
        _supports_lrn,
        validates=_accepts_lrn,
        doc="rank 4, odd size",
    ),
    AclRow(
        "nn.layer_norm",
        op("nn.layer_norm"),
        _lower_layer_norm,
        _supports_layer_norm,
        doc="scale and bias of all normalized elements",
    ),
)
