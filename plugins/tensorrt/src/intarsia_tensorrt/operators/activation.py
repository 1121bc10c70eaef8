# SPDX-License-Identifier: Apache-2.0
"""Activation functions: one layer each, or a few."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from msgspec import Struct

from intarsia.plugin.accelerator import Call, Support, operator_row

from ..draft import NetworkDraft, Tensor
from .row import attribute


class Activation(Struct, frozen=True):
    """One ``ActivationType``, with fixed parameters or with the operator's attributes.

    Attributes:
        kind: Its name.
        alpha: Attribute or number that becomes ``alpha``.
        beta: Attribute or number that becomes ``beta``.
    """

    kind: str
    alpha: str | float = 0.0
    beta: str | float = 0.0

    def lower(self, draft: NetworkDraft, call: Call) -> Tensor:
        """Apply it."""
        alpha, beta = (_parameter(call, given) for given in (self.alpha, self.beta))
        return draft.activation(draft.value(call.args[0]), self.kind, alpha, beta)


def _parameter(call: Call, given: str | float) -> float:
    if isinstance(given, str):
        return float(getattr(call.attrs, given))
    return given


_ACTIVATIONS = MappingProxyType(
    {
        "nn.relu": Activation("RELU"),
        "sigmoid": Activation("SIGMOID"),
        "tanh": Activation("TANH"),
        "nn.leaky_relu": Activation("LEAKY_RELU", "alpha"),
        "nn.elu": Activation("ELU", "alpha"),
        "nn.selu": Activation("SELU", "alpha", "gamma"),
        "nn.hard_sigmoid": Activation("HARD_SIGMOID", "alpha", "beta"),
        "nn.softplus": Activation("SOFTPLUS", 1.0, 1.0),
        "nn.softsign": Activation("SOFTSIGN"),
        "nn.thresholded_relu": Activation("THRESHOLDED_RELU", "alpha"),
    }
)


def _lower_gelu(draft: NetworkDraft, call: Call) -> Tensor:
    attrs: Any = call.attrs
    kind = "GELU_TANH" if attrs.approximate else "GELU_ERF"
    return draft.activation(draft.value(call.args[0]), kind)


def _supports_celu(call: Call) -> Support:
    attrs: Any = call.attrs
    return Support.yes() if attrs.alpha > 0 else attribute(f"alpha {attrs.alpha} is not positive")


def _lower_celu(draft: NetworkDraft, call: Call) -> Tensor:
    """``alpha * elu(x / alpha)``."""
    attrs: Any = call.attrs
    x = draft.value(call.args[0])
    bent = draft.activation(draft.binary(x, draft.number(attrs.alpha, x), "DIV"), "ELU", 1.0)
    return draft.binary(bent, draft.number(attrs.alpha, bent), "PROD")


def _lower_hard_swish(draft: NetworkDraft, call: Call) -> Tensor:
    x = draft.value(call.args[0])
    return draft.binary(x, draft.activation(x, "HARD_SIGMOID", 1 / 6, 0.5), "PROD")


def _lower_silu(draft: NetworkDraft, call: Call) -> Tensor:
    x = draft.value(call.args[0])
    return draft.binary(x, draft.activation(x, "SIGMOID"), "PROD")


def _lower_mish(draft: NetworkDraft, call: Call) -> Tensor:
    x = draft.value(call.args[0])
    grown = draft.activation(x, "SOFTPLUS", 1.0, 1.0)
    return draft.binary(x, draft.activation(grown, "TANH"), "PROD")


def _lower_prelu(draft: NetworkDraft, call: Call) -> Tensor:
    x, slope = draft.level(*(draft.value(arg) for arg in call.args))
    return draft.output_of(draft.network.add_parametric_relu(x, slope))


ROWS = (
    *(operator_row(name, activation.lower) for name, activation in _ACTIVATIONS.items()),
    operator_row("nn.gelu", _lower_gelu),
    operator_row("nn.celu", _lower_celu, _supports_celu, doc="alpha above 0"),
    operator_row("nn.hard_swish", _lower_hard_swish),
    operator_row("nn.silu", _lower_silu),
    operator_row("nn.mish", _lower_mish),
    operator_row("nn.prelu", _lower_prelu),
)
