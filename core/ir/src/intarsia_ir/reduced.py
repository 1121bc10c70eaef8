# SPDX-License-Identifier: Apache-2.0
"""Which convolutions a backend computes with fewer multiplications than they define."""

from __future__ import annotations

from math import prod

from .capabilities import ReducedConvolution
from .graph.expr import Call, tensor_type
from .ops.nn import Conv


def is_reduced(node: Call, reduced: ReducedConvolution) -> bool:
    """Return whether a call is such a convolution; an open size is taken to give enough results.

    Args:
        node: A call of any operator.
        reduced: What the backend states.
    """
    attrs = node.attrs
    rank = len(reduced.kernel) + 2
    if not isinstance(attrs, Conv.Attrs) or node.op is not Conv:
        return False
    if tensor_type(node).rank != rank:
        return False
    outputs, inner, *kernel = tensor_type(node.args[1]).static_shape
    _, _, *results = tensor_type(node).shape
    known = [size for size in results if isinstance(size, int)]
    return (
        tuple(kernel) == reduced.kernel
        and {attrs.groups, *attrs.strides, *attrs.dilation} == {1}
        and min(inner, outputs) >= reduced.channels
        and (len(known) < len(results) or prod(known) >= reduced.results)
    )
