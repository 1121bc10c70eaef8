# SPDX-License-Identifier: Apache-2.0
"""Which calls the layout pass converts, and which convolutions stay in the model's layout, NCHW.

These (``nchw_conv.py``) have data and results that are wanted in that layout anyhow, and few
channels on either side, where transposes would cost as much as the products, or are of lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

from intarsia_ir.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    Tuple,
    call,
    constant,
    tensor_type,
)
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import children, post_order
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.sampling import GridSample
from intarsia_ir.ops.shape import Reshape
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from ..typical import has_open_size
from .integer_sums import is_quantized_linear, multiplies_bytes
from .nchw_conv import NchwGeometry, nchw_tile
from .operators import PlaneConv, packed_attrs
from .relayout import packed_deferred, reshaped
from .tiling import CpuTiling

Users: TypeAlias = "Mapping[Expr, Sequence[Expr]]"
"""Node to the nodes that have it as an operand."""

_FEW_INPUTS, _FEW_OUTPUTS, _FEW = 4, 8, 16
"""Channels on a side, or on both, whose products cost no more than transposes."""

_MOST_WEIGHTS = 512 * 1024
"""Bytes of weights that each strip may read anew: they stay in the second-level cache."""

_LEAST_FILLED = 0.7
"""Part of the lanes of the tiles of a row that have results."""


def may_convert(node: Call) -> bool:
    """Whether there is a form of a call for channels last or packed weights.

    Of open sizes, samples at places that are computed have none, nor 8-bit operators that
    :func:`multiplies_bytes` does not know, nor images whose channels are not counted.
    """
    if not has_open_size(node) or node.op is Matmul:
        return True
    if node.op is GridSample:
        return False
    if is_quantized_linear(node):
        return multiplies_bytes(node)
    kinds = (node.type, *(arg.type for arg in node.args))
    images = [kind for kind in kinds if isinstance(kind, TensorType) and kind.rank in (3, 4)]
    return not any(isinstance(kind.shape[1], Dim) for kind in images)


def is_rank4(kind: object) -> bool:
    """Whether a type is that of a tensor of four dimensions, as images have."""
    return isinstance(kind, TensorType) and kind.rank == 4


def users_of(function: Function) -> Users:
    """Return who uses each node."""
    users: dict[Expr, list[Expr]] = {}
    for node in post_order(function.body):
        for child in children(node):
            users.setdefault(child, []).append(node)
    return users


def is_used_in_planes(node: Expr, users: Users) -> bool:
    """Whether a value is wanted in the model's layout only, by element-wise operators or itself."""
    for user in users.get(node, ()):
        if isinstance(user, Tuple):
            continue
        if not isinstance(user, Call):
            return False
        if user.op is Reshape:
            continue
        if user.op.kind is not OpKind.ELEMWISE or not is_used_in_planes(user, users):
            return False
        others = [arg for arg in user.args if arg is not node]
        if any(not isinstance(arg, Constant) and tensor_type(arg).rank > 2 for arg in others):
            return False
    return True


def suits_nchw_conv(node: Call, tiling: CpuTiling) -> bool:
    """Whether a convolution of images whose data and results are in the model's layout gains.

    Args:
        node: The convolution.
        tiling: Register tile of the machine.
    """
    attrs, (data, weight) = node.attrs, node.args[:2]
    kind = tensor_type(data)
    if not isinstance(attrs, Conv.Attrs) or not isinstance(weight, Constant):
        return False
    if kind.dtype is not DType.FLOAT32 or tiling.lanes == 1 or tiling.left_lanes is not None:
        return False
    outputs, inner, *kernel = weight.data.shape
    _, _, rows, columns = tensor_type(node).shape
    if min(attrs.strides[1], attrs.dilation[1]) > 1 or (attrs.groups > 1 and inner == 1):
        return False
    if 0 in kind.shape or 0 in weight.data.shape:
        return False
    if kernel == [1, 1]:
        return _suits_points(node, tiling)
    if isinstance(columns, int) and not _fills(columns, outputs // attrs.groups, tiling):
        return False
    is_open, is_line = isinstance(columns, Dim) or isinstance(rows, Dim), kind.shape[2] == 1
    if (is_open and not is_line) or weight.data.nbytes > _MOST_WEIGHTS:
        return False
    own = outputs // attrs.groups
    few = inner <= _FEW_INPUTS or own <= _FEW_OUTPUTS or max(inner, own) <= _FEW
    # Lines have no layout but their own: element-wise operators between them run in it.
    gains = few or (is_line and not is_open and attrs.groups == 1)
    return gains and _geometry(node).strip_size(tiling)[1] > 0


def _suits_points(node: Call, tiling: CpuTiling) -> bool:
    """Whether a 1x1 convolution in groups is one of a line of all pixels.

    Channels last, a group's channels lie apart from pixel to pixel, and fill no whole block.
    """
    attrs, weight = packed_attrs(node, node.args[1]), tensor_type(node.args[1])
    own, inner = attrs.outputs // attrs.groups, weight.static_shape[1]
    if attrs.groups == 1 or inner == 1 or has_open_size(node) or weight.bytes > _MOST_WEIGHTS:
        return False
    is_point = attrs.strides == (1, 1) and not any(map(any, attrs.padding))
    return is_point and _fills(prod(tensor_type(node).static_shape[2:]), own, tiling)


def _fills(columns: int, outputs: int, tiling: CpuTiling) -> bool:
    """Whether the results of a row fill the vectors of its tiles, the last of which overlaps."""
    tile = nchw_tile(tiling, outputs, columns)[1] * tiling.lanes
    return columns >= tile and columns >= _LEAST_FILLED * -(-columns // tile) * tile


def _geometry(node: Call) -> NchwGeometry:
    weight, attrs = node.args[1], packed_attrs(node, node.args[1])
    _, _, rows, columns = tensor_type(node).shape
    inner = tensor_type(weight).static_shape[1]
    own = attrs.outputs // attrs.groups
    return NchwGeometry(inner, own, attrs.windows, (rows, columns))


def plane_conv(node: Call, args: Sequence[Expr], tiling: CpuTiling) -> Expr:
    """Return a convolution of images in the model's layout, of ``args``."""
    data, weight, *bias = args
    assert isinstance(weight, Constant)  # as of what suits
    attrs, shape = packed_attrs(node, weight), tensor_type(node).shape
    is_point = attrs.kernel == (1, 1)
    if is_point:
        batch, channels, *image = tensor_type(data).static_shape
        data = reshaped(data, (batch, channels, 1, prod(image)))
    columns = tensor_type(data).shape[3] if is_point else shape[3]
    rows, _ = nchw_tile(tiling, attrs.outputs // attrs.groups, columns)
    deferred = packed_deferred(weight.data, ("conv", attrs.groups, rows))
    packed = constant(deferred, name=weight.name, span=weight.span)
    result = call(PlaneConv, data, packed, attrs=attrs, span=node.span)
    for term in bias:
        column = reshaped(term, (*tensor_type(term).shape, 1, 1))
        result = call(Add, result, column, span=node.span)
    return reshaped(result, shape) if is_point else result
