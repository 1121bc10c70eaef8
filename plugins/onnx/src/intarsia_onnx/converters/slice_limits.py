# SPDX-License-Identifier: Apache-2.0
"""Where slices begin and end: known numbers, sizes, and values that the model computes."""

from __future__ import annotations

from intarsia_ir.graph.expr import Call, Expr, tensor_type
from intarsia_ir.graph.guards import is_implied_natural, require_at_most
from intarsia_ir.graph.types import Dim, Size
from intarsia_ir.ops import binary, compare, slicing
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import maximum, minimum

from ..context import NodeContext
from ..run_sizes import Hole, Partial
from .computed import TO_ANY_END


def is_reversal(start: Partial, end: Partial) -> bool:
    """Whether a backward slice begins at the last element and ends at the first."""
    is_last = isinstance(start, int) and (start == -1 or start in TO_ANY_END)
    return is_last and isinstance(end, int) and (end <= 1 - (1 << 31) or end in TO_ANY_END)


def known_limits(size: int, start: Size, end: Size, step: int) -> tuple[int, int, int]:
    """Return where a slice of known limits begins and ends; backward unlike in NumPy."""
    begin, stop, step = slice(start, end, step).indices(size)
    if step < 0:
        begin = max(begin, min(0, size - 1))  # before the first element means that element
        stop = -1 if end in TO_ANY_END else stop
    return begin, stop, step


def limit_tensor(node: NodeContext, limit: Partial) -> Expr:
    """Return where a slice begins or ends as a vector of one element."""
    if not isinstance(limit, Hole):
        return node.size_tensor(limit)
    flat = node.reshape(node.cast(limit.expr, DType.INT64), (tensor_type(limit.expr).elements,))
    return node.slice(flat, 0, limit.index, limit.index + 1)


def computed_limits(
    node: NodeContext, size: Size, start: Partial, end: Partial
) -> tuple[Size, Size]:
    """Return where a slice begins and ends whose limits the model computes."""
    zero, whole = node.scalar(0, DType.INT64), node.size_tensor(size)

    def within(place: Expr) -> Expr:
        is_counted = node.call(compare.Less, place, zero)
        place = node.call(compare.Where, is_counted, node.call(binary.Add, place, whole), place)
        return node.call(binary.Minimum, node.call(binary.Maximum, place, zero), whole)

    first, last = within(limit_tensor(node, start)), within(limit_tensor(node, end))
    length = node.call(binary.Subtract, node.call(binary.Maximum, last, first), first)
    begin, count = _known_or_size(node, first), _known_or_size(node, length)
    # x[i : i + 1] has one element, or none: as such a size it need not be a row that is repeated.
    return begin, begin + (minimum(1, count) if _are_neighbors(node, start, end) else count)


def _are_neighbors(node: NodeContext, start: Partial, end: Partial) -> bool:
    """Whether a limit that the model computes is one more than another."""
    if not isinstance(start, Hole) or not isinstance(end, Hole):
        return False
    (first, low), (last, high) = _origin(node, start), _origin(node, end)
    return first == last and high - low == 1


def _origin(node: NodeContext, limit: Hole) -> tuple[Hole, int]:
    """Return the value that a limit is a number more than, and that number."""
    more = 0
    while isinstance(limit.expr, Call) and limit.expr.op is binary.Add:
        parts = [node.folder.partial_sizes(arg) for arg in limit.expr.args]
        items = [
            item for part in parts if part is not None and part.size == 1 for item in part.flat
        ]
        numbers = [item for item in items if isinstance(item, int)]
        holes = [item for item in items if isinstance(item, Hole)]
        if len(numbers) != 1 or len(holes) != 1:
            break
        more += int(numbers[0])
        (limit,) = holes
    return limit, more


def _known_or_size(node: NodeContext, value: Expr) -> Size:
    """Return the only element of an integer tensor as a size."""
    known = node.folder.sizes(value)
    if known is None:
        return node.size_of(value)
    found = known.reshape(-1)[0]
    return found if isinstance(found, Dim) else int(found)


_NO_LIMIT = 10**9
"""From here on exporters mean the end of a dimension: TensorFlow's write 10^9, others 2^31 - 1."""


def open_limits(size: Size, start: Size, end: Size) -> tuple[Size, Size]:
    """Return where a slice of an open size begins and ends, within the size.

    A limit of 10^9 is the end: ``min(10^9, N)`` would be another size than ``N``. A guard keeps
    larger dimensions out. A limit such as ``N // 2 - 2`` is counted from the end where it is below
    zero, which its size says: ``min(max(-limit, 0), 1)`` is 1 there, and 0 elsewhere.
    """

    def within(place: Size) -> Size:
        if place != 0 and maximum(place, 0) == 0:  # counted from the end, unless -n is 0
            return maximum(size + place, 0) * minimum(0 - place, 1)
        if isinstance(place, Dim) and maximum(place, 0) != place and not is_implied_natural(place):
            is_negative = minimum(maximum(0 - place, 0), 1)
            # Below zero, n - 1 is -1 of no elements.
            from_end = 0 if size - place == 1 else size * is_negative
            place = maximum(place + from_end, 0)
        if not isinstance(place, int) or place < _NO_LIMIT:
            return minimum(place, size)
        if place < slicing.TO_END:
            require_at_most(size, place, "Slice: the limit means the end of the dimension")
        return size

    return within(start), within(end)
