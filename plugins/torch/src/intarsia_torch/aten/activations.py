# SPDX-License-Identifier: Apache-2.0
"""Activation functions with parameters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import activation, binary, compare, unary

from .context import AtenContext, Converter


def _activation(node: AtenContext) -> Expr:
    x = node.tensor("self")
    match node.name:
        case "silu":
            return node.call(activation.Silu, x)
        case "gelu":
            return node.onnx("Gelu", x, approximate=str(node.args.get("approximate")))
        case "leaky_relu":
            return node.onnx("LeakyRelu", x, alpha=float(node.number("negative_slope", 0.01)))
        case "celu":
            return node.onnx("Celu", x, alpha=float(node.number("alpha", 1.0)))
        case "selu":
            return node.onnx("Selu", x)
        case "hardsigmoid":
            return node.onnx("HardSigmoid", x, alpha=1 / 6, beta=0.5)
        case _:
            return node.call(unary.Negative, node.onnx("Softplus", node.call(unary.Negative, x)))


def _elu(node: AtenContext) -> Expr:
    if node.number("scale", 1) != 1 or node.number("input_scale", 1) != 1:
        node.unsupported("scales")
    return node.onnx("Elu", node.tensor("self"), alpha=float(node.number("alpha", 1.0)))


def _softplus(node: AtenContext) -> Expr:
    x = node.tensor("self")
    beta, threshold = node.number("beta", 1), node.scalar(node.number("threshold", 20), node.dtype)
    scaled = x if beta == 1 else node.call(binary.Multiply, x, node.scalar(beta, node.dtype))
    soft = node.onnx("Softplus", scaled)
    if beta != 1:
        soft = node.call(binary.Divide, soft, node.scalar(beta, node.dtype))
    return node.call(compare.Where, node.call(compare.Greater, scaled, threshold), x, soft)


def _prelu(node: AtenContext) -> Expr:
    x, slope = node.tensor("self"), node.tensor("weight")
    rank = len(node.sizes)
    return node.onnx("PRelu", x, node.along(slope, 1, rank) if rank > 1 else slope)


def _glu(node: AtenContext) -> Expr:
    x, sizes = node.tensor("self"), node.sizes
    axis = node.axis("dim", len(sizes))
    half = sizes[axis]
    gate = node.call(unary.Sigmoid, node.slice(x, axis, half, 2 * half))
    return node.call(binary.Multiply, node.slice(x, axis, 0, half), gate)


def _hard_tanh(node: AtenContext) -> Expr:
    x = node.tensor("self")
    low = 0.0 if node.name == "relu6" else node.number("min_val", -1.0)
    high = 6.0 if node.name == "relu6" else node.number("max_val", 1.0)
    return node.onnx("Clip", x, node.scalar(low, node.dtype), node.scalar(high, node.dtype))


_ACTIVATIONS = ("celu", "gelu", "hardsigmoid", "leaky_relu", "log_sigmoid", "selu", "silu")

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(_ACTIVATIONS, _activation),
        **dict.fromkeys(("hardtanh", "relu6"), _hard_tanh),
        "elu": _elu,
        "glu": _glu,
        "prelu": _prelu,
        "softplus": _softplus,
    }
)
