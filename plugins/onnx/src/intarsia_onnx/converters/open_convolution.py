# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose weight is an input of open sizes: a product of patches.

Kernels of convolutions pack their weight when they are compiled. Such a weight cannot be packed, so
the data is gathered into a matrix of its windows, and that is multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.graph.guards import require_at_most, require_equal
from intarsia_ir.graph.types import Dim, Size
from intarsia_ir.ops import binary, compare, generate
from intarsia_ir.ops.indexing import Take
from intarsia_ir.ops.slicing import Pad
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import floor_divide, maximum, product

from ..builder import sizes_of
from ..context import NodeContext
from .window import NodeWindow, read_window


def has_open_weight(node: NodeContext) -> bool:
    """Whether a size of the weight, the second operand, is open."""
    return any(isinstance(size, Dim) for size in sizes_of(node.input(1)))


def conv_of_patches(
    node: NodeContext, groups: int, data: Expr, weight: Expr, bias: Expr | None
) -> Expr:
    """Convolve ``data[N, C, *S]`` with ``weight[O, C / groups, *K]`` of open sizes.

    Raises:
        ModelError: An attribute is wrong.
    """
    outputs, inner, *kernel = sizes_of(weight)
    window = _window(node, kernel)
    batch, channels = sizes_of(data)[:2]
    require_equal(channels, inner * groups, f"{node.span}: channels of data and weight")
    own = floor_divide(outputs, groups)
    require_equal(outputs, own * groups, f"{node.span}: the outputs must be as many in each group")
    places: list[Size] = []
    patches = node.call(
        Pad, data, attrs=Pad.Attrs(widths=((0, 0), (0, 0), *window.padding), value=0)
    )
    for axis, taps in enumerate(kernel):
        patches, count = _windows(node, patches, window, axis, taps)
        places.append(count)
    rank, points, depth = len(kernel), product(places), inner * product(kernel)
    # [N, C, *(place, tap)] -> [N, *place, C, *tap] -> [N, groups, points, C / groups * taps]
    turned = node.transpose(patches, [0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2)])
    rows = node.transpose(node.reshape(turned, (batch, points, groups, depth)), [0, 2, 1, 3])
    made = node.matmul(node.reshape(weight, (groups, own, depth)), rows, transpose_b=True)
    result = node.reshape(made, (batch, outputs, *places))
    if bias is None:
        return result
    return node.call(binary.Add, result, node.reshape(bias, (outputs, *[1] * rank)))


def _window(node: NodeContext, kernel: Sequence[Size]) -> NodeWindow:
    """Read the attributes; sizes of the window that no attribute has are left to the run."""
    rank = tensor_type(node.input(0)).rank
    if len(kernel) + 2 != rank:
        raise node.model_error(f"weight {node.type_of(1)} for data {node.type_of(0)}")
    if node.has("kernel_shape"):
        declared = node.integers("kernel_shape")
        for size, wanted in zip(kernel, declared, strict=False):
            require_equal(size, wanted, f"{node.span}: kernel_shape is not the weight's")
        return read_window(node, declared, own_padding=True)
    return read_window(node, (1,) * len(kernel), own_padding=True)


def _windows(
    node: NodeContext, data: Expr, window: NodeWindow, axis: int, taps: Size
) -> tuple[Expr, Size]:
    """Divide a spatial dimension into windows and taps; return the tensor and the windows' number.

    ``auto_pad`` may ask for padding that depends on the number of taps: indices are moved by it,
    and what is read outside is 0.
    """
    place, stride, dilation = 2 + 2 * axis, window.strides[axis], window.dilation[axis]
    size, extent = sizes_of(data)[place], (taps - 1) * dilation + 1
    require_at_most(1, taps, f"{node.span}: a window must have elements")
    auto = node.string("auto_pad", "NOTSET")
    is_same = auto in ("SAME_UPPER", "SAME_LOWER")
    if not is_same:
        require_at_most(extent, size, f"{node.span}: a window must fit into the data")
    covered = size - 1 if is_same else size - extent
    starts = _multiples(node, floor_divide(covered, stride) + 1, stride)
    offsets = _multiples(node, taps, dilation)
    count, width = sizes_of(starts)[0], sizes_of(offsets)[0]
    rows, columns = node.reshape(starts, (count, 1)), node.reshape(offsets, (1, width))
    at = node.call(binary.Add, rows, columns)
    if not is_same:
        return node.call(Take, data, at, attrs=Take.Attrs(axis=place)), count
    total = maximum((count - 1) * stride + extent - size, 0)
    before = floor_divide(total + 1 if auto == "SAME_LOWER" else total, 2)
    at = node.call(binary.Subtract, at, node.size_tensor(before))
    nearest = node.call(binary.Minimum, at, node.size_tensor(size - 1))
    nearest = node.call(binary.Maximum, nearest, node.size_tensor(0))
    taken = node.call(Take, data, nearest, attrs=Take.Attrs(axis=place))
    after = tensor_type(taken).rank - place - 2
    mask = node.reshape(node.call(compare.Equal, at, nearest), (count, width, *[1] * after))
    return node.call(compare.Where, mask, taken, node.scalar(0, tensor_type(taken).dtype)), count


def _multiples(node: NodeContext, count: Size, step: int) -> Expr:
    """Return ``0, step, 2 * step, ...``."""
    attrs = generate.Arange.Attrs(start=0, stop=extents((count,))[0], step=1, dtype=DType.INT64)
    numbers = node.call(generate.Arange, attrs=attrs)
    return node.call(binary.Multiply, numbers, node.scalar(step, DType.INT64))
