# SPDX-License-Identifier: Apache-2.0
"""Proves that inputs may be padded along a size, or cut: no result depends on other positions.

The model is imported for two values of the size and both graphs are walked side by side. The place
of the size is followed from the inputs through every operator by its rule, which must treat the
positions alike and apart (:mod:`intarsia_ir.ops.batch_axis`). A constant or an attribute that
differs depends on the size, which padding would get wrong. Whatever is not known to be right is
refused.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import asdict

from intarsia_runtime.errors import UnsupportedError

from ..graph.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from ..graph.module import IRModule
from ..graph.types import TensorType, TupleType, Type
from ..graph.walk import children, post_order
from ..ops.batch_axis import BATCH_AXES, BatchAxis, BatchedCall, batch_rule_of
from ..passes.base import Pipeline, Remarks
from ..passes.eliminate_dead_code import ELIMINATE_DEAD_CODE
from ..passes.fold_constants import FOLD_CONSTANTS
from ..passes.inline_lets import INLINE_LETS
from ..passes.select_branches import SELECT_BRANCHES

_OTHER = "the model does something else for another size"
_CALCULATED = Pipeline(
    "calculated", (INLINE_LETS, FOLD_CONSTANTS, SELECT_BRANCHES, ELIMINATE_DEAD_CODE)
)
"""What is computed of shapes becomes constants, nothing else changes."""


def calculated(module: IRModule) -> IRModule:
    """Return a module as it is compared; the same once more if it is that already."""
    return _CALCULATED.run(module, remarks=Remarks())


def check_padding(
    first: IRModule, second: IRModule, sizes: tuple[int, int], name: str, *, cut: bool = False
) -> None:
    """Refuse a size along which inputs cannot be padded, nor cut.

    Args:
        first: The model for ``sizes[0]``.
        second: The same model for ``sizes[1]``, all else equal.
        sizes: Two different sizes. The second is at least 2; the first may be 1, where a model may
            leave out to repeat what there is once.
        name: What the size is called, for the message.
        cut: Whether inputs are to be cut, not padded, for the message.

    Raises:
        UnsupportedError: Results may depend on other positions; the node is named.
    """
    what = f"inputs cannot be {'run piece by piece' if cut else 'padded'} along size '{name}'"
    one, other = (calculated(module).main.body for module in (first, second))
    partners = _partners(one, other, what)
    places: dict[Expr, BatchAxis | None] = {}
    for node in post_order(other):
        found = _place(partners[node], node, places, sizes)
        if isinstance(found, str):
            raise _refusal(what, found, node)
        places[node] = found


def output_place(first: Type, second: Type, sizes: tuple[int, int]) -> int | None:
    """Return the axis of a model's output that has exactly the size; ``None`` if none has.

    Raises:
        UnsupportedError: The output depends on the size in another way.
    """
    place = None if first == second else _by_types(first, second, sizes)
    if isinstance(place, str):
        raise UnsupportedError(f"an output is {first} and {second} for the sizes {sizes}")
    return None if place is None else place.axis


def _refusal(what: str, reason: str, node: Expr) -> UnsupportedError:
    return UnsupportedError(
        f"{what}: {reason}",
        hint="name the sizes that are wanted, e.g. 1|4|16: each gets code of its own",
        where=str(node.span),
    )


def _partners(first: Expr, second: Expr, what: str) -> dict[Expr, Expr]:
    """Return for every node of the second graph the one of the first that it stands for.

    Raises:
        UnsupportedError: The graphs are not alike.
    """
    found: dict[Expr, Expr] = {}
    stack = [(first, second)]
    while stack:
        one, other = stack.pop()
        if other in found:
            if found[other] is not one:
                raise _refusal(what, _OTHER, other)
            continue
        found[other] = one
        if _is_left_out(one, other):
            stack.append((one, children(other)[0]))
        elif _is_alike(one, other):
            stack.extend(zip(children(one), children(other), strict=True))
        else:
            raise _refusal(what, _OTHER, other)
    return found


def _is_alike(one: Expr, other: Expr) -> bool:
    """Whether two nodes do the same to as many operands."""
    match one, other:
        case Call(), Call():
            return one.op is other.op and len(one.args) == len(other.args)
        case Tuple(), Tuple():
            return len(one.fields) == len(other.fields)
        case TupleGetItem(), TupleGetItem():
            return one.index == other.index
        case Var(), Var():
            return one.name == other.name
        case _:
            return isinstance(one, Constant) and isinstance(other, Constant)


def _is_left_out(one: Expr, other: Expr) -> bool:
    """Whether the second node repeats what is there as often as needed in the first graph."""
    if not isinstance(other, Call) or other.name != "broadcast_to":
        return False
    same = isinstance(one, Call) and one.op is other.op
    return not same and one.type == other.args[0].type


def _place(
    one: Expr, other: Expr, places: dict[Expr, BatchAxis | None], sizes: tuple[int, int]
) -> BatchAxis | str | None:
    """Return the place of the size in a node, or say in words why it forbids padding."""
    match one, other:
        case Constant(), Constant() if not _same(one.data, other.data):
            place = _by_types(one.type, other.type, sizes)
            repeats = isinstance(place, BatchAxis) and _repeat(one.data, other.data, place.axis)
            return place if repeats else "a constant depends on it"
        case _, TupleGetItem():
            return places[other.tuple]
        case _, Tuple():
            return None
        case Call(), Call() if one.op is other.op:
            operands = tuple(places[arg] for arg in other.args)
            return _call_place(one, other, operands, sizes)
        case _:
            return None if one.type == other.type else _by_types(one.type, other.type, sizes)


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    """Compare element by element as bytes: a NaN is equal to itself."""
    if first is second:
        return True
    one, other = (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second)
    )
    return first.shape == second.shape and np.array_equal(one, other)


def _repeat(first: np.ndarray, second: np.ndarray, axis: int) -> bool:
    """Whether two arrays repeat the same along an axis; sizes of all others are equal."""
    one = first.take([0], axis)
    return bool((first == one).all() and (second == one).all())


def _call_place(
    one: Call, other: Call, operands: tuple[BatchAxis | None, ...], sizes: tuple[int, int]
) -> BatchAxis | str | None:
    place, free = None, frozenset[str]()
    if any(operands) or one.type != other.type:
        if one.type == other.type:
            return f"'{other.name}' mixes the positions along it"
        rule = batch_rule_of(other.op)
        if rule is not None:
            place, free = rule.follow(BatchedCall((one, other), sizes, operands)), rule.resized
        if place is None:
            reason = BATCH_AXES.reason(other.op)
            return f"'{other.name}' may mix the positions along it" + (reason and f" ({reason})")
    mine, yours = (
        {name: value for name, value in asdict(call.attrs).items() if name not in free}
        for call in (one, other)
    )
    if mine != yours:
        return f"an attribute of '{other.name}' depends on it"
    return place if _fits(one.type, other.type, place, sizes) else f"it becomes {other.type}"


def _fits(first: Type, second: Type, place: BatchAxis | None, sizes: tuple[int, int]) -> bool:
    """Whether two types differ as the place says; all fields of a tuple alike."""
    if isinstance(first, TupleType) and isinstance(second, TupleType):
        pairs = zip(first.fields, second.fields, strict=True)
        return all(_fits(one, other, place, sizes) for one, other in pairs)
    if place is None:
        return first == second
    if not isinstance(first, TensorType) or not isinstance(second, TensorType):
        return False
    shapes = [list(first.static_shape), list(second.static_shape)]
    if any(place.axis >= len(shape) for shape in shapes):  # an axis that goes when it has size 1
        return False
    lengths = tuple(shape.pop(place.axis) for shape in shapes)
    wanted = tuple(place.elements(size) for size in sizes)
    return lengths == wanted and shapes[0] == shapes[1] and first.dtype is second.dtype


def _by_types(first: Type, second: Type, sizes: tuple[int, int]) -> BatchAxis | str:
    """Return the one axis in which two types differ, which has the size; else a text."""
    if isinstance(first, TensorType) and isinstance(second, TensorType):
        pairs = zip(first.static_shape, second.static_shape, strict=False)
        axes = [axis for axis, pair in enumerate(pairs) if pair == sizes]
        if len(axes) == 1 and _fits(first, second, BatchAxis(axes[0]), sizes):
            return BatchAxis(axes[0])
    return f"it becomes {first} and {second}"
