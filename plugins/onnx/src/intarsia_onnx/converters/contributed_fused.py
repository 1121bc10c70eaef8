# SPDX-License-Identifier: Apache-2.0
"""Operators of the domain ``com.microsoft`` that are a few others fused by an optimizer."""

from __future__ import annotations

from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import activation, binary, linalg, unary

from ..builder import rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN, channels_first
from .convolution import conv
from .linear import gemm, product, scaled
from .named_activations import activated
from .pooling import max_pool
from .triangles import trilu


def gelu(node: NodeContext) -> Expr:
    """Convert Gelu."""
    return _gelu(node, node.input(0), approximate=False)


def bias_gelu(node: NodeContext) -> Expr:
    """Convert BiasGelu: Gelu of a sum."""
    return _gelu(node, _sum(node, node.input(0), node.input(1)), approximate=False)


def fast_gelu(node: NodeContext) -> Expr:
    """Convert FastGelu: Gelu by the tanh formula, of a sum if there is a bias."""
    bias = node.optional(1)
    x = node.input(0) if bias is None else _sum(node, node.input(0), bias)
    return _gelu(node, x, approximate=True)


def _gelu(node: NodeContext, x: Expr, *, approximate: bool) -> Expr:
    return node.call(activation.Gelu, x, attrs=activation.Gelu.Attrs(approximate=approximate))


def _sum(node: NodeContext, a: Expr, b: Expr) -> Expr:
    return node.call(binary.Add, a, b)


def quick_gelu(node: NodeContext) -> Expr:
    """Convert QuickGelu: ``x * sigmoid(alpha * x)``."""
    x, alpha = node.input(0), node.number("alpha", 1.702)
    chance = node.call(unary.Sigmoid, scaled(node, x, alpha))
    return node.call(binary.Multiply, x, chance)


def bias_add(node: NodeContext) -> Expr:
    """Convert BiasAdd: data, bias and residual."""
    return _sum(node, _sum(node, node.input(0), node.input(1)), node.input(2))


def bias_split_gelu(node: NodeContext) -> Expr:
    """Convert BiasSplitGelu: the first half of a sum times Gelu of the second half."""
    total = _sum(node, node.input(0), node.input(1))
    axis = rank_of(total) - 1
    size = sizes_of(total)[axis]
    if not isinstance(size, int) or size % 2:
        raise node.model_error(f"the last dimension of {total.type} must be an even number")
    left, right = (node.slice(total, axis, n * size // 2, (n + 1) * size // 2) for n in range(2))
    return node.call(binary.Multiply, left, _gelu(node, right, approximate=False))


def fused_conv(node: NodeContext) -> Expr:
    """Convert FusedConv: a convolution, plus ``Z`` if given, and an activation."""
    result = conv(node)
    if node.optional(3) is not None:
        result = _sum(node, result, node.input(3))
    if not node.has("activation"):
        return result
    return activated(node, result, node.string("activation"), node.numbers("activation_params"))


def fused_gemm(node: NodeContext) -> Expr:
    """Convert FusedGemm: Gemm and an activation."""
    result = gemm(node)
    if not node.has("activation"):
        return result
    names = ("activation_alpha", "activation_beta")
    given = tuple(node.number(name) for name in names if node.has(name))
    return activated(node, result, node.string("activation"), given)


def fused_matmul(node: NodeContext) -> Expr:
    """Convert FusedMatMul and TransposeMatMul: ``alpha * A' * B'``; vectors are not transposed."""
    a, b = (
        _batch_transposed(node, node.input(index), f"transBatch{letter}")
        for index, letter in ((0, "A"), (1, "B"))
    )
    flags = [bool(node.integer(name, 0)) for name in ("transA", "transB")]
    if rank_of(a) > 1 and rank_of(b) > 1:
        result = node.matmul(a, b, transpose_a=flags[0], transpose_b=flags[1])
    else:
        result = product(node, *(_swapped(node, x, f) for x, f in zip((a, b), flags, strict=True)))
    return scaled(node, result, node.number("alpha", 1.0))


def _batch_transposed(node: NodeContext, x: Expr, name: str) -> Expr:
    """Bring the first dimension before the last, behind those of the batch."""
    rank = rank_of(x)
    if not node.integer(name, 0) or rank < 3:
        return x
    return node.transpose(x, (*range(1, rank - 1), 0, rank - 1))


def _swapped(node: NodeContext, x: Expr, flag: bool) -> Expr:
    rank = rank_of(x)
    if not flag or rank < 2:
        return x
    return node.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def nhwc_max_pool(node: NodeContext) -> Expr:
    """Convert NhwcMaxPool: MaxPool of channels that lie last."""
    return channels_first(node, lambda inner: max_pool(inner)[0])


def nhwc_fused_conv(node: NodeContext) -> Expr:
    """Convert NhwcFusedConv: FusedConv whose data, residual and result have channels last."""
    return channels_first(node, fused_conv, (0, 3))


def dynamic_pads(node: NodeContext) -> Expr:
    """Refuse ConvTransposeWithDynamicPads: the size of its result depends on data."""
    raise node.unsupported("ConvTransposeWithDynamicPads: its padding (input 2) is data")


def inverse(node: NodeContext) -> Expr:
    """Convert Inverse."""
    return node.call(linalg.Inverse, node.input(0))


CONVERTERS = MappingProxyType(
    {
        f"{DOMAIN}::{name}": converter
        for name, converter in {
            "BiasAdd": bias_add,
            "BiasGelu": bias_gelu,
            "BiasSplitGelu": bias_split_gelu,
            "ConvTransposeWithDynamicPads": dynamic_pads,
            "FastGelu": fast_gelu,
            "FusedConv": fused_conv,
            "FusedGemm": fused_gemm,
            "FusedMatMul": fused_matmul,
            "Gelu": gelu,
            "Inverse": inverse,
            "NhwcFusedConv": nhwc_fused_conv,
            "NhwcMaxPool": nhwc_max_pool,
            "QuickGelu": quick_gelu,
            "TransposeMatMul": fused_matmul,
            "Trilu": trilu,
        }.items()
    }
)
"""Converters by domain and name."""
