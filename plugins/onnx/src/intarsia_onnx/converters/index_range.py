# SPDX-License-Identifier: Apache-2.0
"""Indices that the run gives: one that names no element ends the run with an error.

Operators clamp what is out of range, so that compiled code reads only what there is; ONNX calls
such an index an error. The check is a branch with a guard that never holds, chosen if an index is
out of range. Indices that cannot be are not checked. In a model of which nodes run on the host, the
host checks them, between the compiled pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from intarsia_ir.graph.expr import Call, Expr, TupleGetItem, tensor_type
from intarsia_ir.graph.guards import Guard, require_at_most
from intarsia_ir.ops import compare, counted, indexing, reduce, selection, shape, slicing, unary
from intarsia_ir.ops.binary import LogicalAnd
from intarsia_runtime.size import Size

from ..builder import STATIC_HINT, dtype_of, rank_of, sizes_of
from ..context import NodeContext
from ..flow import Branch

NEVER = (0, 1)
"""Two sizes that are not equal."""

_SAME_VALUES = frozenset(
    {
        *(shape.Reshape, shape.Transpose, shape.BroadcastTo, shape.Copy, slicing.StridedSlice),
        *(unary.Cast, indexing.Take, indexing.GatherElements, indexing.GatherNd),
    }
)
"""Operators whose results are among the elements of their first operand."""


def in_range(node: NodeContext, indices: Expr, *sizes: Size) -> Expr:
    """Return the indices of a dimension; a run with one outside of ``[-size, size)`` fails.

    Args:
        node: The node that reads them.
        indices: Integers of any shape.
        sizes: Elements of the dimension; of several dimensions, whose indices are in the last one
            of ``indices``.

    Raises:
        ModelError: They are known, and one is out of range.
    """
    known = node.folder.value(indices)
    if known is not None:
        for number, size in enumerate(sizes):
            column = known if len(sizes) == 1 else known[..., number]
            least = max(int(column.max()) + 1, -int(column.min())) if column.size else 0
            if least > 1 and not require_at_most(least, size, f"{node.span}: {_outside(size)}"):
                raise node.model_error(_outside(size))
        return indices
    conditions = node.folder.conditions
    is_checked = node.flow is not None or conditions is not None
    if not is_checked or all(_has_such_values(node, indices, size) for size in sizes):
        return indices
    most = node.cast(node.size_tensor(*sizes), dtype_of(indices))
    if len(sizes) == 1:
        most = node.reshape(most, ())
    inside = node.call(
        LogicalAnd,
        node.call(compare.GreaterEqual, indices, node.call(unary.Negative, most)),
        node.call(compare.Less, indices, most),
    )
    attrs = reduce.All.Attrs(axes=tuple(range(rank_of(indices))), keepdims=False)
    holds = node.call(reduce.All, inside, attrs=attrs)
    if node.flow is None and conditions is not None:
        conditions.append((holds, node.span, _outside(*sizes)))
        return indices
    return required(node, holds, indices, _outside(*sizes))


def required(node: NodeContext, holds: Expr, value: Expr, why: str) -> Expr:
    """Return a value; a run for which something does not hold fails.

    Args:
        node: The node that reads the value.
        holds: One bool.
        value: The value.
        why: What is wrong.

    Raises:
        UnsupportedError: The model is built without control flow.
    """
    return required_of_all(node, holds, (value,), why)[0]


def required_of_all(
    node: NodeContext, holds: Expr, values: Sequence[Expr], why: str
) -> tuple[Expr, ...]:
    """Return values as :func:`required` does one."""
    if node.flow is None:
        raise node.unsupported(
            f"{node.op_type} of values that must be checked at run time", STATIC_HINT
        )
    guard = Guard(*NEVER, f"{node.span}: {why}")
    wholes = tuple(values)
    branches = (Branch(wholes), Branch(wholes, (guard,)))
    return node.flow.choose(node, holds, branches, computed=wholes)


def in_range_of_many(node: NodeContext, x: Expr, indices: Expr, first: int = 0) -> Expr:
    """Return indices of the dimensions of ``x`` from ``first`` on, in the last one of ``indices``.

    See :func:`in_range`.
    """
    depth = sizes_of(indices)[-1] if rank_of(indices) else 0
    if not isinstance(depth, int) or not 0 < depth <= rank_of(x) - first:
        return indices  # the operator says what is wrong
    return in_range(node, indices, *sizes_of(x)[first : first + depth])


def _outside(*sizes: Size) -> str:
    """Say what is wrong."""
    if len(sizes) == 1:
        return f"an index is outside of the {sizes[0]} elements of its dimension"
    return f"an index is outside of its dimension; they have {', '.join(map(str, sizes))} elements"


def _has_such_values(node: NodeContext, indices: Expr, size: Size) -> bool:
    """Whether what makes the indices makes none but those of a dimension of that size."""
    made = indices
    while isinstance(made, Call) and made.op in _SAME_VALUES:
        made = made.args[0]
    if made in node.folder.counters:
        return _is_at_most(node.folder.counters[made], size)
    field = made.index if isinstance(made, TupleGetItem) else 0
    made = made.tuple if isinstance(made, TupleGetItem) else made
    if not isinstance(made, Call) or not made.args:
        return False
    below = tensor_type(made.args[0]).shape
    if issubclass(made.op, reduce.ArgOp):
        below = (below[cast("reduce.ArgOp.Attrs", made.attrs).axis],)
    elif made.op is selection.TopK and field == 1:
        below = (below[cast("selection.TopK.Attrs", made.attrs).axis],)
    elif made.op is not counted.NonZero or field:
        return False
    return all(_is_at_most(one, size) for one in below)


def _is_at_most(a: Size, b: Size) -> bool:
    """Whether a size is known to be no more than another."""
    return a == b or (isinstance(a, int) and isinstance(b, int) and a <= b)
