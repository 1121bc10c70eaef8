# SPDX-License-Identifier: Apache-2.0
"""Bodies of loops of the run: loop-carried values, whose sizes may change in each iteration."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct, field

from intarsia_ir.graph.expr import Expr, Var, tensor_type
from intarsia_ir.graph.guards import Guard, is_collecting
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_runtime.size import product

from ..builder import STATIC_HINT, sizes_of
from ..context import NodeContext
from .carried_sequences import CarriedValue, given_values
from .ragged import Ragged, element_row, ragged_sequence
from .ragged_joins import stacked_elements


class Iterations(Struct, frozen=True, eq=False):
    """How often a loop iterations, and what each iteration gets.

    Attributes:
        state: What iterations hand on.
        tensors: Its first values, two for a sequence.
        sliced: Tensors of which each iteration gets a slice along the first axis.
        most: Limit of the iterations; -1 if there is none that is a size.
        trip: Limit of the iterations that the run computes.
        condition: Whether the first iteration begins; ``None`` if nothing but limits ends the loop.
        iteration: Number of the iteration, if the body may read it, or draws random numbers.
        heads: How many values the body gives before those that iterations hand on.
    """

    state: Sequence[CarriedValue]
    tensors: Sequence[Expr]
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


class Gathered(Struct, frozen=True):
    """A value that iterations collect.

    Attributes:
        sizes: What is known of the elements if their size changes; ``None`` for one tensor.
        is_stacked: Whether rows, or the shapes of elements, are stacked by the loop.
        may_differ: Whether the elements become a sequence, and not one tensor.
    """

    sizes: tuple[Size | None, ...] | None
    is_stacked: bool
    may_differ: bool


class IterationBody(Struct, eq=False):
    """The body of a loop, imported for variables.

    Attributes:
        results: What it gives.
        slices: Variables of slices.
        changing: Numbers of the tensors of the state that an iteration changes.
        carried: Their variables, and those of other values that iterations hand on.
        starts: The first values of ``carried``.
        handed: What an iteration gives for ``carried``.
        guards: What it requires of sizes.
        sizes: The sizes that change.
        gathered: For each value that iterations collect, what is known of the elements if their
            size changes; ``None`` for one tensor.
    """

    results: tuple[Expr, ...]
    slices: list[Var]
    changing: list[int]
    carried: list[Var]
    starts: list[Expr]
    handed: list[Expr]
    guards: tuple[Guard, ...]
    sizes: list[IterationSize] = field(default_factory=list[IterationSize])
    gathered: list[Gathered] = field(default_factory=list[Gathered])

    def collect(
        self,
        node: NodeContext,
        rows: Sequence[Expr],
        *,
        is_counted: bool,
        appended: int,
        known: AbstractSet[str],
    ) -> list[Expr]:
        """Collect what iterations give.

        An iteration hands on what it and those before gave, where nobody knows before how large
        that will be.

        Args:
            node: The loop.
            rows: What an iteration gives. Of those whose size an iteration computes, the elements
                are stacked behind the loop, where they must be of one size.
            is_counted: Whether it is known before the loop how many iterations there are.
            appended: How many of them, the last ones, are elements of sequences and may differ in
                size.
            known: Size variables of before the loop.

        Returns:
            Values of which those of all iterations become one tensor.

        Raises:
            UnsupportedError: The model is built with known sizes.
        """
        count = None if is_counted or not rows else new_size(node, 0)
        totals: list[IterationSize] = []
        stacked: list[Expr] = []
        for number, row in enumerate(rows):
            sizes = self._settled_sizes(node, row, known)
            if None in sizes:
                items = node.reshape(row, (product(sizes_of(row)),))
                total = new_size(node, 0)
                self._hand_on(node, items, total)
                totals.append(with_next(total, total.iteration + sizes_of(items)[0]))
            part = element_row(node, sizes_of(row)) if None in sizes else row
            if count is None:
                stacked.append(part)
            else:
                self._hand_on(node, node.reshape(part, (1, *sizes_of(part))), count)
            may_differ = number >= len(rows) - appended
            self.gathered.append(
                Gathered(sizes if None in sizes else None, count is None, may_differ)
            )
        counts = [] if count is None else [with_next(count, count.iteration + 1)]
        self.sizes += [*totals, *counts]
        if self.sizes and not is_collecting():
            raise node.unsupported(
                f"{node.op_type} collects values in a number of iterations known only at run time",
                STATIC_HINT,
            )
        return stacked

    def _settled_sizes(
        self, node: NodeContext, row: Expr, known: AbstractSet[str]
    ) -> tuple[Size | None, ...]:
        """Return the sizes of a value; ``None`` for one that an iteration changes, or computes."""
        inner = {size.iteration.name for size in self.sizes}
        inner |= node.folder.run_sizes.names - known
        return tuple(
            None if isinstance(size, Dim) and not inner.isdisjoint(size.variables()) else size
            for size in sizes_of(row)
        )

    def _hand_on(self, node: NodeContext, part: Expr, length: IterationSize) -> None:
        """Let iterations hand on a tensor to which each appends rows."""
        shape, dtype = sizes_of(part)[1:], tensor_type(part).dtype
        name = f"collected_{len(self.carried)}"
        var = Var(name, TensorType((length.iteration, *shape), dtype))
        self.carried.append(var)
        self.starts.append(node.full((0, *shape), 0, dtype))  # type: ignore[arg-type]
        self.handed.append(node.concat([var, part], 0))

    def outputs(
        self, node: NodeContext, iterations: Iterations, fields: Sequence[Expr]
    ) -> tuple[Expr, ...]:
        """Return the results of the node; ``fields`` are those of the loop behind sizes."""
        last = dict(zip(self.changing, fields, strict=False))
        tensors = [last.get(n, x) for n, x in enumerate(iterations.tensors)]
        state = given_values(node, iterations.state, tensors)
        handed = iter(fields[len(self.changing) : len(self.carried)])
        stacked = iter(fields[len(self.carried) :])
        collected: list[Expr] = []
        for one in self.gathered:
            items = None if one.sizes is None else next(handed)
            rows = next(stacked if one.is_stacked else handed)
            if items is None or one.sizes is None:
                collected.append(rows)
            elif one.may_differ:
                collected.append(ragged_sequence(node, items, rows, one.sizes))
            else:
                elements = Ragged(items, rows, one.sizes)
                collected.append(stacked_elements(node, elements, one.sizes))
        return (*state, *collected)


def new_size(node: NodeContext, first: Size) -> IterationSize:
    """Return a size that changes, of which the next one is not known yet."""
    known = node.folder.run_sizes
    base = node.span.name or "loop"
    return IterationSize(known.new_name(base), known.new_name(base), first, -1)


def with_next(size: IterationSize, following: Size) -> IterationSize:
    """Return a size that changes with what it is in the next iteration."""
    return IterationSize(size.iteration, size.last, size.first, following)
