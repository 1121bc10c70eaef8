# SPDX-License-Identifier: Apache-2.0
"""Merge parallel convolutions: the sum of convolutions of one input is one convolution.

Networks are trained with parallel branches, a 3x3 and a 1x1 convolution and the input itself, whose
results are added (RepVGG, https://arxiv.org/abs/2101.03697; MobileOne; FastViT; RepViT). Their
authors' tools merge the branches before an export, which is easily forgotten. A convolution is
linear in its weights: the smaller kernel is added to the taps of the larger one that read the same
elements, and an input with a scale and shift per channel is a kernel of one tap. Weights are
added in float64, and each sum is rounded once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from msgspec import Struct

from ..graph.expr import Call, Constant, Expr, Function, call
from ..graph.module import IRModule
from ..graph.types import TensorType
from ..graph.walk import children, count_uses, post_order, with_children
from ..ops.arrays import Array
from ..ops.binary import Add, Divide, Multiply, Subtract
from ..ops.constants import make_constant, per_channel
from ..ops.nn import Conv
from .base import Pass, Remarks, map_functions
from .fuse_batch_norm import Uses, fold_scale, fold_shift

_STAGE = "merge-parallel-convs"


class _ConvBranch(Struct, frozen=True):
    """A convolution with constant weights.

    Attributes:
        data: What it reads.
        weight: ``(O, C / groups, *K)``; in float64 once it is a sum.
        bias: ``(O,)`` in float64; ``None`` without.
        attrs: Its attributes.
    """

    data: Expr
    weight: Array
    bias: Array | None
    attrs: Conv.Attrs

    def tap_of(self, axis: int, offset: int) -> int | None:
        """Return the tap that reads at an offset from an output's first element; ``None`` if none.

        Args:
            axis: A spatial axis.
            offset: In elements; negative in the padding before.
        """
        tap, rest = divmod(offset + self.attrs.padding[axis][0], self.attrs.dilation[axis])
        return tap if rest == 0 and 0 <= tap < self.weight.shape[2 + axis] else None

    def taps_of(self, other: Conv.Attrs, kernel: tuple[int, ...]) -> tuple[Array, ...] | None:
        """Return for each axis the taps that read what those of another kernel do; or ``None``."""
        found: list[Array] = []
        for axis, size in enumerate(kernel):
            first, step = -other.padding[axis][0], other.dilation[axis]
            taps = [self.tap_of(axis, first + step * tap) for tap in range(size)]
            if None in taps:
                return None
            found.append(np.array(taps))
        return tuple(found)


def merge_parallel_convs(module: IRModule, remarks: Remarks) -> IRModule:
    """Add up the weights of convolutions of one input whose results are added."""

    def merge(function: Function) -> Function:
        return _merge(function, remarks)

    return map_functions(module, merge)


def _merge(function: Function, remarks: Remarks) -> Function:
    old_uses = count_uses((function.body,))
    uses: Uses = {}
    merged: set[Expr] = set()
    renamed: dict[Expr, Expr] = {}
    for node in post_order(function.body):
        result = with_children(node, tuple(renamed[child] for child in children(node)))
        if isinstance(result, Call) and len(result.args) == 2:
            one = _sum(result, uses)
            if one is not None:
                remarks.add(_STAGE, "two branches are one convolution", node.span)
            elif not merged.isdisjoint(result.args):  # what a batch norm of the sum left
                one = _folded(result, uses)
            if one is not None:
                merged.add(one)
                result = one
        renamed[node] = result
        uses[result] = uses.get(result, 0) + old_uses[node]
    body = renamed[function.body]
    return function if body is function.body else replace(function, body=body)


def _folded(node: Call, uses: Uses) -> Expr | None:
    if node.op in (Multiply, Divide):
        return fold_scale(node, uses)
    return fold_shift(node, uses) if node.op in (Add, Subtract) else None


def _sum(node: Call, uses: Uses) -> Expr | None:
    """add(nn.conv(x, v), nn.conv(x, w)) --> nn.conv(x, v + w); add(nn.conv(x, w), x * c) alike"""
    if node.op not in (Add, Subtract) or any(arg.type != node.type for arg in node.args):
        return None
    if not isinstance(node.type, TensorType) or node.type.dtype.bits < 32:  # 1 + w is rounded
        return None
    left, right = (_kernel(arg, uses) for arg in node.args)
    sign = -1.0 if node.op is Subtract else 1.0
    total: _ConvBranch | None = None
    if left is not None and right is not None:
        total = _added(left, right, 1.0, sign) or _added(right, left, sign, 1.0)
    elif left is not None:
        total = _with_input(left, node.args[1], 1.0, sign)
    elif right is not None:
        total = _with_input(right, node.args[0], sign, 1.0)
    return None if total is None else _call(total, node)


def _kernel(expr: Expr, uses: Uses) -> _ConvBranch | None:
    """Return a convolution that nothing else uses."""
    if uses.get(expr, 0) > 1:
        return None
    match expr:
        case Call("nn.conv", (data, Constant() as weight), Conv.Attrs() as attrs):
            return _ConvBranch(data, weight.data, None, attrs)
        case Call(
            "nn.conv", (data, Constant() as weight, Constant() as bias), Conv.Attrs() as attrs
        ):
            wide = bias.data.astype(np.float64)
            return _ConvBranch(data, weight.data, wide, attrs)
        case _:
            return None


def _added(
    wide: _ConvBranch, narrow: _ConvBranch, by: float, by_narrow: float
) -> _ConvBranch | None:
    """Return ``wide * by + narrow * by_narrow`` if all taps of ``narrow`` are taps of ``wide``."""
    same = (narrow.attrs.strides, narrow.attrs.groups) == (wide.attrs.strides, wide.attrs.groups)
    if narrow.data is not wide.data or not same:
        return None
    taps = wide.taps_of(narrow.attrs, narrow.weight.shape[2:])
    if taps is None:
        return None
    weight = wide.weight.astype(np.float64) * by
    weight[:, :, *np.ix_(*taps)] += narrow.weight * by_narrow
    bias = _bias_sum(wide.bias, narrow.bias, by, by_narrow)
    return _ConvBranch(wide.data, weight, bias, wide.attrs)


def _with_input(kernel: _ConvBranch, other: Expr, by: float, by_other: float) -> _ConvBranch | None:
    """Return ``kernel * by + other * by_other`` if that is its input, scaled and shifted."""
    affine = _affine(other, kernel.data)
    if affine is None or set(kernel.attrs.strides) != {1}:
        return None
    spatial = range(kernel.weight.ndim - 2)
    taps = [kernel.tap_of(axis, 0) for axis in spatial]
    if None in taps:
        return None
    scale, shift = affine
    weight = kernel.weight.astype(np.float64) * by
    inner = weight.shape[1]
    outputs = range(weight.shape[0])  # as many as inputs: input and result have one type
    weight[[*outputs], [output % inner for output in outputs], *taps] += scale * by_other
    bias = _bias_sum(kernel.bias, shift, by, by_other)
    return _ConvBranch(kernel.data, weight, bias, kernel.attrs)


def _affine(expr: Expr, data: Expr) -> tuple[Array, Array | None] | None:
    """Return scale and shift per channel if ``expr`` is ``data * scale + shift``."""
    if not isinstance(data.type, TensorType) or not isinstance(data.type.shape[1], int):
        return None
    channels = data.type.shape[1]
    if expr is data:
        return np.ones(channels), None
    match expr:
        case Call("multiply", (a, b)) if data in (a, b):
            scale = per_channel(b if a is data else a, data.type.rank, 1, channels)
            return None if scale is None else (scale, None)
        case Call("add", (Call("multiply") as product, Constant() as constant)):
            inner = _affine(product, data)
            shift = per_channel(constant, data.type.rank, 1, channels)
            return None if inner is None or shift is None else (inner[0], shift)
        case _:
            return None


def _bias_sum(a: Array | None, b: Array | None, by: float, by_b: float) -> Array | None:
    if a is None:
        return None if b is None else b * by_b
    return a * by if b is None else a * by + b * by_b


def _call(kernel: _ConvBranch, node: Call) -> Expr | None:
    """Return the call in place of a sum; ``None`` if a weight is not finite."""
    if not isinstance(node.type, TensorType):
        return None
    operands = (kernel.weight,) if kernel.bias is None else (kernel.weight, kernel.bias)
    made = [make_constant(values, node.type.dtype) for values in operands]
    constants = [value for value in made if value is not None]
    if len(constants) != len(operands):
        return None
    return call(Conv, kernel.data, *constants, attrs=kernel.attrs, span=node.span)


MERGE_PARALLEL_CONVS = Pass(_STAGE, merge_parallel_convs)
