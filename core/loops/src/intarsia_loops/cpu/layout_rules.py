# SPDX-License-Identifier: Apache-2.0
"""Which calls the layout pass converts, and which convolutions stay in the model's layout, NCHW.

These (``nchw_conv.py``) have data and results that are wanted in that layout anyhow, and few
channels on either side, where transposes would cost as much as the products, or are of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from msgspec.structs import replace

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
from intarsia_ir.graph.op import Op, OpKind
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import children, post_order
from intarsia_ir.ops.binary import Add
from intarsia_ir.ops.indexing import Take
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.pooling import PoolAttrs
from intarsia_ir.ops.sampling import GridSample
from intarsia_ir.ops.shape import Reshape, Transpose
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Dim

from ..typical import has_open_size
from .integer_sums import is_quantized_linear, multiplies_bytes
from .nchw_conv import NchwGeometry, nchw_tile
from .operators import PlaneConv, packed_attrs
from .product_panels import transposes_panels
from .relayout import TO_FIRST, moved, packed_deferred, reshaped
from .tiling import CpuTiling

Users: TypeAlias = "Mapping[Expr, Sequence[Expr]]"
"""Node to the nodes that have it as an operand."""

_FEW_INPUTS, _FEW_OUTPUTS, _FEW = 4, 8, 16
"""Channels on a side, or on both, whose products cost no more than transposes."""

_LEAST_WINDOW = 4
"""Elements of a window from which on a pool repays the transposition of its image."""

_FAR = 16
"""Stride from which a line of open length has few results for its length, as a spectrogram has."""

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
    if isinstance(node.attrs, Transpose.Attrs):  # one side of it is in the model's layout
        kinds = kinds[:1] if node.attrs.axes == TO_FIRST else kinds[1:]
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


def uses(
    node: Expr, users: Users, passes_on: Callable[[Call], bool]
) -> Iterator[tuple[Expr, Expr]]:
    """Yield who uses a value, and who uses the results of those that pass it on.

    Args:
        node: The value.
        users: Who uses each node.
        passes_on: Whether the users of a call's result count as users of the value.

    Yields:
        What is used, the value or such a result, and its user.
    """
    seen, waiting = {node}, [node]
    while waiting:
        value = waiting.pop()
        for user in users.get(value, ()):
            yield value, user
            if isinstance(user, Call) and user not in seen and passes_on(user):
                seen.add(user)
                waiting.append(user)


def is_elementwise(node: Call) -> bool:
    """Whether a call computes each element of one tensor from those at the same place."""
    return node.op.kind is OpKind.ELEMWISE and isinstance(node.type, TensorType)


def is_used_in_planes(node: Expr, users: Users) -> bool:
    """Whether a value is wanted in the model's layout only, by element-wise operators or itself."""
    return all(_keeps_planes(*use) for use in uses(node, users, is_elementwise))


def _keeps_planes(value: Expr, user: Expr) -> bool:
    if not isinstance(user, Call):
        return isinstance(user, Tuple)
    if user.op is Reshape:
        return True
    others = [arg for arg in user.args if arg is not value]
    return user.op.kind is OpKind.ELEMWISE and not any(map(_is_large, others))


def is_result(node: Expr, users: Users) -> bool:
    """Whether nothing but element-wise operators lies between a value and the model's results."""

    def keeps_elements(call_: Call) -> bool:
        return call_.op is Reshape or call_.op.kind is OpKind.ELEMWISE

    found = (user for _, user in uses(node, users, keeps_elements))
    return all(
        keeps_elements(user) if isinstance(user, Call) else isinstance(user, Tuple)
        for user in found
    )


def _is_large(operand: Expr) -> bool:
    return not isinstance(operand, Constant) and tensor_type(operand).rank > 2


def follows_lines(node: Call, users: Users, last: Collection[Expr]) -> bool:
    """Whether an element-wise operator of lines follows the layout of its operands.

    If only some of them are channels last, as those in ``last``, its results must be wanted so.
    """
    if node.op.kind is not OpKind.ELEMWISE or not isinstance(node.type, TensorType):
        return False
    if node.type.rank != 3 or not has_open_size(node):
        return False
    lines = [arg for arg in node.args if tensor_type(arg).rank == 3]
    others = [arg for arg in lines if arg not in last and not isinstance(arg, Constant)]
    return not others or _leads_to_line(node, users)


def is_open_take(node: Call) -> bool:
    """Whether rows or columns of an image are picked, as when it is resized to an open size."""
    if node.op is not Take or not has_open_size(node):
        return False
    return tensor_type(node.args[0]).rank == 4 and tensor_type(node.args[1]).rank == 1


def is_line_as_image(node: Call) -> bool:
    """Whether a reshape makes an image of height 1 of a line, or a line of that: channels last they
    are the same.
    """
    shapes = tensor_type(node.args[0]).shape, tensor_type(node).shape
    line, image = sorted(shapes, key=len)
    return len(line) == 3 and image == (*line[:2], 1, line[2]) and has_open_size(node)


def _leads_to_line(node: Expr, users: Users) -> bool:
    """Whether a one-dimensional convolution takes a value, perhaps behind element-wise ones."""

    def is_of_lines(call_: Call) -> bool:
        return is_elementwise(call_) and tensor_type(call_).rank == 3

    found = (user for _, user in uses(node, users, is_of_lines))
    return any(isinstance(user, Call) and user.op is Conv for user in found)


def between_reshapes(node: Call, op: type[Op]) -> tuple[Expr, Call, Call] | None:
    """Return the image that ``node`` enlarges by ``op`` between two reshapes, in six dimensions.

    Args:
        node: What may be the second reshape.
        op: Operator between them.

    Returns:
        The image; the first reshape, and the call between; or ``None``.
    """
    middle = node.args[0] if node.op is Reshape else None
    first = middle.args[0] if isinstance(middle, Call) and middle.op is op else None
    if not isinstance(middle, Call) or not isinstance(first, Call) or first.op is not Reshape:
        return None
    image = first.args[0]
    is_pattern = is_rank4(image.type) and is_rank4(node.type) and tensor_type(middle).rank == 6
    return (image, first, middle) if is_pattern else None


def is_nhwc_pool_profitable(node: Call, tiling: CpuTiling) -> bool:
    """Whether a pool gains more channels last than turning its image round costs: only if a row of
    results does not fill half a vector.
    """
    kind, attrs = tensor_type(node.args[0]), node.attrs
    if kind.rank != 4 or kind.dtype is not DType.FLOAT32 or not isinstance(attrs, PoolAttrs):
        return False
    channels, results = kind.shape[1], tensor_type(node).shape[-1]
    if isinstance(channels, Dim) or channels < tiling.lanes:
        return False
    if prod(attrs.kernel) < _LEAST_WINDOW:
        return False
    return isinstance(results, Dim) or 2 * results < tiling.lanes


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
    if is_open and (not is_line or attrs.strides[1] >= _FAR):
        return False
    if weight.data.nbytes > _MOST_WEIGHTS:
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


def column_product(
    node: Call, attrs: Matmul.Attrs, tiling: CpuTiling, plain: Callable[[Expr], Expr]
) -> Expr | None:
    """Return a product with one column: the column is a row, which meets the rows of the matrix.

    Args:
        node: The product, of known sizes.
        attrs: Its attributes.
        tiling: Register tile of the machine.
        plain: Returns an operand in the model's layout.
    """
    a, b = node.args
    *batch, rows, columns = tensor_type(node).static_shape
    *own, _, _ = tensor_type(b).static_shape
    depth = tensor_type(a).static_shape[-1]
    if columns != 1 or rows == 1 or attrs.transpose_a:
        return None
    if tensor_type(a).dtype is not DType.FLOAT32 or depth < tiling.lanes:
        return None
    row = reshaped(plain(b), (*own, 1, depth))
    made = call(Matmul, row, plain(a), attrs=Matmul.Attrs(transpose_b=True), span=node.span)
    return reshaped(made, (*batch, rows, 1))


def transposed_first(
    node: Call, attrs: Matmul.Attrs, tiling: CpuTiling, plain: Callable[[Expr], Expr]
) -> Expr | None:
    """Return a product with a transposed matrix of the run, which fast loops transpose first.

    Arguments are those of :func:`column_product`.
    """
    a, b = node.args
    kind = tensor_type(b)
    if not attrs.transpose_b or kind.dtype is not DType.FLOAT32:
        return None
    *batch, rows, _ = tensor_type(node).static_shape
    if min(kind.static_shape[-2:]) < tiling.lanes or (rows == 1 and not attrs.transpose_a):
        return None
    if transposes_panels(tiling, kind, batch):
        return None
    axes = (*range(kind.rank - 2), kind.rank - 1, kind.rank - 2)
    own = replace(attrs, transpose_b=False)
    return call(node.op, plain(a), moved(plain(b), axes), attrs=own, span=node.span)
