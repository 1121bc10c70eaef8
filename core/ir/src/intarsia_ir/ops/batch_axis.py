# SPDX-License-Identifier: Apache-2.0
"""The batch axis of tensors, and how it comes through operators.

A size of an input is some examples of a batch, or steps of time. What is computed of them has them
at some axis, perhaps together with what is before or behind: six heads of each of ``N`` examples
are ``6 * N`` matrices. The rule of an operator follows the axis from its operands to its result,
and so says that positions along it stay apart; a refusal says how the operator mixes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..graph.expr import Call
from ..graph.op import Op, OpKind
from ..graph.rule_table import RuleTable, guarded_rule
from ..graph.types import TensorType, TupleType, Type


class BatchAxis(Struct, frozen=True):
    """Where a size of ``N`` is in a tensor: ``axis`` has ``outer * N * inner`` elements.

    Attributes:
        axis: The axis, counted from the first.
        outer: How often all positions follow each other.
        inner: Elements of one position that are next to each other.
    """

    axis: int
    outer: int = 1
    inner: int = 1

    def elements(self, size: int) -> int:
        """Return how many elements the axis has if the size is this."""
        return self.outer * size * self.inner


class BatchedCall(Struct, frozen=True):
    """A call for two sizes of a batch, with the batch axes of its operands.

    Attributes:
        calls: The call for the one size and for the other.
        sizes: The sizes.
        operand_axes: Batch axes of the operands; ``None`` for one that does not depend on the size.
    """

    calls: tuple[Call, Call]
    sizes: tuple[int, int]
    operand_axes: tuple[BatchAxis | None, ...]

    @property
    def attrs(self) -> Mapping[str, object]:
        """Attributes for the second size, by name."""
        return asdict(self.calls[1].attrs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the operands for the second size."""
        return tuple(shape_of(arg.type) for arg in self.calls[1].args)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result for the second size; of the first one of several."""
        return shape_of(self.calls[1].type)

    def axes(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is one number or several."""
        value = self.attrs[name]
        return (value,) if isinstance(value, int) else cast("tuple[int, ...]", value)

    def only(self, index: int = 0) -> BatchAxis | None:
        """Return the batch axis of an operand; ``None`` if another operand has one, too."""
        others = (axis for at, axis in enumerate(self.operand_axes) if at != index)
        return self.operand_axes[index] if all(axis is None for axis in others) else None

    def common(self) -> BatchAxis | None:
        """Return the batch axis that all operands have; ``None`` if they differ."""
        return self.operand_axes[0] if len(set(self.operand_axes)) == 1 else None


FollowAxis: TypeAlias = Callable[[BatchedCall], "BatchAxis | None"]
"""Returns the batch axis of a call's result; ``None`` if the call may mix the positions."""


class BatchRule(Struct, frozen=True):
    """How the batch axis comes through an operator.

    Attributes:
        follow: Returns the batch axis of the result.
        resized: Attributes that may differ with the size, as types and ``follow`` check.
    """

    follow: FollowAxis
    resized: frozenset[str] = frozenset()


BATCH_AXES: RuleTable[BatchRule] = RuleTable("batch axis")
"""Every operator's rule; an element-wise operator needs none of its own (:func:`batch_rule_of`)."""


def give_batch_axis(follow: FollowAxis, *ops: type[Op], resized: Iterable[str] = ()) -> None:
    """Register the rule of operators.

    Args:
        follow: Returns the batch axis of the result.
        ops: The operators, or base classes of families.
        resized: Attributes that may differ with the size.
    """
    rule = guarded_rule(follow, "the batch axis of an operator")
    BATCH_AXES.give(BatchRule(rule, frozenset(resized)), *ops)


def batch_axis(*ops: type[Op], resized: Iterable[str] = ()) -> Callable[[FollowAxis], FollowAxis]:
    """Register the decorated rule, see :func:`give_batch_axis`."""

    def register(follow: FollowAxis) -> FollowAxis:
        give_batch_axis(follow, *ops, resized=resized)
        return follow

    return register


def batch_rule_of(op: type[Op]) -> BatchRule | None:
    """Return the rule of an operator: its own, or that of all element-wise ones."""
    if BATCH_AXES.answer(op) is None and op.kind is OpKind.ELEMWISE:
        return _ELEMENTWISE
    return BATCH_AXES.get(op)


def shape_of(type_: Type) -> tuple[int, ...]:
    """Return the shape of a static tensor, or of the first one of a tuple."""
    first = type_.fields[0] if isinstance(type_, TupleType) else type_
    return first.static_shape if isinstance(first, TensorType) else ()


def aligned(call: BatchedCall) -> BatchAxis | None:
    """Element by element: the last axes of all operands meet."""
    rank = len(call.shape)
    found = {
        replace(axis, axis=axis.axis + rank - len(shape))
        for axis, shape in zip(call.operand_axes, call.shapes, strict=True)
        if axis is not None
    }
    return found.pop() if len(found) == 1 else None


_ELEMENTWISE = BatchRule(aligned)


def repeated(call: BatchedCall) -> BatchAxis | None:
    """Positions that are equal to each other, where nothing else is at their axis."""
    shapes = [shape_of(one.type) for one in call.calls]
    axes = [axis for axis, pair in enumerate(zip(*shapes, strict=True)) if pair == call.sizes]
    return BatchAxis(axes[0]) if len(axes) == 1 else None


def kept(call: BatchedCall) -> BatchAxis | None:
    """The result has the axes of the first operand, the only one with a batch."""
    return call.only()


def first_axis(call: BatchedCall) -> BatchAxis | None:
    """The first axis of the first operand is that of independent examples."""
    axis = call.only()
    return axis if axis is not None and axis.axis == 0 else None


def first_axis_of_all(call: BatchedCall) -> BatchAxis | None:
    """All operands have independent examples along their first axis."""
    axis = call.common()
    return axis if axis is not None and axis.axis == 0 else None


def other_axis(call: BatchedCall) -> BatchAxis | None:
    """The operator works along ``axis`` or ``axes``, of which the batch axis is none."""
    axis = call.only()
    name = "axes" if "axes" in call.attrs else "axis"
    return None if axis is None or axis.axis in call.axes(name) else axis


def axis_before(call: BatchedCall) -> BatchAxis | None:
    """The operator works on all axes from ``axis`` on; the batch axis is before them."""
    axis = call.only()
    return axis if axis is not None and axis.axis < call.axes("axis")[0] else None


def reduced(call: BatchedCall) -> BatchAxis | None:
    """Reduced over other axes, which stay as 1 or go."""
    axis = other_axis(call)
    if axis is None:
        return None
    axes = call.axes("axes" if "axes" in call.attrs else "axis")
    shift = 0 if call.attrs["keepdims"] else sum(gone_axis < axis.axis for gone_axis in axes)
    return replace(axis, axis=axis.axis - shift)


def product(call: BatchedCall) -> BatchAxis | None:
    """Rows of the left operand, columns of the right one, or the batch of those that have one."""
    second = next((at for at in range(1, len(call.shapes)) if len(call.shapes[at]) >= 2), 1)
    rank = len(call.shape)
    found: list[BatchAxis] = []
    for index, inner in ((0, -2 if call.attrs["transpose_a"] else -1),
                         (second, -1 if call.attrs["transpose_b"] else -2)):  # fmt: skip
        axis = call.operand_axes[index]
        if axis is None:
            continue
        depth = len(call.shapes[index])
        at = axis.axis - depth
        if depth < 2 or at == inner:
            return None
        found.append(replace(axis, axis=rank + (at if at < -2 else -2 if index == 0 else -1)))
    rest = (axis for at, axis in enumerate(call.operand_axes) if at not in (0, second))
    if any(rest) or len(set(found)) != 1 or (len(found) > 1 and found[0].axis >= rank - 2):
        return None
    return found[0]
