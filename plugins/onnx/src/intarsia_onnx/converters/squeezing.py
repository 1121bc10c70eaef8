# SPDX-License-Identifier: Apache-2.0
"""Dimensions of size 1, left out and put in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import (
    collected_guards,
    guards_apart,
    is_required_at_least,
    require_equal,
)
from intarsia_ir.graph.types import Dim, Size
from intarsia_ir.ops import compare
from intarsia_ir.ops.type_rules import shape_text
from intarsia_runtime.size import minimum, numbers

from ..builder import STATIC_HINT, sizes_of
from ..context import Diverging, NodeContext
from ..flow import Branch


def _axes(node: NodeContext) -> tuple[int, ...] | None:
    if node.has("axes"):
        return node.integers("axes")
    return None if node.optional(1) is None else node.required_ints(1, "the axes")


def squeeze(node: NodeContext) -> Expr:
    """Convert Squeeze."""
    sizes = sizes_of(node.input(0))
    given = _axes(node)
    if given is None:
        return _squeezed(node, sizes)
    axes = node.normal_axes(given, len(sizes))
    why = f"{node.span}: a dimension that is left out must have size 1"
    if any(not require_equal(sizes[axis], 1, why) for axis in axes):
        text = f"axes {axes} of shape {shape_text(sizes)} are not all of size 1"
        wrong = any(size != 1 for size in numbers(sizes[axis] for axis in axes))
        raise node.model_error(text) if wrong else node.unsupported(text, STATIC_HINT)
    return node.reshape(node.input(0), [s for axis, s in enumerate(sizes) if axis not in axes])


def _squeezed(node: NodeContext, sizes: Sequence[Size]) -> Expr:
    """Leave out all dimensions of size 1; each open size is one or is none."""
    kept = [size for size in sizes if size != 1]
    why = f"{node.span}: without axes, an open size of 1 is left out"
    is_open = [isinstance(x, Dim) and not _is_required_not_one(x) for x in kept]
    first = is_open.index(True) if any(is_open) and node.flow is not None else None
    for place, size in enumerate(kept):
        if is_open[place] and first is None and not require_equal(_not_one(size), 1, why):
            raise node.unsupported(
                f"shape {shape_text(sizes)} is only known at run time", STATIC_HINT
            )
    whole = node.reshape(node.input(0), kept)
    if first is None:
        return whole
    size = kept[first]
    with guards_apart() as one:
        require_equal(size, 1, why)
        less = node.reshape(whole, [*kept[:first], *kept[first + 1 :]])
    with guards_apart() as more:
        require_equal(_not_one(size), 1, f"{why} (--shape compiles for a size of 1)")
    is_one = node.call(compare.Equal, node.size_tensor(size), node.array(np.array([1])))
    raise Diverging(
        f"the rank of what Squeeze leaves of {shape_text(sizes)} is only known at run time",
        node.reshape(is_one, ()),
        (Branch((less,), one.guards), Branch((whole,), more.guards)),
        is_repeated=True,
    )


def _not_one(size: Size) -> Size:
    """Return a size that is 1 where ``size`` is any number but 1, and 0 where it is 1."""
    return minimum((size - 1) * (size - 1), 1)


def _is_required_not_one(size: Dim) -> bool:
    """Whether a guard that was collected by now says that a size is not 1."""
    found = ((guard.left, guard.right) for guard in collected_guards())
    return is_required_at_least(size, 2) or (_not_one(size), 1) in found


def unsqueeze(node: NodeContext) -> Expr:
    """Convert Unsqueeze."""
    sizes = sizes_of(node.input(0))
    given = _axes(node)
    if given is None:
        raise node.model_error("has no axes")
    rest = iter(sizes)
    rank = len(sizes) + len(given)
    axes = node.normal_axes(given, rank)
    return node.reshape(node.input(0), [1 if axis in axes else next(rest) for axis in range(rank)])
