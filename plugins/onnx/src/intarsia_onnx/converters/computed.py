# SPDX-License-Identifier: Apache-2.0
"""Slice and Pad whose limits, axes, steps or widths the model computes.

Each dimension becomes a gather: which elements it takes is computed as a vector, whose length is a
size that the model computes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from intarsia_ir.graph.expr import Expr
from intarsia_ir.graph.guards import require_at_most
from intarsia_ir.graph.types import Dim, Size
from intarsia_ir.ops import binary, compare, generate, indexing
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import minimum

from ..builder import STATIC_HINT, dtype_of, rank_of, sizes_of
from ..context import NodeContext

TO_ANY_END = ((1 << 31) - 1, (1 << 63) - 1)
"""Ends of a slice that mean the last element, or the first where it goes backward.

ONNX says so up to opset 10, and recommends the least numbers for that later; ONNX Runtime takes
both.
"""


class Numbers(Struct, frozen=True):
    """Arithmetic on int64 scalars of one node."""

    node: NodeContext

    def of(self, value: int) -> Expr:
        """Make a constant."""
        return self.node.scalar(value, DType.INT64)

    def size(self, size: Size) -> Expr:
        """Make a scalar of a size."""
        if isinstance(size, int):
            return self.of(size)
        return self.node.reshape(self.node.size_tensor(size), ())

    def add(self, a: Expr, b: Expr) -> Expr:
        """``a + b``."""
        return self.node.call(binary.Add, a, b)

    def subtract(self, a: Expr, b: Expr) -> Expr:
        """``a - b``."""
        return self.node.call(binary.Subtract, a, b)

    def multiply(self, a: Expr, b: Expr) -> Expr:
        """``a * b``."""
        return self.node.call(binary.Multiply, a, b)

    def within(self, x: Expr, low: Expr, high: Expr) -> Expr:
        """``max(low, min(x, high))``."""
        return self.node.call(binary.Maximum, low, self.node.call(binary.Minimum, x, high))

    def choose(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        """``a`` where the condition holds, else ``b``."""
        return self.node.call(compare.Where, condition, a, b)

    def is_less(self, a: Expr, b: Expr) -> Expr:
        """``a < b``."""
        return self.node.call(compare.Less, a, b)

    def steps(self, span: Expr, step: Expr) -> Expr:
        """How many multiples of ``step``, from 0 on, come before ``span``."""
        away = self.choose(self.is_less(step, self.of(0)), self.of(-1), self.of(1))
        # Division of integers truncates: one less than a step more is rounded up.
        rounded = self.subtract(self.add(span, step), away)
        count = self.node.call(binary.Divide, rounded, step)
        return self.node.call(binary.Maximum, count, self.of(0))

    def as_size(self, value: Expr) -> Size:
        """Return a scalar as a size."""
        known = self.node.folder.sizes(value)
        if known is None:
            return self.node.size_of(value)
        found = known.reshape(-1)[0]
        return found if isinstance(found, Dim) else int(found)

    def range(self, count: Size) -> Expr:
        """``0, 1, ...``, so many."""
        attrs = generate.Arange.Attrs(start=0, stop=extents((count,))[0], step=1, dtype=DType.INT64)
        return self.node.call(generate.Arange, attrs=attrs)


class Spread(Struct, frozen=True):
    """Values for some axes, of which the run may say which, as a scalar for each dimension."""

    numbers: Numbers
    axes: Expr | Sequence[int]
    rank: int

    def spread(self, values: Expr, usual: Sequence[Expr]) -> list[Expr]:
        """Return the value of each dimension, which is the usual one if none is given."""
        node = self.numbers.node
        values = node.cast(values, DType.INT64)
        count = extents(sizes_of(values))[0]
        items = [node.item(values, 0, index) for index in range(count)]
        if not isinstance(self.axes, Expr):
            found = list(usual)
            for axis, item in zip(self.axes, items, strict=True):
                found[axis] = item
            return found
        given = [node.item(self.axes, 0, index) for index in range(count)]
        found: list[Expr] = []
        for axis, value in enumerate(usual):
            for place, item in zip(given, items, strict=True):
                is_here = node.call(compare.Equal, place, self.numbers.of(axis))
                value = self.numbers.choose(is_here, item, value)
            found.append(value)
        return found


def axes_of(node: NodeContext, index: int, rank: int, count: int) -> Expr | tuple[int, ...]:
    """Return the axes that an operand names: numbers, or a vector that counts from the front."""
    if node.optional(index) is None:
        return tuple(range(count))
    known = node.folder.sizes(node.input(index))
    if known is not None:
        return tuple(node.normal_axis(int(axis), rank) for axis in known.reshape(-1))
    given = node.cast(node.input(index), DType.INT64)
    counted = node.call(binary.Add, given, node.scalar(rank, DType.INT64))
    is_back = node.call(compare.Less, given, node.scalar(0, DType.INT64))
    return node.call(compare.Where, is_back, counted, given)


def vector_length(node: NodeContext, index: int, what: str) -> int:
    """Return how many elements an operand has.

    Raises:
        UnsupportedError: Only the run knows.
    """
    shape = node.type_of(index).shape
    if len(shape) != 1 or not isinstance(shape[0], int):
        raise node.unsupported(f"{what} of shape {shape} are not known", STATIC_HINT)
    return shape[0]


def counted_limits(node: NodeContext) -> NodeContext:
    """Return a Slice whose operands have known lengths: where only the run knows how many limits
    there are, there must be one, as where a limit is a slice itself.
    """
    args = list(node.args)
    for number, arg in enumerate(args[1:], start=1):
        if arg is not None and len(sizes_of(arg)) == 1 and isinstance(sizes_of(arg)[0], Dim):
            args[number] = node.reshape(arg, (1,))
    return node.replaced(node.node, args)


def computed_slice(node: NodeContext) -> Expr:
    """Convert a Slice of opset 10 or later, nothing of which need be known."""
    x = node.input(0)
    rank, numbers = rank_of(x), Numbers(node)
    count = vector_length(node, 1, "the starts")
    axes = axes_of(node, 3, rank, count)
    spread = Spread(numbers, axes, rank)
    one, zero = numbers.of(1), numbers.of(0)
    steps = [one] * rank
    if node.optional(4) is not None:
        steps = spread.spread(node.input(4), steps)
    sizes = [numbers.size(size) for size in sizes_of(x)]
    highest = [numbers.subtract(size, one) for size in sizes]
    backward = [numbers.is_less(step, zero) for step in steps]
    chosen = list(zip(backward, highest, [zero] * rank, strict=True))
    first = spread.spread(node.input(1), [numbers.choose(*row) for row in chosen])
    before = numbers.subtract(numbers.of(-1), numbers.of(1 << 62))  # before all, counted too
    last = [numbers.choose(back, before, size) for back, size in zip(backward, sizes, strict=True)]
    last = spread.spread(node.input(2), last)
    touched = range(rank) if isinstance(axes, Expr) else axes
    for axis in touched:
        size, back = sizes[axis], backward[axis]
        low = numbers.choose(back, _first_backward(numbers, first[axis], highest[axis]), zero)
        high = numbers.choose(back, highest[axis], size)
        start = numbers.within(_counted(numbers, first[axis], size), low, high)
        low = numbers.choose(back, numbers.of(-1), zero)
        limit = _counted(numbers, _last(numbers, last[axis], back, before), size)
        end = numbers.within(limit, low, high)
        length = numbers.as_size(numbers.steps(numbers.subtract(end, start), steps[axis]))
        places = node.call(binary.Multiply, numbers.range(length), steps[axis])
        x = _taken(node, x, numbers.add(places, start), axis)
    return x


def _first_backward(numbers: Numbers, start: Expr, highest: Expr) -> Expr:
    """Return where a backward slice begins at the earliest: at the first element, if there is one.

    NumPy takes nothing from a start before the first element; ONNX and ONNX Runtime take that one.
    """
    known = numbers.node.folder.value(start)
    if known is not None and known.reshape(-1)[0] >= -1:  # it is never before the first
        return numbers.of(-1)
    return numbers.node.call(binary.Minimum, highest, numbers.of(0))


def _last(numbers: Numbers, end: Expr, back: Expr, before: Expr) -> Expr:
    """Return where a slice ends; the greatest numbers mean before all where it goes backward."""
    node = numbers.node
    known = node.folder.value(end)
    if known is not None and known.reshape(-1)[0] not in TO_ANY_END:
        return end
    marks = (node.call(compare.Equal, end, numbers.of(mark)) for mark in TO_ANY_END)
    is_mark = node.call(binary.LogicalAnd, node.call(binary.LogicalOr, *marks), back)
    return numbers.choose(is_mark, before, end)


def _counted(numbers: Numbers, place: Expr, size: Expr) -> Expr:
    """Count a negative place from the end."""
    moved = numbers.add(place, size)
    return numbers.choose(numbers.is_less(place, numbers.of(0)), moved, place)


def _taken(node: NodeContext, x: Expr, places: Expr, axis: int) -> Expr:
    return node.call(indexing.Take, x, places, attrs=indexing.Take.Attrs(axis=axis))


def computed_pad(node: NodeContext) -> Expr:
    """Convert a Pad of opset 11 or later whose widths, axes or value the model computes."""
    x, mode = node.input(0), node.string("mode", "constant")
    rank, numbers = rank_of(x), Numbers(node)
    widths = node.input(1)
    count = vector_length(node, 1, "the widths") // 2
    axes = axes_of(node, 3, rank, count)
    spread, zeros = Spread(numbers, axes, rank), [numbers.of(0)] * rank
    low = spread.spread(node.slice(widths, 0, 0, count), zeros)
    high = spread.spread(node.slice(widths, 0, count, 2 * count), zeros)
    value: Expr | None = None
    if mode == "constant":
        given = node.optional(2)
        value = node.scalar(0, dtype_of(x)) if given is None else node.reshape(node.input(2), ())
    for axis in range(rank) if isinstance(axes, Expr) else axes:
        size = numbers.size(sizes_of(x)[axis])
        grown = numbers.as_size(numbers.add(size, numbers.add(low[axis], high[axis])))
        if value is None:
            places = _repeated_places(numbers, mode, grown, size, (low[axis], high[axis]))
        else:  # what is outside is one more element behind all
            places = numbers.subtract(numbers.range(grown), low[axis])
            places = numbers.choose(_inside(numbers, places, size), places, size)
            shape = list(sizes_of(x))
            shape[axis] = 1
            x = node.concat([x, node.broadcast(value, extents(shape))], axis)
        x = _taken(node, x, places, axis)
    return x


def _inside(numbers: Numbers, places: Expr, size: Expr) -> Expr:
    """Whether places are those of elements."""
    not_before = numbers.node.call(compare.GreaterEqual, places, numbers.of(0))
    return numbers.node.call(binary.LogicalAnd, not_before, numbers.is_less(places, size))


def _repeated_places(
    numbers: Numbers, mode: str, grown: Size, size: Expr, widths: tuple[Expr, Expr]
) -> Expr:
    """Return which element is where; what negative widths take away is not repeated."""
    zero, call = numbers.of(0), numbers.node.call
    cut_low, cut_high = (call(binary.Minimum, width, zero) for width in widths)
    kept = numbers.as_size(numbers.add(size, numbers.add(cut_low, cut_high)))
    why = f"{numbers.node.span}: mode '{mode}' has nothing to fill with"
    require_at_most(minimum(grown, 1), kept, why)
    places = numbers.subtract(numbers.range(grown), call(binary.Maximum, widths[0], zero))
    return numbers.subtract(_mirrored(numbers, mode, places, numbers.size(kept)), cut_low)


def _mirrored(numbers: Numbers, mode: str, places: Expr, size: Expr) -> Expr:
    """Return which element is at places outside; inside these are themselves."""
    node, one = numbers.node, numbers.of(1)
    last = numbers.subtract(size, one)
    if mode == "wrap":
        return node.call(binary.FloorMod, places, node.call(binary.Maximum, size, one))
    if mode == "reflect":
        period = node.call(binary.Maximum, node.call(binary.Multiply, last, numbers.of(2)), one)
        turned = node.call(binary.FloorMod, places, period)
        places = node.call(binary.Minimum, turned, numbers.subtract(period, turned))
    return numbers.within(places, numbers.of(0), last)


def is_known(node: NodeContext, *operands: int) -> bool:
    """Whether the values of operands are numbers, or sizes that a model's inputs have."""
    given = [node.optional(index) for index in operands]
    return all(expr is None or node.folder.sizes(expr) is not None for expr in given)
