# SPDX-License-Identifier: Apache-2.0
"""Element-wise functions of one operand, and of two with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from intarsia.plugin.accelerator import (
    Call,
    Code,
    Match,
    Support,
    label_of,
    op,
    scalar,
    sizes,
)

from ..draft import AclDraft, AclTensor, real
from .row import AclRow, is_of_bytes

_FUNCTION = "ActivationLayerInfo::ActivationFunction"

_ACTIVATIONS = {
    "nn.relu": "RELU",
    "sigmoid": "LOGISTIC",
    "tanh": "TANH, 1.0f, 1.0f",
    "sqrt": "SQRT",
    "abs": "ABS",
    "nn.hard_swish": "HARD_SWISH",
}
"""Operators that are one activation of the library."""

_UNARY = {
    "exp": "NEExpLayer",
    "negative": "NENegLayer",
    "round": "NERoundLayer",
}
"""Operators that are a function of their own."""


_INEXACT = {
    "log": "the library gives finite numbers where the logarithm is infinite or none",
    "rsqrt": "the library gives no number where the root is 0",
    "sin": "the library gives no number for large operands",
}
"""Operators whose function of the library is wrong for some operands."""


class _Activation(Struct, frozen=True):
    """An activation with fixed parameters."""

    text: str

    def lower(self, draft: AclDraft, match: Match) -> AclTensor:
        """Append it."""
        value = draft.value(match.root.args[0])
        return draft.activate(value, f"{_FUNCTION}::{self.text}", label_of(match.root))


class _Unary(Struct, frozen=True):
    """A function of one tensor."""

    function: str

    def lower(self, draft: AclDraft, match: Match) -> AclTensor:
        """Append it."""
        value = draft.value(match.root.args[0])
        result = draft.new_tensor(value.shape, value.dtype)
        return draft.add(self.function, value, result, result=result, label=label_of(match.root))


def _lower_leaky_relu(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    text = f"{_FUNCTION}::LEAKY_RELU, {real(attrs.alpha)}"
    return draft.activate(draft.value(match.root.args[0]), text, label_of(match.root))


def _lower_elu(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    text = f"{_FUNCTION}::ELU, {real(attrs.alpha)}"
    return draft.activate(draft.value(match.root.args[0]), text, label_of(match.root))


def _lower_hard_sigmoid(draft: AclDraft, match: Match) -> AclTensor:
    """``max(0, min(1, alpha * x + beta))``: a linear function, then a bounded one."""
    attrs: Any = match.attrs
    label = label_of(match.root)
    linear = f"{_FUNCTION}::LINEAR, {real(attrs.alpha)}, {real(attrs.beta)}"
    value = draft.activate(draft.value(match.root.args[0]), linear, label)
    return draft.activate(value, f"{_FUNCTION}::LU_BOUNDED_RELU, 1.0f, 0.0f", label)


def _is_real(call: Call) -> bool:
    return not is_of_bytes(call)


def _supports_clip(match: Match) -> Support:
    attrs: Any = match.attrs
    if math.isnan(attrs.min) or math.isnan(attrs.max) or attrs.min > attrs.max:
        return Support.no(Code.UNSUPPORTED_ATTRIBUTE, f"an empty range: {attrs.min} to {attrs.max}")
    return Support.yes()


def _lower_clip(draft: AclDraft, match: Match) -> AclTensor:
    attrs: Any = match.attrs
    text = f"{_FUNCTION}::LU_BOUNDED_RELU, {real(attrs.max)}, {real(attrs.min)}"
    return draft.activate(draft.value(match.root.args[0]), text, label_of(match.root))


def _supports_power(match: Match) -> Support:
    if scalar(match.root.args[1]) != 2.0 or sizes(match.root) != sizes(match.root.args[0]):
        return Support.no(
            Code.UNSUPPORTED_ATTRIBUTE,
            "the exponent is not 2; the library's power is wrong for negative numbers",
        )
    return Support.yes()


_BINARY = {
    "add": ("NEArithmeticAddition", ("ConvertPolicy::SATURATE",)),
    "subtract": ("NEArithmeticSubtraction", ("ConvertPolicy::SATURATE",)),
    "multiply": (
        "NEPixelWiseMultiplication",
        ("1.0f", "ConvertPolicy::SATURATE", "RoundingPolicy::TO_ZERO"),
    ),
    "divide": ("NEElementwiseDivision", ()),
    "maximum": ("NEElementwiseMax", ()),
    "minimum": ("NEElementwiseMin", ()),
}
"""Operator to function and the arguments after the tensors.

Their ``validate()`` refuses an activation at the end, so none is fused behind them.
"""


def _lower_binary(draft: AclDraft, match: Match) -> AclTensor:
    function, rest = _BINARY[match.root.name]
    left, right = (draft.value(arg) for arg in match.root.args)
    result = draft.new_tensor(sizes(match.root), left.dtype)
    return draft.add(
        function,
        *(left, right, result, *rest),
        result=result,
        label=label_of(match.root),
    )


def _lower_prelu(draft: AclDraft, match: Match) -> AclTensor:
    data, slope = (draft.value(arg) for arg in match.root.args)
    result = draft.new_tensor(data.shape, data.dtype)
    label = label_of(match.root)
    return draft.add("NEPReluLayer", data, slope, result, result=result, label=label)


def _with_attribute(name: str, lower: Callable[[AclDraft, Match], AclTensor]) -> AclRow:
    return AclRow(name, op(name), lower)


ROWS = (
    *(AclRow(name, op(name), _Activation(text).lower) for name, text in _ACTIVATIONS.items()),
    *(AclRow(name, op(name), _Unary(function).lower) for name, function in _UNARY.items()),
    _with_attribute("nn.leaky_relu", _lower_leaky_relu),
    _with_attribute("nn.elu", _lower_elu),
    _with_attribute("nn.hard_sigmoid", _lower_hard_sigmoid),
    AclRow("clip", op("clip", where=_is_real), _lower_clip, _supports_clip),
    AclRow(
        "power",
        op("power"),
        _Activation("SQUARE").lower,
        _supports_power,
        doc="the exponent is the constant 2",
    ),
    *(AclRow.refused(name, why, checks_dtypes=True) for name, why in _INEXACT.items()),
    *(AclRow(name, op(name), _lower_binary) for name in _BINARY),
    AclRow("nn.prelu", op("nn.prelu"), _lower_prelu),
)
