# SPDX-License-Identifier: Apache-2.0
"""Bodies of loops of the run: values that turns hand on, of sizes that may change in each turn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from intarsia_ir.graph.expr import Expr, Var, tensor_type
from intarsia_ir.graph.guards import Guard, guards_apart, is_collecting
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_ir.ops import control

from ..builder import STATIC_HINT, sizes_of
from ..context import NodeContext
from ..graph import Graph

MOST_ROUNDS = 6
"""How often a body is imported until the sizes of its values are settled."""


class Turns(Struct, frozen=True, eq=False):
    """How often a loop turns, and what each turn gets.

    Attributes:
        state: First values of what turns hand on.
        sliced: Tensors of which each turn gets a slice along the first axis.
        most: Limit of the turns; -1 if there is none that is a size.
        trip: Limit of the turns that the run computes.
        condition: Whether the first turn begins; ``None`` if nothing but limits ends the loop.
        turn: Number of the turn, if the body may read it.
        heads: How many values the body gives before those that turns hand on.
    """

    state: Sequence[Expr]
    sliced: Sequence[Expr] = ()
    most: Size = -1
    trip: Expr | None = None
    condition: Expr | None = None
    turn: Var | None = None
    heads: int = 0


class TurnSize(Struct, frozen=True):
    """A size that may change from turn to turn.

    Attributes:
        turn: The variable in a turn.
        last: The variable behind the loop.
        first: The size before the first turn.
        next: The size in the next turn.
    """

    turn: Dim
    last: Dim
    first: Size
    next: Size


class TurnBody(Struct, eq=False):
    """The body of a loop, imported for variables.

    Attributes:
        results: What it gives.
        slices: Variables of slices.
        changing: Numbers of the values of the state that a turn changes.
        carried: Their variables, and those of other values that turns hand on.
        starts: The first values of ``carried``.
        handed: What a turn gives for ``carried``.
        guards: What it requires of sizes.
        sizes: The sizes that change.
        gathered: How many values of ``carried`` are what turns collect.
    """

    results: tuple[Expr, ...]
    slices: list[Var]
    changing: list[int]
    carried: list[Var]
    starts: list[Expr]
    handed: list[Expr]
    guards: tuple[Guard, ...]
    sizes: list[TurnSize] = field(default_factory=list[TurnSize])
    gathered: int = 0

    def collect(self, node: NodeContext, turns: Turns, rows: Sequence[Expr]) -> None:
        """Let turns hand on what they collect, for nobody knows how many there will be.

        Raises:
            UnsupportedError: The model is built with known sizes, or a value has another size in
                each turn.
        """
        if not is_collecting():
            raise node.unsupported(
                f"{node.op_type} collects values in turns that only the run counts", STATIC_HINT
            )
        inner = {size.turn.name for size in self.sizes}
        size = _new_size(node, 0)
        for row in rows:
            shape = sizes_of(row)
            if any(isinstance(one, Dim) and not inner.isdisjoint(one.variables()) for one in shape):
                raise node.unsupported(f"the values that {node.op_type} collects differ in size")
            type_ = control.stacked_type(tensor_type(row), size.turn)
            var = Var(f"collected_{self.gathered}", type_)
            self.carried.append(var)
            self.starts.append(node.full((0, *shape), 0, type_.dtype))  # type: ignore[arg-type]
            self.handed.append(node.concat([var, node.reshape(row, (1, *shape))], 0))
            self.gathered += 1
        self.sizes.append(_with_next(size, size.turn + 1))

    def outputs(self, turns: Turns, fields: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the results of the node; ``fields`` are those of the loop behind sizes."""
        last = dict(zip(self.changing, fields, strict=False))
        state = [last.get(n, x) for n, x in enumerate(turns.state)]
        return (*state, *fields[len(self.changing) :])


def settled_body(node: NodeContext, turns: Turns) -> TurnBody:
    """Import the body; where a value changes its size, that size becomes a variable.

    Raises:
        UnsupportedError: A value changes its rank or element type, or a size in a model that is
            built with known sizes.
    """
    types = [tensor_type(value) for value in turns.state]
    sizes: dict[str, TurnSize] = {}
    for _ in range(MOST_ROUNDS):
        body = _imported(node, turns, types)
        changed = _compared(node, turns, body, types, sizes)
        if not changed:
            _check(node, body, sizes)
            body.sizes = [*sizes.values()]
            return body
    raise node.unsupported("the sizes of what turns hand on are not settled", STATIC_HINT)


def _imported(node: NodeContext, turns: Turns, types: Sequence[TensorType]) -> TurnBody:
    names = [info.name for info in node.graph("body").inputs][2 * turns.heads :]
    values = (*turns.state, *turns.sliced)
    if len(names) != len(values):
        raise node.model_error(f"the body takes {len(names)} values, {len(values)} are given")
    count = len(turns.state)
    carried = [Var(name, type_) for name, type_ in zip(names, types, strict=False)]
    slices = [
        Var(name, control.row_type(tensor_type(x)))
        for name, x in zip(names[count:], turns.sliced, strict=True)
    ]
    with guards_apart() as found, node.folder.run_sizes.apart():
        results = _results(node, turns, [*carried, *slices])
        same = [results[turns.heads + n] is var for n, var in enumerate(carried)]
    if any(same):  # what no turn changes is the same value inside
        given = [x if kept else v for x, v, kept in zip(turns.state, carried, same, strict=True)]
        with guards_apart() as found, node.folder.run_sizes.apart():
            results = _results(node, turns, [*given, *slices])
    changing = [n for n, kept in enumerate(same) if not kept]
    return TurnBody(
        results,
        slices,
        changing,
        [carried[n] for n in changing],
        [turns.state[n] for n in changing],
        [results[turns.heads + n] for n in changing],
        found.guards,
    )


def _results(node: NodeContext, turns: Turns, given: Sequence[Expr]) -> tuple[Expr, ...]:
    head = () if turns.turn is None else (turns.turn, node.array(np.array(True)))
    results = node.body("body", [*head, *given])
    if len(results) < turns.heads + len(turns.state):
        raise node.model_error(f"the body gives {len(results)} values")
    return results


def _compared(
    node: NodeContext,
    turns: Turns,
    body: TurnBody,
    types: list[TensorType],
    sizes: dict[str, TurnSize],
) -> bool:
    """Compare what a turn gets and gives; return whether a size became a variable."""
    fresh: dict[tuple[Size, Size], TurnSize] = {}
    for number, var, value in zip(body.changing, body.carried, body.handed, strict=True):
        old, new = tensor_type(var), tensor_type(value)
        if old.rank != new.rank or old.dtype is not new.dtype:
            raise node.unsupported(
                f"'{var.name}' is {old} in one turn and {new} in the next", STATIC_HINT
            )
        shape = list(old.shape)
        for axis, (before, after) in enumerate(zip(old.shape, new.shape, strict=True)):
            own = sizes.get(before.name) if isinstance(before, Dim) else None
            if own is not None and own.next == -1:
                own = sizes[own.turn.name] = _with_next(own, after)
            if before == after or (own is not None and own.next == after):
                continue
            if not is_collecting():
                raise node.unsupported(
                    f"'{var.name}' is {old} in one turn and {new} in the next", STATIC_HINT
                )
            first = tensor_type(turns.state[number]).shape[axis]
            if (before, after) not in fresh:
                fresh[before, after] = _new_size(node, first)
            shape[axis] = fresh[before, after].turn
        types[number] = old.with_shape(shape)
    for size in fresh.values():
        sizes[size.turn.name] = size
    if fresh:
        for name, size in sizes.items():
            sizes[name] = _with_next(size, -1)  # said by the next import
    return bool(fresh)


def _check(node: NodeContext, body: TurnBody, sizes: dict[str, TurnSize]) -> None:
    """Drop variables of sizes that other variables replaced."""
    used = {
        name
        for var in body.carried
        for size in tensor_type(var).shape
        if isinstance(size, Dim)
        for name in size.variables()
    }
    for name in [name for name, size in sizes.items() if name not in used or size.next == -1]:
        del sizes[name]


def _new_size(node: NodeContext, first: Size) -> TurnSize:
    known = node.folder.run_sizes
    base = node.span.name or "loop"
    return TurnSize(known.new_name(base), known.new_name(base), first, -1)


def _with_next(size: TurnSize, following: Size) -> TurnSize:
    return TurnSize(size.turn, size.last, size.first, following)


def passes_condition(body: Graph) -> bool:
    """Whether the body of a Loop gives the condition that it got."""
    name, condition = body.outputs[0].name, body.inputs[1].name
    while name != condition:
        made = [node for node in body.nodes if name in node.outputs]
        if len(made) != 1 or made[0].op_type != "Identity":
            return False
        name = made[0].inputs[0]
    return True
