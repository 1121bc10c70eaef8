# SPDX-License-Identifier: Apache-2.0
"""Convolutions and products with constant weights as operators on bfloat16 (``bf16x2.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import asdict

from intarsia_ir.graph.expr import Call, Constant, Expr, call, tensor_type

from .bf16_storage import bf16_blocks
from .bf16x2 import Bf16ConvAttrs, Bf16DenseAttrs, Bf16x2Conv, Bf16x2Dense, padded_channels
from .operators import packed_attrs
from .quantize import padded
from .tiling import CpuTiling

Pack: TypeAlias = Callable[[Expr, tuple[object, ...]], Expr]
"""``pack(weight, how)``: the weight as ``relayout.packed_deferred`` has it."""


def bf16x2_conv(node: Call, source: Expr, tiling: CpuTiling, pack: Pack) -> Expr:
    """Return a convolution of images in bfloat16.

    Args:
        node: The convolution of float32.
        source: Its data, channels last.
        tiling: Of a machine that multiplies bfloat16.
        pack: Packs the weight.
    """
    weight = node.args[1]
    plain = packed_attrs(node, weight)
    groups, channels = plain.groups, padded_channels(tensor_type(weight).static_shape[1])
    width, paired = bf16_blocks(plain.outputs // groups, channels, tiling)
    packed = pack(weight, ("pair_conv", groups, width, paired))
    attrs = Bf16ConvAttrs(**asdict(plain), is_paired=paired)
    source = padded(source, channels * groups, 0)
    return call(Bf16x2Conv, source, packed, attrs=attrs, span=node.span)


def bf16x2_dense(node: Call, source: Expr, tiling: CpuTiling, pack: Pack, *, flipped: bool) -> Expr:
    """Return a product with a constant matrix in bfloat16.

    Args:
        node: The product of float32.
        source: Its rows.
        tiling: Of a machine that multiplies bfloat16.
        pack: Packs the weight.
        flipped: Whether the weight is transposed.
    """
    weight = node.args[1]
    assert isinstance(weight, Constant)  # as of what runs in bfloat16
    depth, outputs = weight.data.shape[::-1] if flipped else weight.data.shape
    width, paired = bf16_blocks(outputs, depth, tiling)
    packed = pack(weight, ("pair_dense", flipped, width, paired))
    attrs = Bf16DenseAttrs(outputs=outputs, is_paired=paired)
    return call(Bf16x2Dense, source, packed, attrs=attrs, span=node.span)
