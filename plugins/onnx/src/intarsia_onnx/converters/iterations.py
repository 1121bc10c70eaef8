# SPDX-License-Identifier: Apache-2.0
"""Loop and Scan as loops of the run: the body becomes a function that each iteration calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from intarsia_ir.graph.expr import Expr, Var, get_item, tensor_type
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_ir.ops import control
from intarsia_ir.ops.shape import Flip
from intarsia_runtime.dtype import DType

from ..builder import STATIC_HINT, rank_of
from ..context import NodeContext
from ..flow import Flow

ENDLESS = 1 << 31
"""A trip count from which on there is no limit."""


class _Iterations(Struct, frozen=True, eq=False):
    """How many iterations a loop runs, and what each gets.

    Attributes:
        state: Initial loop-carried values.
        sliced: Tensors of which each iteration gets a slice along the first axis.
        most: Limit of the iterations; -1 if there is none that is a size.
        trip: Limit of the iterations that the run computes.
        condition: Whether the first iteration begins; ``None`` if nothing but limits ends the loop.
        iteration: Number of the iteration, if the body may read it.
        heads: How many values the body gives before those that iterations hand on.
    """

    state: Sequence[Expr]
    sliced: Sequence[Expr] = ()
    most: Size = -1
    trip: Expr | None = None
    condition: Expr | None = None
    iteration: Var | None = None
    heads: int = 0


def iterated_loop(node: NodeContext, flow: Flow) -> tuple[Expr, ...]:
    """Convert a Loop that stays one."""
    trip, condition = node.optional(0), node.optional(1)
    most: Size = -1
    if trip is not None:
        sizes = node.folder.sizes(trip)
        if sizes is not None and sizes.size == 1:
            (size,) = sizes.reshape(-1)
            most = size if isinstance(size, Dim) else max(0, int(size))
            most = -1 if isinstance(most, int) and most >= ENDLESS else most
            trip = None
        else:
            trip = node.reshape(trip, ())
    first = None if condition is None else node.reshape(condition, ())
    iteration = Var(node.graph("body").inputs[0].name, TensorType((), DType.INT64))
    state = [node.input(index) for index in range(2, len(node.args))]
    return _iterated(node, flow, _Iterations(state, (), most, trip, first, iteration, heads=1))


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
    made = list(_iterated(node, flow, _Iterations(operands[:first], sliced, most)))
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


def _iterated(node: NodeContext, flow: Flow, iterations: _Iterations) -> tuple[Expr, ...]:
    """Import the body as a function, and call it in iterations."""
    names = [info.name for info in node.graph("body").inputs][2 * iterations.heads :]
    values = (*iterations.state, *iterations.sliced)
    if len(names) != len(values):
        raise node.model_error(f"the body takes {len(names)} values, {len(values)} are given")
    count = len(iterations.state)
    carried = [Var(name, x.type) for name, x in zip(names, iterations.state, strict=False)]
    slices = [
        Var(name, control.row_type(tensor_type(x)))
        for name, x in zip(names[count:], iterations.sliced, strict=True)
    ]
    results = _results(node, iterations, [*carried, *slices])
    same = [results[iterations.heads + n] is var for n, var in enumerate(carried)]
    if any(same):  # what no iteration changes is the same value inside
        given = [
            x if kept else v for x, v, kept in zip(iterations.state, carried, same, strict=True)
        ]
        results = _results(node, iterations, [*given, *slices])
    changing = [n for n, kept in enumerate(same) if not kept]
    head, handed = results[: iterations.heads], [results[iterations.heads + n] for n in changing]
    for var, value in zip([carried[n] for n in changing], handed, strict=True):
        if var.type != value.type:
            raise node.unsupported(
                f"'{var.name}' is {var.type} in one iteration and {value.type} in the next",
                STATIC_HINT,
            )
    condition = _condition(node, iterations, head)
    collected = results[iterations.heads + count :]
    if len(node.node.outputs) != count + len(collected):
        raise node.model_error(
            f"the body gives {len(collected)} values to collect,"
            f" not {len(node.node.outputs) - count}"
        )
    if collected and (iterations.most == -1 or condition is not None):
        raise node.unsupported(
            f"{node.op_type} collects values in iterations that only the run counts", STATIC_HINT
        )
    own = [carried[n] for n in changing]
    inside = [*([] if condition is None else [condition[1]]), *handed, *collected]
    iteration = [] if iterations.iteration is None else [iterations.iteration]
    body, captured = flow.loop(node.span, [*iteration, *own, *slices], inside)
    stacked = [control.stacked_type(tensor_type(value), iterations.most) for value in collected]
    attrs = control.Loop.Attrs(
        body=body,
        results=(*(tensor_type(value) for value in handed), *stacked),
        carried=len(own),
        sliced=len(slices),
        most=iterations.most,  # type: ignore[arg-type]  # a size that only the run knows may stand here
        has_trip=iterations.trip is not None,
        has_condition=condition is not None,
        takes_turn=iterations.iteration is not None,
    )
    heads = [iterations.trip, None if condition is None else condition[0]]
    state = [iterations.state[n] for n in changing]
    operands = (*(x for x in heads if x is not None), *state, *iterations.sliced, *captured)
    made = node.call(control.Loop, *operands, attrs=attrs)
    fields = [get_item(made, n, span=node.span) for n in range(len(attrs.results))]
    last = dict(zip(changing, fields, strict=False))
    return (*(last.get(n, x) for n, x in enumerate(iterations.state)), *fields[len(changing) :])


def _results(node: NodeContext, iterations: _Iterations, given: Sequence[Expr]) -> tuple[Expr, ...]:
    head = (
        () if iterations.iteration is None else (iterations.iteration, node.array(np.array(True)))
    )
    results = node.body("body", [*head, *given])
    if len(results) < iterations.heads + len(iterations.state):
        raise node.model_error(f"the body gives {len(results)} values")
    return results


def _condition(
    node: NodeContext, iterations: _Iterations, head: Sequence[Expr]
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
