# SPDX-License-Identifier: Apache-2.0
"""Activations that an attribute of a node names, with their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from msgspec import Struct

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import activation, binary, unary

from ..builder import dtype_of
from ..context import NodeContext
from .linear import scaled


class NamedActivation(Struct, frozen=True):
    """An activation of a recurrent layer: the name of its ONNX operator, and its parameters."""

    name: str
    params: tuple[float, ...] = ()

    def applied(self, node: NodeContext, x: Expr) -> Expr:
        """Return the activation of ``x``."""
        return activated(node, x, self.name, self.params)


def named_activations(node: NodeContext, names: Sequence[str]) -> list[NamedActivation]:
    """Return the activations of names in any case, with their share of the node's parameters.

    ``activation_alpha`` and ``activation_beta`` have values for those activations alone that take
    one, in order; without, the defaults of the operators hold.

    Raises:
        UnsupportedError: A name is of no activation of recurrent layers.
    """
    alphas, betas = (list(node.numbers(name)) for name in ("activation_alpha", "activation_beta"))
    found: list[NamedActivation] = []
    for given in names:
        name = _RECURRENT.get(given.lower())
        if name is None:
            raise node.never_supported(f"activation '{given}' of {node.op_type}")
        params: list[float] = []
        if name not in _PLAIN and alphas:
            params.append(alphas.pop(0))
        if name in _WITH_BETA and betas:
            params += [*_DEFAULTS.get(name, ())[len(params) : 1], betas.pop(0)]
        found.append(NamedActivation(name, tuple(params)))
    return found


def activated(node: NodeContext, x: Expr, name: str, params: tuple[float, ...]) -> Expr:
    """Apply an activation by the name of its ONNX operator, with its parameters in order.

    Raises:
        ModelError: The activation has no default parameters, and some are missing.
        UnsupportedError: The name is of no activation known here.
    """
    plain = _PLAIN.get(name)
    if plain is not None:
        return node.call(plain, x)
    if name in _WITHOUT_DEFAULTS and len(params) < 2:
        raise node.model_error(f"activation '{name}' needs an alpha and a beta")
    if name not in (*_DEFAULTS, *_WITHOUT_DEFAULTS):
        raise node.unsupported(f"activation '{name}' of {node.op_type}")
    alpha, beta = (*params, *_DEFAULTS.get(name, ())[len(params) :])[:2]
    match name:
        case "Clip":
            return node.call(unary.Clip, x, attrs=unary.Clip.Attrs(min=alpha, max=beta))
        case "HardSigmoid":
            attrs = activation.HardSigmoid.Attrs(alpha=alpha, beta=beta)
            return node.call(activation.HardSigmoid, x, attrs=attrs)
        case "Elu":
            return node.call(activation.Elu, x, attrs=activation.Elu.Attrs(alpha=alpha))
        case "ThresholdedRelu":
            attrs = activation.ThresholdedRelu.Attrs(alpha=alpha)
            return node.call(activation.ThresholdedRelu, x, attrs=attrs)
        case "ScaledTanh":
            return scaled(node, node.call(unary.Tanh, scaled(node, x, beta)), alpha)
        case "Affine":
            shift = node.scalar(beta, dtype_of(x))
            return node.call(binary.Add, scaled(node, x, alpha), shift)
        case _:
            attrs = activation.LeakyRelu.Attrs(alpha=alpha)
            return node.call(activation.LeakyRelu, x, attrs=attrs)


_PLAIN = MappingProxyType(
    {
        "Relu": activation.Relu,
        "Sigmoid": unary.Sigmoid,
        "Softplus": activation.Softplus,
        "Softsign": activation.Softsign,
        "Tanh": unary.Tanh,
    }
)
_WITHOUT_DEFAULTS = ("Affine", "ScaledTanh")
_DEFAULTS = MappingProxyType(
    {
        "Clip": (float("-inf"), float("inf")),
        "Elu": (1.0, 0.0),
        "HardSigmoid": (0.2, 0.5),
        "LeakyRelu": (0.01, 0.0),
        "ThresholdedRelu": (1.0, 0.0),
    }
)
_WITH_BETA = ("Affine", "HardSigmoid", "ScaledTanh")
_RECURRENT = MappingProxyType(
    {name.lower(): name for name in (*_PLAIN, *_DEFAULTS, *_WITHOUT_DEFAULTS) if name != "Clip"}
)
"""Names of the activations of recurrent layers, by what they are in small letters."""
