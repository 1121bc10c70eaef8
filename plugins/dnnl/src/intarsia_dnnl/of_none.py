# SPDX-License-Identifier: Apache-2.0
"""Products, reductions and convolutions over no elements, of which oneDNN makes no primitives.

They are done over one element that changes no result: 0 of a sum, 1 of a product. An image without
elements becomes one of zeros, which is a position of the padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from msgspec.structs import replace

from .assembly import Assembly, Home, MemoryTensor
from .names import F32
from .program import AttrValue, PrimitiveNode

_OF_NONE: Mapping[str, float] = MappingProxyType(
    {
        "sum": 0.0,
        "mul": 1.0,
        "max": -np.inf,
        "min": np.inf,
        "mean": np.nan,
        "avg_exclude_padding": np.nan,
    }
)


def is_defined_over_none(node: PrimitiveNode) -> bool:
    """Whether a node makes elements of a tensor without any."""
    whole = node.kind == "pool" and 0 in node.ints("kernel")
    return node.kind in ("conv", "matmul", "reduction") or whole


def over_elements(a: Assembly, node: PrimitiveNode) -> PrimitiveNode:
    """Return a node that reads no tensor without elements, for one that may."""
    if not any(0 in a.shapes[value] for value in node.args) or not is_defined_over_none(node):
        return node
    if node.kind == "conv":
        return _over_padding(a, node)
    if node.kind == "matmul":
        left, right = (tuple(size or 1 for size in a.shapes[value]) for value in node.args[:2])
        zeros = (_filled(a, node, left, 0.0), _filled(a, node, right, 0.0))
        return replace(node, args=(*zeros, *node.args[2:]))
    filled = _filled(a, node, a.shapes[node.result], _OF_NONE[node.text("algorithm")])
    attrs: Mapping[str, AttrValue] = {"algorithm": "linear", "alpha": 1.0, "beta": 0.0}
    return replace(node, kind="eltwise", args=(filled,), attrs=attrs)


def _over_padding(a: Assembly, node: PrimitiveNode) -> PrimitiveNode:
    """Return a convolution whose image has zeros in the place of a position of padding."""
    image = a.shapes[node.args[0]]
    low, high = list(node.ints("padding_low")), list(node.ints("padding_high"))
    for axis, size in enumerate(image[2:]):
        if not size:
            (high if high[axis] else low)[axis] -= 1
    zeros = _filled(a, node, tuple(size or 1 for size in image), 0.0)
    padding: Mapping[str, AttrValue] = {"padding_low": tuple(low), "padding_high": tuple(high)}
    return replace(node, args=(zeros, *node.args[1:]), attrs={**node.attrs, **padding})


def _filled(a: Assembly, node: PrimitiveNode, shape: tuple[int, ...], number: float) -> int:
    """Return a value of one number, which nothing computes."""
    value = a.new_value(node.result)
    a.shapes[value] = shape
    data = np.full(shape, number, np.float32)
    a.keep_alive.append(data)
    buffer = a.new_buffer(Home.CONSTANT, data.nbytes, data.ctypes.data)
    a.values[value] = a.in_layout(
        MemoryTensor(a.dnnl.plain(shape, F32), buffer), a.row_major(value)
    )
    return value
