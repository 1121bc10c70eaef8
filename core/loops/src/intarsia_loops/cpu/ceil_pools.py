# SPDX-License-Identifier: Apache-2.0
"""Pools with ceil_mode as pools without, whose padding at the end is larger by a number.

There are ``(size + before + after - extent) // stride + 1`` windows. Rounding up adds
``stride - 1`` to what is divided, but no window begins behind the input and the padding before it:
that is ``extent - after - 1`` at most. Neither depends on the size, so that the schedules of pools,
of fixed and of open sizes, need to know nothing of ceil_mode.
"""

from __future__ import annotations

from msgspec.structs import replace

from intarsia_ir.graph.expr import Call, Expr, Function, call, tensor_type
from intarsia_ir.graph.types import Dim
from intarsia_ir.graph.walk import rewrite_function
from intarsia_ir.ops.pooling import AvgPool, MaxPool, PoolAttrs
from intarsia_ir.ops.slicing import Pad


def round_down_pools(function: Function) -> Function:
    """Return an equivalent function whose pools have no ceil_mode.

    Padding that counts in an average becomes part of the data, where ceil_mode adds to it: what it
    adds does not count. Pools whose padding reaches a window's size are left, and those of open
    sizes that may have no window: without ceil_mode these are refused when they run.
    """
    return rewrite_function(function, _rounded_down)


def _rounded_down(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or node.op not in (MaxPool, AvgPool):
        return None
    attrs = node.attrs
    if not isinstance(attrs, PoolAttrs) or not attrs.ceil_mode or 0 in tensor_type(node).shape:
        return None
    (data,), padding, extents = node.args, attrs.padding, attrs.windows.extents
    ends = tuple(zip(attrs.strides, extents, padding, strict=True))
    more = [min(stride - 1, extent - after - 1) for stride, extent, (_, after) in ends]
    if min(more) < 0:
        return None
    for size, n, (_, extent, around) in zip(tensor_type(data).shape[2:], more, ends, strict=True):
        if isinstance(size, Dim) and 1 + sum(around) + n < extent:
            return None
    counted = isinstance(attrs, AvgPool.Attrs) and attrs.count_include_pad
    if counted and any(more):
        if any(map(any, padding)):
            widths = ((0, 0), (0, 0), *padding)
            data = call(Pad, data, attrs=Pad.Attrs(widths=widths), span=node.span)
        padding = ((0, 0),) * len(more)
        attrs = replace(attrs, count_include_pad=False)
    longer = tuple((low, high + n) for (low, high), n in zip(padding, more, strict=True))
    own = replace(attrs, padding=longer, ceil_mode=False)
    made = call(node.op, data, attrs=own, span=node.span)
    assert tensor_type(made).shape == tensor_type(node).shape  # by the formula above
    return made
