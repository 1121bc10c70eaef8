# SPDX-License-Identifier: Apache-2.0
"""Loops that append rows to a value: it gets more room than it needs, and stays where it is.

``x = concatenate(x, rows)`` in each iteration copies all of ``x`` each time: n appended rows cost
n * n / 2 copies. Here the loop hands on a value with room for rows to come. An iteration writes its
rows behind the others; only where they do not fit, room for twice as many is made and what is there
is copied, as ``std::vector`` does it: every row is copied about once. Behind the loop the rows are
cut out of the room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.control import control_calls
from intarsia_ir.graph.expr import (
    Call,
    Expr,
    Function,
    TupleGetItem,
    Var,
    call,
    get_item,
    make_tuple,
    tensor_type,
)
from intarsia_ir.graph.guards import guards_apart
from intarsia_ir.graph.types import Dim, Size, TensorType, variable
from intarsia_ir.graph.walk import count_uses, rewrite_function, substitute
from intarsia_ir.ops.control import SIZE, Loop
from intarsia_ir.ops.generate import Sizes
from intarsia_ir.ops.shape import Concatenate
from intarsia_ir.ops.slicing import StridedSlice
from intarsia_ir.ops.unary import Cast
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import maximum, minimum

from .append_rows import AppendRows
from .step_planner import names_of

LEAST_ROOM = 8
"""Rows that there is room for when the first one is appended."""


def reserve_rows(functions: Mapping[str, Function]) -> dict[str, Function]:
    """Give values that loops append to room for more.

    Args:
        functions: All of a module, by name. Loops of several sizes carry out functions that no
            other call does.
    """
    callers = Counter(
        name
        for function in functions.values()
        for node, op in control_calls(function)
        for name in op.functions(node.attrs)
    )
    made = dict(functions)
    for name in functions:
        loops = [node for node, op in control_calls(made[name]) if op is Loop]
        found: dict[str, _Reserved] = {}
        for node in loops:
            body = cast("Loop.Attrs", node.attrs).body
            one = _reserved(node, made[body]) if callers[body] == 1 else None
            if one is not None:
                found[body] = one
                made[body] = one.body
        if found:
            made[name] = _with_rooms(made[name], found)
    return made


class _Appended(Struct, frozen=True, eq=False):
    """A value that a loop appends to.

    Attributes:
        number: Of the carried value.
        length: Of the size variable that says how many rows it has.
        axis: The dimension of the rows.
        next: The concatenation that makes it.
    """

    number: int
    length: int
    axis: int
    next: Call


class _Reserved(Struct, frozen=True, eq=False):
    """A loop whose values have room.

    Attributes:
        attrs: Of the call; the rooms follow the other sizes.
        body: What it carries out.
        lengths: Of each room the number of the size that it has room for.
        appended: What has room.
    """

    attrs: Loop.Attrs
    body: Function
    lengths: tuple[int, ...]
    appended: tuple[_Appended, ...]


def _reserved(node: Call, body: Function) -> _Reserved | None:
    """Return a loop with rooms; ``None`` if it appends to nothing."""
    attrs = cast("Loop.Attrs", node.attrs)
    appended = _found(attrs, body)
    if not appended:
        return None
    lengths = tuple(sorted({one.length for one in appended}))
    inner = {n: variable(f"{_name(attrs.iteration_sizes[n])} room") for n in lengths}
    last = {n: variable(f"{_name(attrs.sizes[n])} room") for n in lengths}
    results = list(attrs.results)
    for one in appended:
        results[one.number] = _with_room(results[one.number], one, last[one.length])
    behind = len(attrs.sizes)
    rooms = [SIZE] * len(lengths)
    made = replace(
        attrs,
        results=(*results[:behind], *rooms, *results[behind:]),
        carried=attrs.carried + len(lengths),
        sizes=(*attrs.sizes, *extents(tuple(last.values()))),
        iteration_sizes=(*attrs.iteration_sizes, *extents(tuple(inner.values()))),
        rooms=len(lengths),
    )
    with guards_apart():  # the rows have room, whatever their number is
        return _Reserved(made, _body_with_rooms(attrs, body, appended, inner), lengths, appended)


def _found(attrs: Loop.Attrs, body: Function) -> tuple[_Appended, ...]:
    """Return what a loop appends to and does nothing else with."""
    lengths = {_name(size): n for n, size in enumerate(attrs.iteration_sizes)}
    heads, first = int(attrs.has_condition), int(attrs.takes_iteration)
    uses = count_uses(body.outputs)
    found: list[_Appended] = []
    for number in range(len(attrs.sizes), attrs.carried):
        old, new = body.params[first + number], body.outputs[heads + number]
        if not isinstance(new, Call) or new.op is not Concatenate or new.args[0] is not old:
            continue
        axis, shape = cast("Concatenate.Attrs", new.attrs).axis, tensor_type(old).shape
        size = shape[axis]
        is_alone = uses[new] == 1 and uses[old] == 1 and len(new.args) > 1
        behind = names_of(TensorType(shape[axis + 1 :], tensor_type(old).dtype))
        is_settled = _name(size) in lengths and behind.isdisjoint(lengths)
        if not (is_alone and is_settled) or any(n != 1 for n in shape[:axis]):
            continue
        length = lengths[_name(size)]
        made = body.outputs[heads + length]
        if isinstance(made, Call) and made.op is Sizes:
            found.append(_Appended(number, length, axis, new))
    return tuple(found)


def _body_with_rooms(
    attrs: Loop.Attrs,
    body: Function,
    appended: Sequence[_Appended],
    rooms: Mapping[int, Dim],
) -> Function:
    heads, first = int(attrs.has_condition), int(attrs.takes_iteration)
    behind = first + len(attrs.sizes)
    new_rooms: list[Expr] = []
    excess: Size = 0
    definers: dict[Expr, None] = {}
    sizes: dict[int, Size] = {}
    for number, room in rooms.items():
        made = cast("Call", body.outputs[heads + number])
        (length,) = cast("Sizes.Attrs", made.attrs).sizes
        over = minimum(maximum(length - room, 0), 1)
        sizes[number] = maximum(room, over * (2 * length + LEAST_ROOM))
        excess = maximum(excess, over)
        definers.update(dict.fromkeys(made.args))
        new_rooms.append(_size_tensor(sizes[number], made.args, made))
    any_size = body.outputs[heads + next(iter(rooms))]
    grows = call(
        Cast,
        _size_tensor(excess, tuple(definers), any_size),
        attrs=Cast.Attrs(dtype=DType.BOOL),
        span=any_size.span,
    )
    params, outputs = list(body.params), list(body.outputs)
    replaced: dict[Expr, Expr] = {}
    for one in appended:
        old = params[first + one.number]
        wide = Var(old.name, _with_room(tensor_type(old), one, rooms[one.length]), old.span)
        params[first + one.number] = wide
        start = tensor_type(old).shape[one.axis]
        new_attrs = AppendRows.Attrs(
            axis=one.axis, start=extents((start,))[0], room=extents((sizes[one.length],))[0]
        )
        parts = one.next.args[1:]
        replaced[one.next] = call(
            AppendRows, wide, grows, *parts, attrs=new_attrs, span=one.next.span
        )
    outputs = [substitute(output, replaced) for output in outputs]
    names = [Var(room.name, SIZE) for room in rooms.values()]
    cut = heads + len(attrs.sizes)
    return Function(
        (*params[:behind], *names, *params[behind:]),
        make_tuple([*outputs[:cut], *new_rooms, *outputs[cut:]]),
        body.output_names,
    )


def _with_rooms(function: Function, found: Mapping[str, _Reserved]) -> Function:
    """Return a function whose loops hand on values with room, of which the rows are cut out.

    Args:
        function: The function.
        found: Its loops with rooms, by the name of what they carry out.
    """
    made: dict[Expr, _Reserved] = {}

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Call) and node.op is Loop:
            one = found.get(cast("Loop.Attrs", node.attrs).body)
            if one is None:
                return None
            new = _call_with_rooms(node, one)
            made[new] = one
            return new
        if isinstance(node, TupleGetItem) and node.tuple in made:
            return _cut_out(node, made[node.tuple])
        return None

    with guards_apart():
        return rewrite_function(function, rule)


def _call_with_rooms(node: Call, one: _Reserved) -> Call:
    attrs = cast("Loop.Attrs", node.attrs)
    heads = attrs.has_trip + attrs.has_condition
    behind = heads + len(attrs.sizes)
    firsts = [node.args[heads + number] for number in one.lengths]
    args = (*node.args[:behind], *firsts, *node.args[behind:])
    return call(Loop, *args, attrs=one.attrs, span=node.span)


def _cut_out(node: TupleGetItem, one: _Reserved) -> Expr:
    """Return a result of a loop as it was without room."""
    known = len(one.attrs.sizes) - one.attrs.rooms
    place = node.index if node.index < known else node.index + one.attrs.rooms
    item = get_item(node.tuple, place, span=node.span)
    for appended in one.appended:
        if appended.number == node.index:
            shape = list(tensor_type(item).shape)
            shape[appended.axis] = one.attrs.sizes[appended.length]
            attrs = StridedSlice.Attrs(
                begin=(0,) * len(shape), end=extents(tuple(shape)), strides=(1,) * len(shape)
            )
            return call(StridedSlice, item, attrs=attrs, span=node.span)
    return item


def _size_tensor(size: Size, definers: Sequence[Expr], like: Expr) -> Expr:
    attrs = Sizes.Attrs(sizes=extents((size,)))
    return call(Sizes, *definers, attrs=attrs, span=like.span)


def _with_room(type_: TensorType, one: _Appended, room: Dim) -> TensorType:
    shape = list(type_.shape)
    shape[one.axis] = room
    return type_.with_shape(shape)


def _name(size: object) -> str:
    return size.name if isinstance(size, Dim) else ""
