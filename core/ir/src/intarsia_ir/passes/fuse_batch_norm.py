# SPDX-License-Identifier: Apache-2.0
"""Fuse batch norm: fold per-channel scales and shifts by constants into convolutions and products.

A batch norm with constant parameters becomes a multiplication and an addition; these, and any
others by a constant per channel, are folded into the weights and bias of the convolution or product
before them if nothing else uses its result. Folding is computed in float64 and rounded once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from intarsia_runtime.dtype import DType

from ..graph.expr import Call, Constant, Expr, Function, call
from ..graph.module import IRModule
from ..graph.types import TensorType
from ..graph.walk import children, count_uses, post_order, with_children
from ..ops.arrays import Array
from ..ops.binary import Add, Divide, Multiply, Subtract
from ..ops.constants import along_axis, make_constant, per_channel
from ..ops.nn import Conv, ConvTranspose, Matmul
from ..ops.normalization import BatchNorm
from ..ops.unary import Cast
from .base import Pass, Remarks, map_functions

Uses: TypeAlias = dict[Expr, int]


def fuse_batch_norm(module: IRModule, _remarks: Remarks) -> IRModule:
    """Fold scales and shifts by constants into the weights of the call before them."""
    return map_functions(module, _fuse)


def _fuse(function: Function) -> Function:
    old_uses = count_uses((function.body,))
    uses: Uses = {}
    renamed: dict[Expr, Expr] = {}
    for node in post_order(function.body):
        rebuilt = with_children(node, tuple(renamed[child] for child in children(node)))
        result = _fuse_call(rebuilt, uses) if isinstance(rebuilt, Call) else rebuilt
        renamed[node] = result
        uses[result] = uses.get(result, 0) + old_uses[node]
    body = renamed[function.body]
    return function if body is function.body else replace(function, body=body)


def _fuse_call(node: Call, uses: Uses) -> Expr:
    if node.op is BatchNorm:
        return _expand_batch_norm(node, uses)
    if node.op in (Multiply, Divide):
        return fold_scale(node, uses) or node
    if node.op in (Add, Subtract):
        return fold_shift(node, uses) or node
    return node


def _expand_batch_norm(node: Call, uses: Uses) -> Expr:
    """nn.batch_norm(x, constants) --> add(multiply(x, scale), shift), folded into x if they can"""
    match node:
        case Call(
            "nn.batch_norm",
            (x, Constant() as gain, Constant() as bias, Constant() as mean, Constant() as var),
            BatchNorm.Attrs(epsilon=epsilon),
        ) if isinstance(x.type, TensorType) and x.type.rank >= 2:
            pass
        case _:
            return node
    given = [value.data.astype(np.float64) for value in (gain, bias, mean, var)]
    with np.errstate(all="ignore"):
        factor = given[0] / np.sqrt(given[3] + epsilon)
        offset = given[1] - given[2] * factor
    on_axis = isinstance(x, Call) and _channel_axis(x) == 1
    folded = _scaled(x, factor, uses) if on_axis else None
    if folded is not None:
        shifted = _shifted(folded, offset)
        if shifted is not None:
            return shifted
    dtype = x.type.dtype
    # A batch norm of 16-bit floats is rounded once, a product and a sum of them would be twice.
    wide_dtype = dtype if folded is not None or dtype.bits > 16 else DType.FLOAT32
    scale = make_constant(along_axis(factor, x.type.rank, 1), wide_dtype)
    shift = make_constant(along_axis(offset, x.type.rank, 1), wide_dtype)
    if scale is None or shift is None:
        return node
    product = folded or call(Multiply, _as_type(x, wide_dtype, node), scale, span=node.span)
    return _as_type(call(Add, product, shift, span=node.span), dtype, node)


def _as_type(value: Expr, dtype: DType, node: Call) -> Expr:
    """x --> cast(x) for ``node``, or ``x`` if that is its element type"""
    if isinstance(value.type, TensorType) and value.type.dtype is dtype:
        return value
    return call(Cast, value, attrs=Cast.Attrs(dtype=dtype), span=node.span)


def fold_scale(node: Call, uses: Uses) -> Expr | None:
    """multiply(nn.conv(x, w, b), s) --> nn.conv(x, w * s, b * s); divide alike"""
    x, factor = _anchor_and_vector(node, commutative=node.op is Multiply)
    if x is None or factor is None:
        return None
    if node.op is Divide:
        with np.errstate(all="ignore"):
            factor = 1.0 / factor
    return _scaled(x, factor, uses)


def fold_shift(node: Call, uses: Uses) -> Expr | None:
    """add(nn.conv(x, w, b), c) --> nn.conv(x, w, b + c); subtract alike"""
    x, offset = _anchor_and_vector(node, commutative=node.op is Add)
    if x is None or offset is None or uses.get(x, 0) > 1:
        return None
    return _shifted(x, -offset if node.op is Subtract else offset)


def _anchor_and_vector(node: Call, *, commutative: bool) -> tuple[Call | None, Array | None]:
    """Return the operand that may be folded into, and the other as float64 per channel."""
    a, b = node.args
    for x, other in ((a, b), (b, a)) if commutative else ((a, b),):
        type_ = x.type
        if isinstance(x, Call) and isinstance(type_, TensorType) and type_ == node.type:
            axis = _channel_axis(x)
            channels = type_.shape[axis] if axis is not None else None
            if axis is not None and isinstance(channels, int) and type_.dtype.is_float:
                vector = per_channel(other, type_.rank, axis, channels)
                if vector is not None:
                    return x, vector
    return None, None


def _channel_axis(x: Call) -> int | None:
    """Return the axis along which the weights of ``x``, or of a biased product, can be scaled."""
    match x:
        case Call("nn.conv" | "nn.conv_transpose"):
            return 1
        case Call("matmul", (_, Constant() as weight)) if weight.type.rank == 2:
            return _rank(x) - 1
        case Call("add", (Call("matmul") as product, Constant())):
            return _channel_axis(product)
        case _:
            return None


def _rank(x: Expr) -> int:
    return x.type.rank if isinstance(x.type, TensorType) else 0


def _scaled(x: Expr, factor: Array, uses: Uses) -> Expr | None:
    """Return ``x`` with its channels multiplied by constants, if that can be folded into it."""
    if uses.get(x, 0) > 1 or not isinstance(x, Call):
        return None
    match x:
        case Call("nn.conv", (data, Constant() as weight, *bias), Conv.Attrs()):
            by = along_axis(factor, weight.type.rank, 0)
            return _rescaled(x, data, weight, by, bias, factor)
        case Call(
            "nn.conv_transpose", (data, Constant() as weight, *bias), ConvTranspose.Attrs(groups=g)
        ):
            return _rescaled(x, data, weight, _transposed_factor(weight, factor, g), bias, factor)
        case Call("matmul", (data, Constant() as weight), Matmul.Attrs(transpose_b=flipped)):
            if weight.type.rank != 2:
                return None
            by = along_axis(factor, 2, 0 if flipped else 1)
            return _rescaled(x, data, weight, by, [], factor)
        case Call("add", (Call("matmul") as product, Constant() as bias)):
            return _scaled_biased_product(x, product, bias, factor, uses)
        case _:
            return None


def _scaled_biased_product(
    x: Call, product: Call, bias: Constant, factor: Array, uses: Uses
) -> Expr | None:
    """multiply(add(matmul(x, w), b), s) --> add(matmul(x, w * s), b * s)"""
    vector = per_channel(bias, _rank(x), _rank(x) - 1, factor.size)
    inner = _scaled(product, factor, uses)
    if vector is None or inner is None or product.type != x.type:
        return None
    moved = make_constant(along_axis(vector * factor, 1, 0), bias.type.dtype)
    return None if moved is None else call(Add, inner, moved, span=x.span)


def _transposed_factor(weight: Constant, factor: Array, groups: int) -> Array:
    """Return the factor of each weight of a transposed convolution, ``(C, O / groups, 1, ...)``."""
    inputs, outputs = weight.data.shape[:2]
    by = np.repeat(factor.reshape(groups, outputs), inputs // groups, axis=0)
    return by.reshape(inputs, outputs, *(1,) * (weight.data.ndim - 2))


def _rescaled(
    x: Call, data: Expr, weight: Constant, by: Array, bias: list[Expr], factor: Array
) -> Expr | None:
    """Return ``x`` with other weights, and with its bias multiplied; ``None`` if not finite."""
    dtype = weight.type.dtype
    new = make_constant(weight.data.astype(np.float64) * by, dtype)
    if new is None:
        return None
    if not bias:
        return call(x.op, data, new, attrs=x.attrs, span=x.span)
    match bias:
        case [Constant() as old]:
            moved = make_constant(old.data.astype(np.float64) * factor, dtype)
            if moved is None:
                return None
            return call(x.op, data, new, moved, attrs=x.attrs, span=x.span)
        case _:
            return None


def _shifted(x: Expr, offset: Array) -> Expr | None:
    """Return ``x`` with constants added to its channels, if they can be folded into its bias."""
    match x:
        case Call("nn.conv" | "nn.conv_transpose", (data, weight)) if isinstance(
            x.type, TensorType
        ):
            made = make_constant(np.ascontiguousarray(offset), x.type.dtype)
            return (
                None if made is None else call(x.op, data, weight, made, attrs=x.attrs, span=x.span)
            )
        case Call("nn.conv" | "nn.conv_transpose", (data, weight, Constant() as bias)):
            total = bias.data.astype(np.float64) + offset
            made = make_constant(total, bias.type.dtype)
            return (
                None if made is None else call(x.op, data, weight, made, attrs=x.attrs, span=x.span)
            )
        case Call("add", (Call("matmul") as product, Constant() as bias)) if product.type == x.type:
            vector = per_channel(bias, _rank(x), _rank(x) - 1, offset.size)
            if vector is None:
                return None
            made = make_constant(along_axis(vector + offset, 1, 0), bias.type.dtype)
            return None if made is None else call(Add, product, made, span=x.span)
        case _:
            return None


FUSE_BATCH_NORM = Pass("fuse-batch-norm", fuse_batch_norm)
