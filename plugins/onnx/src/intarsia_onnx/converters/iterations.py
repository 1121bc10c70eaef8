# SPDX-License-Identifier: Apache-2.0
"""Loop and Scan as loops of the run: the body becomes a function of the module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from intarsia_ir.graph.expr import Expr, Var, get_item, tensor_type
from intarsia_ir.graph.guards import Guard, fixed_sizes, is_collecting, require_all
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_ir.ops import control
from intarsia_ir.ops.binary import Maximum
from intarsia_ir.ops.shape import Flip
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType

from ..builder import rank_of
from ..context import NodeContext
from ..draws import DRAWING
from ..flow import Flow
from ..names import all_nodes
from .carried_sequences import carried_values
from .iteration_bodies import IterationBody, Iterations
from .settled_bodies import passes_condition, settled_body

ENDLESS = 1 << 31
"""Iterations that are no limit: so many are made by nobody."""


def iterated_loop(node: NodeContext, flow: Flow, appended: int = 0) -> tuple[Expr, ...]:
    """Convert a Loop that stays one; the last ``appended`` results are elements of sequences."""
    trip, condition = node.optional(0), node.optional(1)
    most: Size = -1
    if trip is not None:
        sizes = node.folder.sizes(trip)
        if sizes is not None and sizes.size == 1:
            (size,) = sizes.reshape(-1)
            most = size if isinstance(size, Dim) else max(0, int(size))
            trip = None
            if isinstance(most, int) and most >= ENDLESS:  # a size of nothing that fits in memory
                trip, most = node.array(np.array(most)), -1
        else:
            trip = node.reshape(trip, ())
            if is_collecting() and _collects(node, condition):
                least = node.call(Maximum, trip, node.scalar(0, DType.INT64))
                most = node.size_of(least)
    first = None if condition is None else node.reshape(condition, ())
    iteration = Var(node.graph("body").inputs[0].name, TensorType((), DType.INT64))
    if most != -1:
        node.folder.counters[iteration] = most
    state, tensors = carried_values(node, [node.input(n) for n in range(2, len(node.args))])
    iterations = Iterations(state, tensors, (), most, trip, first, iteration, heads=1)
    return _iterated(node, flow, iterations, appended)


def _collects(node: NodeContext, condition: Expr | None) -> bool:
    """Whether a loop collects values in as many iterations as its limit says."""
    inside = node.graph("body")
    states = max(0, len(node.args) - 2)
    known = None if condition is None else node.folder.value(condition)
    endless = condition is None or (known is not None and bool(known.reshape(())))
    return endless and len(inside.outputs) > 1 + states and passes_condition(inside)


def iterated_scan(node: NodeContext, flow: Flow) -> tuple[Expr, ...]:
    """Convert a Scan that stays one: slices are those of the first axis, first to last."""
    count = node.integer("num_scan_inputs")
    operands = node.variadic()
    first = len(operands) - count
    axes = node.integers("scan_input_axes", (0,) * count)
    back = node.integers("scan_input_directions", (0,) * count)
    sliced: list[Expr] = []
    for x, axis, backwards in zip(operands[first:], axes, back, strict=True):
        rank = rank_of(x)
        at = node.normal_axis(axis, rank)
        moved = node.transpose(x, [at, *range(at), *range(at + 1, rank)])
        sliced.append(_flipped(node, moved) if backwards else moved)
    most = tensor_type(sliced[0]).shape[0]
    drawn = any(inner.op_type in DRAWING for inner in all_nodes(node.node))
    number = Var("iteration", TensorType((), DType.INT64)) if drawn else None
    state, tensors = carried_values(node, operands[:first])
    iterations = Iterations(state, tensors, sliced, most, iteration=number)
    made = list(_iterated(node, flow, iterations))
    backwards = node.integers("scan_output_directions", (0,) * (len(made) - first))
    axes = node.integers("scan_output_axes", (0,) * (len(made) - first))
    for number, (axis, is_back) in enumerate(zip(axes, backwards, strict=True), start=first):
        stacked = _flipped(node, made[number]) if is_back else made[number]
        rank = rank_of(stacked)
        at = node.normal_axis(axis, rank)
        made[number] = node.transpose(stacked, [*range(1, at + 1), 0, *range(at + 1, rank)])
    return tuple(made)


def _flipped(node: NodeContext, x: Expr) -> Expr:
    return node.call(Flip, x, attrs=Flip.Attrs(axes=(0,)))


def _iterated(
    node: NodeContext, flow: Flow, iterations: Iterations, appended: int = 0
) -> tuple[Expr, ...]:
    """Import the body as a function, and call it in iterations."""
    known = node.folder.run_sizes
    before, computed = frozenset(known.names), known.definers
    body = settled_body(node, iterations)
    condition = _condition(node, iterations, body.results[: iterations.heads])
    collected = list(body.results[iterations.heads + len(iterations.state) :])
    if len(node.node.outputs) != len(iterations.state) + len(collected):
        raise node.model_error(
            f"the body gives {len(collected)} values to collect,"
            f" not {len(node.node.outputs) - len(iterations.state)}"
        )
    is_counted = iterations.most != -1 and condition is None
    rows = body.collect(node, collected, is_counted=is_counted, appended=appended, known=before)
    guards = _guards_inside(node, iterations, body, before)
    require_all(guard for guard in body.guards if guard not in guards)
    nexts = [node.size_tensor(size.next) for size in body.sizes]
    numbers = [Var(size.iteration.name, control.SIZE) for size in body.sizes]
    iteration = [] if iterations.iteration is None else [iterations.iteration]
    params = [*iteration, *numbers, *body.carried, *body.slices]
    heads = [] if condition is None else [condition[1]]
    inside = [*heads, *nexts, *body.handed, *rows]
    own = [size.iteration for size in body.sizes]
    fixed = {name for guard in guards for name in guard.variables()}
    sizes = {size.name for size in own} | fixed
    name, captured = flow.loop(node.span, params, inside, sizes, computed)
    after: dict[str, Size] = {size.iteration.name: size.last for size in body.sizes}
    types = [_substituted(tensor_type(var), after) for var in body.carried]
    stacked = [control.stacked_type(tensor_type(value), iterations.most) for value in rows]
    attrs = control.Loop.Attrs(
        body=name,
        results=(*(control.SIZE for _ in nexts), *types, *stacked),
        carried=len(nexts) + len(body.carried),
        sliced=len(body.slices),
        most=extents((iterations.most,))[0],
        has_trip=iterations.trip is not None,
        has_condition=condition is not None,
        takes_iteration=iterations.iteration is not None,
        sizes=extents(tuple(size.last for size in body.sizes)),
        iteration_sizes=extents(tuple(own)),
        guards=control.flat_guards(guards),
    )
    first = [iterations.trip, None if condition is None else condition[0]]
    starts = [node.size_tensor(size.first) for size in body.sizes]
    given = (*(x for x in first if x is not None), *starts, *body.starts, *iterations.sliced)
    made = node.call(control.Loop, *given, *captured, attrs=attrs)
    fields = [get_item(made, n, span=node.span) for n in range(len(attrs.results))]
    for size, field in zip(body.sizes, fields, strict=False):
        node.folder.run_sizes.define_result(size.last, field)
    return body.outputs(node, iterations, fields[len(nexts) :])


def _guards_inside(
    node: NodeContext, iterations: Iterations, body: IterationBody, before: AbstractSet[str]
) -> list[Guard]:
    """Return what only iterations require of sizes of before the loop: there may be none.

    What fixes the size of an input is required of the model, which is better compiled for a number.
    """
    if isinstance(iterations.most, int) and iterations.most > 0 and not iterations.heads:
        return []
    late = node.folder.run_sizes.names - before
    return [
        guard
        for guard in body.guards
        if late.isdisjoint(guard.variables()) and not fixed_sizes([guard])
    ]


def _substituted(type_: TensorType, sizes: Mapping[str, Size]) -> TensorType:
    return type_.with_shape(
        size if isinstance(size, int) else size.substitute(sizes) for size in type_.shape
    )


def _condition(
    node: NodeContext, iterations: Iterations, head: Sequence[Expr]
) -> tuple[Expr, Expr] | None:
    """Return the first condition and that of the next iteration; ``None`` if both are true."""
    if not head:
        return None
    following = node.reshape(head[0], ())
    known = node.folder.value(following)
    first = iterations.condition
    start = None if first is None else node.folder.value(first)
    if (first is None or (start is not None and bool(start))) and known is not None and bool(known):
        return None
    return node.array(np.array(True)) if first is None else first, following
