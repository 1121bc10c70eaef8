# SPDX-License-Identifier: Apache-2.0
"""Weights of convolutions as the library sees them: groups apart, output channels first."""

from __future__ import annotations

from .assembly import Assembly
from .program import PrimitiveNode


def grouped_shape(a: Assembly, node: PrimitiveNode) -> tuple[int, ...]:
    """Return the shape of a convolution's weights, with a dimension of groups if there are any."""
    shape, groups = a.shapes[node.args[1]], node.integer("groups")
    return shape if groups == 1 else (groups, shape[0] // groups, *shape[1:])


def weights_layout(a: Assembly, node: PrimitiveNode, *, transposed: bool) -> int:
    """Describe row-major weights."""
    shape = grouped_shape(a, node)
    layout = a.dnnl.plain(shape, a.dtypes[node.args[1]])
    if not transposed:
        return layout
    first = 1 if node.integer("groups") > 1 else 0
    order = list(range(len(shape)))
    order[first], order[first + 1] = first + 1, first
    return a.dnnl.permuted(layout, order)
