# SPDX-License-Identifier: Apache-2.0
"""Bodies of loops of the run: loop-carried values, whose sizes may change in each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext

import numpy as np
from msgspec import Struct, field

from intarsia_ir.graph.expr import Expr, Var, tensor_type
from intarsia_ir.graph.guards import Guard, guards_apart, is_collecting
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_ir.ops import control

from ..builder import STATIC_HINT, sizes_of
from ..context import NodeContext
from ..graph import Graph
from .ragged import Ragged, ragged_list, ragged_sequence, stacked_elements
from .sequences import tensors_of

MOST_ROUNDS = 6
"""How often a body is imported until the sizes of its values are settled."""


class Iterations(Struct, frozen=True, eq=False):
    """How often a loop iterations, and what each iteration gets.

    Attributes:
        state: First values of what iterations hand on.
        sliced: Tensors of which each iteration gets a slice along the first axis.
        most: Limit of the iterations; -1 if there is none that is a size.
        trip: Limit of the iterations that the run computes.
        condition: Whether the first iteration begins; ``None`` if nothing but limits ends the loop.
        iteration: Number of the iteration, if the body may read it, or draws random numbers.
        heads: How many values the body gives before those that iterations hand on.
    """

    state: Sequence[Expr]
    sliced: Sequence[Expr] = ()
    most: Size = -1
    trip: Expr | None = None
    condition: Expr | None = None
    iteration: Var | None = None
    heads: int = 0


class IterationSize(Struct, frozen=True):
    """A size that may change from iteration to iteration.

    Attributes:
        iteration: The variable in an iteration.
        last: The variable behind the loop.
        first: The size before the first iteration.
        next: The size in the next iteration.
    """

    iteration: Dim
    last: Dim
    first: Size
    next: Size


class IterationBody(Struct, eq=False):
    """The body of a loop, imported for variables.

    Attributes:
        results: What it gives.
        slices: Variables of slices.
        changing: Numbers of the values of the state that an iteration changes.
        carried: Their variables, and those of other values that iterations hand on.
        starts: The first values of ``carried``.
        handed: What an iteration gives for ``carried``.
        guards: What it requires of sizes.
        sizes: The sizes that change.
        gathered: For each value that iterations collect by handing it on: the rank of an element
            of a sequence, which are two of ``carried``; ``None`` for one tensor.
        stacked: Of the values in ``gathered`` whose elements are stacked behind the loop, by
            number: the sizes of an element.
    """

    results: tuple[Expr, ...]
    slices: list[Var]
    changing: list[int]
    carried: list[Var]
    starts: list[Expr]
    handed: list[Expr]
    guards: tuple[Guard, ...]
    sizes: list[IterationSize] = field(default_factory=list[IterationSize])
    gathered: list[int | None] = field(default_factory=list["int | None"])
    stacked: dict[int, Sequence[Size]] = field(default_factory=dict[int, "Sequence[Size]"])

    def collect(
        self,
        node: NodeContext,
        rows: Sequence[Expr],
        appended: int = 0,
        known: AbstractSet[str] = frozenset(),
    ) -> None:
        """Let iterations hand on what they collect, for nobody knows how many there will be.

        Args:
            node: The loop.
            rows: What an iteration gives. Of those whose size an iteration computes, the elements
                are stacked behind the loop, where they must be of one size.
            appended: How many of them, the last ones, are elements of sequences and may differ in
                size.
            known: Size variables of before the loop.

        Raises:
            UnsupportedError: The model is built with known sizes.
        """
        if not is_collecting():
            raise node.unsupported(
                f"{node.op_type} collects values in a number of iterations known only at run time",
                STATIC_HINT,
            )
        size = _new_size(node, 0)
        totals: list[IterationSize] = []
        for number, row in enumerate(rows):
            shape = sizes_of(row)
            if self.is_changing(node, row, known):
                if number < len(rows) - appended:
                    self.stacked[len(self.gathered)] = shape
                totals.append(self._collect_ragged(node, row, size))
                continue
            type_ = control.stacked_type(tensor_type(row), size.iteration)
            var = Var(f"collected_{len(self.carried)}", type_)
            self.carried.append(var)
            self.starts.append(node.full((0, *shape), 0, type_.dtype))  # type: ignore[arg-type]
            self.handed.append(node.concat([var, node.reshape(row, (1, *shape))], 0))
            self.gathered.append(None)
        self.sizes += [*totals, _with_next(size, size.iteration + 1)]

    def is_changing(self, node: NodeContext, row: Expr, known: AbstractSet[str]) -> bool:
        """Whether a value has a size that an iteration changes, or computes."""
        inner = {size.iteration.name for size in self.sizes}
        inner |= node.folder.run_sizes.names - known
        sizes = [size for size in sizes_of(row) if isinstance(size, Dim)]
        return any(not inner.isdisjoint(size.variables()) for size in sizes)

    def _collect_ragged(self, node: NodeContext, row: Expr, size: IterationSize) -> IterationSize:
        """Let iterations hand on a sequence to which each appends an element of its own size."""
        total, one = _new_size(node, 0), ragged_list(node, [row])
        for part, length in ((one.items, total), (one.shapes, size)):
            shape, dtype = sizes_of(part)[1:], tensor_type(part).dtype
            name = f"collected_{len(self.carried)}"
            var = Var(name, TensorType((length.iteration, *shape), dtype))
            self.carried.append(var)
            self.starts.append(node.full((0, *shape), 0, dtype))  # type: ignore[arg-type]
            self.handed.append(node.concat([var, part], 0))
        self.gathered.append(one.rank)
        (count,) = sizes_of(one.items)
        return _with_next(total, total.iteration + count)

    def outputs(
        self, node: NodeContext, iterations: Iterations, fields: Sequence[Expr]
    ) -> tuple[Expr, ...]:
        """Return the results of the node; ``fields`` are those of the loop behind sizes."""
        last = dict(zip(self.changing, fields, strict=False))
        state = [last.get(n, x) for n, x in enumerate(iterations.state)]
        rest = iter(fields[len(self.changing) :])
        collected: list[Expr] = []
        for number, rank in enumerate(self.gathered):
            if rank is None:
                collected.append(next(rest))
            elif number in self.stacked:
                elements = Ragged(next(rest), next(rest), rank)
                collected.append(stacked_elements(node, elements, rank, self.stacked[number]))
            else:
                collected.append(ragged_sequence(node, next(rest), next(rest), rank))
        return (*state, *collected, *rest)


def settled_body(node: NodeContext, iterations: Iterations) -> IterationBody:
    """Import the body; where a value changes its size, that size becomes a variable.

    Raises:
        UnsupportedError: A value changes its rank or element type, or a size in a model that is
            built with known sizes.
    """
    types = [tensor_type(value) for value in iterations.state]
    sizes: dict[str, IterationSize] = {}
    for _ in range(MOST_ROUNDS):
        body = _imported(node, iterations, types)
        changed = _compared(node, iterations, body, types, sizes)
        if not changed:
            _check(node, body, sizes)
            body.sizes = [*sizes.values()]
            return body
    raise node.unsupported("the sizes of loop-carried values do not converge", STATIC_HINT)


def _imported(
    node: NodeContext, iterations: Iterations, types: Sequence[TensorType]
) -> IterationBody:
    names = [info.name for info in node.graph("body").inputs][2 * iterations.heads :]
    values = (*iterations.state, *iterations.sliced)
    if len(names) != len(values):
        raise node.model_error(f"the body takes {len(names)} values, {len(values)} are given")
    count = len(iterations.state)
    carried = [Var(name, type_) for name, type_ in zip(names, types, strict=False)]
    slices = [
        Var(name, control.row_type(tensor_type(x)))
        for name, x in zip(names[count:], iterations.sliced, strict=True)
    ]
    with guards_apart() as found, node.folder.run_sizes.apart():
        results = _results(node, iterations, [*carried, *slices])
        same = [results[iterations.heads + n] is var for n, var in enumerate(carried)]
    if any(same):  # what no iteration changes is the same value inside
        given = [
            x if kept else v for x, v, kept in zip(iterations.state, carried, same, strict=True)
        ]
        with guards_apart() as found, node.folder.run_sizes.apart():
            results = _results(node, iterations, [*given, *slices])
    changing = [n for n, kept in enumerate(same) if not kept]
    return IterationBody(
        results,
        slices,
        changing,
        [carried[n] for n in changing],
        [iterations.state[n] for n in changing],
        [results[iterations.heads + n] for n in changing],
        found.guards,
    )


def _results(node: NodeContext, iterations: Iterations, given: Sequence[Expr]) -> tuple[Expr, ...]:
    head: tuple[Expr, ...] = ()
    if iterations.heads and iterations.iteration is not None:
        head = (iterations.iteration, node.array(np.array(True)))
    draws = node.folder.draws
    with nullcontext() if draws is None else draws.repeated(iterations.iteration):
        results = tensors_of(node, node.body("body", [*head, *given]))
    if len(results) < iterations.heads + len(iterations.state):
        raise node.model_error(f"the body gives {len(results)} values")
    return results


def _compared(
    node: NodeContext,
    iterations: Iterations,
    body: IterationBody,
    types: list[TensorType],
    sizes: dict[str, IterationSize],
) -> bool:
    """Compare what an iteration gets and gives; return whether a size became a variable."""
    fresh: dict[tuple[Size, Size], IterationSize] = {}
    for number, var, value in zip(body.changing, body.carried, body.handed, strict=True):
        old, new = tensor_type(var), tensor_type(value)
        if old.rank != new.rank or old.dtype is not new.dtype:
            raise node.unsupported(
                f"'{var.name}' is {old} in one iteration and {new} in the next", STATIC_HINT
            )
        shape = list(old.shape)
        for axis, (before, after) in enumerate(zip(old.shape, new.shape, strict=True)):
            own = sizes.get(before.name) if isinstance(before, Dim) else None
            if own is not None and own.next == -1:
                own = sizes[own.iteration.name] = _with_next(own, after)
            if before == after or (own is not None and own.next == after):
                continue
            if not is_collecting():
                raise node.unsupported(
                    f"'{var.name}' is {old} in one iteration and {new} in the next", STATIC_HINT
                )
            first = tensor_type(iterations.state[number]).shape[axis]
            if (before, after) not in fresh:
                fresh[before, after] = _new_size(node, first)
            shape[axis] = fresh[before, after].iteration
        types[number] = old.with_shape(shape)
    for size in fresh.values():
        sizes[size.iteration.name] = size
    if fresh:
        for name, size in sizes.items():
            sizes[name] = _with_next(size, -1)  # said by the next import
    return bool(fresh)


def _check(node: NodeContext, body: IterationBody, sizes: dict[str, IterationSize]) -> None:
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


def _new_size(node: NodeContext, first: Size) -> IterationSize:
    known = node.folder.run_sizes
    base = node.span.name or "loop"
    return IterationSize(known.new_name(base), known.new_name(base), first, -1)


def _with_next(size: IterationSize, following: Size) -> IterationSize:
    return IterationSize(size.iteration, size.last, size.first, following)


def passes_condition(body: Graph) -> bool:
    """Whether the body of a Loop gives the condition that it got."""
    name, condition = body.outputs[0].name, body.inputs[1].name
    while name != condition:
        made = [node for node in body.nodes if name in node.outputs]
        if len(made) != 1 or made[0].op_type != "Identity":
            return False
        name = made[0].inputs[0]
    return True
