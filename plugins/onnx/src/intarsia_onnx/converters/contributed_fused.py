# SPDX-License-Identifier: Apache-2.0
"""Operators of the domain ``com.microsoft`` that ONNX Runtime's optimizer makes of several.

Each becomes the standard operators that it stands for; how they are fused is for the target.
"""

from __future__ import annotations

import math
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import activation, binary, indexing, nn, reduce, unary
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .contributed import DOMAIN
from .convolution import conv
from .elementwise import gelu, hard_sigmoid, leaky_relu, swish
from .linear import gemm, scaled
from .normalization import layer_normalization, rms_normalization
from .shapes import trilu

EPSILON = 1e-12
"""Added to variances by the fused normalizations, where the node says nothing."""


def bias_gelu(node: NodeContext) -> Expr:
    """Convert BiasGelu: exact GELU of a sum."""
    return gelu(node.as_standard("Gelu", [_plus(node, 0, 1)], approximate="none"))


def plain_gelu(node: NodeContext) -> Expr:
    """Convert Gelu as it was before ONNX had it: exact."""
    return gelu(node.as_standard("Gelu", [node.input(0)], approximate="none"))


def fast_gelu(node: NodeContext) -> Expr:
    """Convert FastGelu: GELU by the tanh formula, of a sum if there is a bias."""
    return gelu(node.as_standard("Gelu", [_plus(node, 0, 1)], approximate="tanh"))


def quick_gelu(node: NodeContext) -> Expr:
    """Convert QuickGelu: ``x * sigmoid(alpha * x)``."""
    alpha = node.number("alpha", 1.702)
    return swish(node.as_standard("Swish", [node.input(0)], alpha=alpha))


def skip_layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert SkipLayerNormalization: of a sum of two or three, which may be a result too."""
    total = _plus(node, 0, 1, 4)
    args = [total, node.input(2), node.optional(3)]
    inner = node.as_standard("LayerNormalization", args, epsilon=node.number("epsilon", EPSILON))
    result, *moments = layer_normalization(inner)
    return (result, *(moments or (total, total)), total)  # nobody asks for what is not there


def skip_simplified_layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert SkipSimplifiedLayerNormalization: by the root of the mean of squares of a sum."""
    if node.wants(1) or node.wants(2):
        raise node.unsupported(f"mean and deviation of {node.op_type}")
    total = _plus(node, 0, 1, 3)
    epsilon = node.number("epsilon", EPSILON)
    inner = node.as_standard("RMSNormalization", [total, node.input(2)], epsilon=epsilon)
    result = rms_normalization(inner)
    return (result, total, total, total)


def simplified_layer_normalization(node: NodeContext) -> Expr:
    """Convert SimplifiedLayerNormalization, which ONNX calls RMSNormalization now."""
    node.only_first_output()
    return rms_normalization(node.as_standard("RMSNormalization", [node.input(0), node.input(1)]))


def embed_layer_normalization(node: NodeContext) -> tuple[Expr, ...]:
    """Convert EmbedLayerNormalization: words, places and segments of a text, normalized."""
    words, segments, positions = node.input(0), node.optional(1), node.optional(8)
    take = indexing.Take.Attrs(axis=0)
    total = node.call(indexing.Take, node.input(2), words, attrs=take)
    table = node.input(3)
    if positions is None:
        length = sizes_of(words)[1]
        first = node.slice(table, 0, 0, *extents((length,)))
        total = node.call(binary.Add, total, first)
    else:
        total = node.call(binary.Add, total, node.call(indexing.Take, table, positions, attrs=take))
    if segments is not None:
        segment = node.call(indexing.Take, node.input(4), segments, attrs=take)
        total = node.call(binary.Add, total, segment)
    epsilon = node.number("epsilon", EPSILON)
    args = [total, node.input(5), node.input(6)]
    (result,) = layer_normalization(node.as_standard("LayerNormalization", args, epsilon=epsilon))[
        :1
    ]
    return result, _lengths(node, words), total


def _lengths(node: NodeContext, words: Expr) -> Expr:
    """Return how many words of each text the mask lets through; 0 without one."""
    mask = node.optional(7)
    if mask is None:
        attrs = reduce.Sum.Attrs(axes=(1,), keepdims=False)
        nothing = node.call(binary.Subtract, words, words)
        return node.cast(node.call(reduce.Sum, nothing, attrs=attrs), DType.INT32)
    attrs = reduce.Sum.Attrs(axes=(1,), keepdims=False)
    return node.cast(node.call(reduce.Sum, mask, attrs=attrs), DType.INT32)


def fused_matmul(node: NodeContext) -> Expr:
    """Convert FusedMatMul: ``alpha * A' * B'``."""
    if node.integer("transBatchA", 0) or node.integer("transBatchB", 0):
        raise node.unsupported(f"{node.op_type} with batches moved behind the rows")
    a, b = node.input(0), node.input(1)
    if rank_of(a) < 2 or rank_of(b) < 2:
        raise node.unsupported(f"{node.op_type} of {node.type_of(0)} and {node.type_of(1)}")
    attrs = nn.Matmul.Attrs(
        transpose_a=bool(node.integer("transA", 0)), transpose_b=bool(node.integer("transB", 0))
    )
    return scaled(node, node.call(nn.Matmul, a, b, attrs=attrs), node.number("alpha", 1.0))


def fused_gemm(node: NodeContext) -> Expr:
    """Convert FusedGemm: Gemm and an activation."""
    return _activated(node, gemm(node))


def fused_conv(node: NodeContext) -> Expr:
    """Convert FusedConv: a convolution, what is added to it, and an activation."""
    made = conv(node.as_standard("Conv", [node.optional(index) for index in range(3)]))
    other = node.optional(3)
    if other is not None:
        made = node.call(binary.Add, made, other)
    return _activated(node, made)


def _activated(node: NodeContext, x: Expr) -> Expr:
    """Apply the activation that a fused node names."""
    name = node.string("activation", "")
    numbers = _parameters(node)
    match name:
        case "":
            return x
        case "Relu":
            return node.call(activation.Relu, x)
        case "Sigmoid":
            return node.call(unary.Sigmoid, x)
        case "Tanh":
            return node.call(unary.Tanh, x)
        case "LeakyRelu":
            return leaky_relu(node.as_standard(name, [x], alpha=(*numbers, 0.01)[0]))
        case "HardSigmoid":
            alpha, beta = (*numbers, *(0.2, 0.5)[len(numbers) :])[:2]
            return hard_sigmoid(node.as_standard(name, [x], alpha=alpha, beta=beta))
        case "Clip":
            low, high = (*numbers, *(-math.inf, math.inf)[len(numbers) :])[:2]
            above = node.call(binary.Maximum, x, node.scalar(low, dtype_of(x)))
            return node.call(binary.Minimum, above, node.scalar(high, dtype_of(x)))
        case _:
            raise node.unsupported(f"{node.op_type} with activation='{name}'")


def _parameters(node: NodeContext) -> tuple[float, ...]:
    """Return the numbers of an activation; FusedGemm names them one by one."""
    if node.has("activation_params"):
        return node.numbers("activation_params")
    names = ("activation_alpha", "activation_beta")
    return tuple(node.number(name) for name in names if node.has(name))


def _plus(node: NodeContext, first: int, *others: int) -> Expr:
    """Return the sum of operands, of those that are not left out."""
    total = node.input(first)
    for index in others:
        other = node.optional(index)
        if other is not None:
            total = node.call(binary.Add, total, other)
    return total


CONVERTERS = MappingProxyType(
    {
        "SimplifiedLayerNormalization": simplified_layer_normalization,
        **{
            f"{DOMAIN}::{name}": converter
            for name, converter in {
                "BiasGelu": bias_gelu,
                "EmbedLayerNormalization": embed_layer_normalization,
                "FastGelu": fast_gelu,
                "FusedConv": fused_conv,
                "FusedGemm": fused_gemm,
                "FusedMatMul": fused_matmul,
                "Gelu": plain_gelu,
                "QuickGelu": quick_gelu,
                "SimplifiedLayerNormalization": simplified_layer_normalization,
                "SkipLayerNormalization": skip_layer_normalization,
                "SkipSimplifiedLayerNormalization": skip_simplified_layer_normalization,
                "TransposeMatMul": fused_matmul,
                "Trilu": trilu,
            }.items()
        },
    }
)
"""Converters by domain and name; ONNX Runtime keeps one of its operators in the standard domain."""
