# SPDX-License-Identifier: Apache-2.0
"""Control flow: If; Loop and Scan that are written out, one iteration after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import (
    Call,
    Constant,
    Expr,
    If,
    Var,
    get_item,
    make_tuple,
    tensor_type,
)
from intarsia_ir.graph.guards import guards_apart, is_collecting
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import Size, TensorType, Type
from intarsia_ir.graph.walk import children
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError

from ..builder import STATIC_HINT, dtype_of, rank_of, sizes_of
from ..context import Diverging, NodeContext
from ..flow import Branch, Flow
from .appending import collecting_loop
from .iterations import iterated_loop, iterated_scan
from .optionals import optional_input, split_optionals
from .sequences import (
    are_formed_alike,
    flat_values,
    formed_alike,
    is_sequence,
    regrouped,
    tensors_of,
)

MAX_WRITTEN = 2048
"""Most nodes that the iterations of a loop may become, if it cannot stay a loop."""

FEW_WRITTEN = 256
"""Most nodes that the iterations of a loop may become, if it can: fused, they are no slower."""

MOST_CHEAP = 8
"""Most calls in both branches that are computed without a choice."""

SMALL = 4096
"""Most elements of a tensor in such branches."""


def if_(node: NodeContext) -> tuple[Expr, ...]:
    """Convert If; with a known condition only the chosen branch is imported."""
    if dtype_of(node.input(0)) is not DType.BOOL:
        raise node.model_error(f"the condition must be bool, got {node.type_of(0)}")
    known = node.constant_value(0)
    if known is None:  # sizes may decide it, though some are open
        known = node.folder.sizes(node.input(0))
    if known is not None:
        if known.size != 1:
            raise node.model_error(f"the condition must be one bool, got shape {known.shape}")
        return node.branch("then_branch" if known.reshape(()) else "else_branch")
    then, orelse = _branch(node, "then_branch"), _branch(node, "else_branch")
    if len(then.results) != len(orelse.results):
        raise node.model_error(
            f"branches give {len(then.results)} and {len(orelse.results)} results"
        )
    if not any(is_sequence(value) for value in (*then.results, *orelse.results)):
        return _choose(node, then, orelse)
    pairs: list[tuple[Expr, Expr]] = []
    flags: dict[int, tuple[Expr, Expr]] = {}
    for number, results in enumerate(zip(then.results, orelse.results, strict=True)):
        optionals = split_optionals(node, *results)
        if optionals is not None:
            flags[number] = optionals[1]
        a, b = results if optionals is None else optionals[0]
        pair = (a, b) if are_formed_alike(node, a, b) else formed_alike(node, a, b)
        if pair is None:
            raise node.unsupported("branches give sequences of different lengths")
        pairs.append(pair)
    pairs += flags.values()
    values = [[pair[n] for pair in pairs] for n in range(2)]
    branches = (
        Branch(flat_values(values[0]), then.guards),
        Branch(flat_values(values[1]), orelse.guards),
    )
    made = list(regrouped(node, values[0], _choose(node, *branches)))
    for number, holds in zip(flags, made[len(then.results) :], strict=True):
        made[number] = optional_input(node, made[number], holds)
    return tuple(made[: len(then.results)])


def _choose(node: NodeContext, then: Branch, orelse: Branch) -> tuple[Expr, ...]:
    """Return the results of the branch that the condition chooses in the run; all are tensors."""
    then_values, else_values = then.results, orelse.results
    has_guards = bool(then.guards or orelse.guards)
    if has_guards and node.flow is None:
        raise node.unsupported(
            "one branch has a condition on sizes that the other has not", STATIC_HINT
        )
    condition = node.reshape(node.input(0), ())
    differ = [(a, b) for a, b in zip(then_values, else_values, strict=True) if a.type != b.type]
    if differ:
        a, b = differ[0]
        text = f"branches give {a.type} and {b.type}, chosen at run time"
        if node.flow is None or (_are_sized_alike(differ) and not is_collecting()):
            raise node.unsupported(text, STATIC_HINT if node.flow is not None else "")
        if not _are_sized_alike(differ):
            raise Diverging(text, condition, (then, orelse))
    results = (*then_values, *else_values)
    is_chosen = bool(has_guards or differ)
    if node.flow is not None and (is_chosen or not _is_cheap(node.flow, results)):
        return node.flow.choose(node, condition, (then, orelse))
    if len(then_values) == 1:
        value = then_values[0]
        return (If(condition, value, else_values[0], value.type, node.span),)
    a, b = make_tuple(then_values, span=node.span), make_tuple(else_values, span=node.span)
    chosen = If(condition, a, b, a.type, node.span)
    return tuple(get_item(chosen, index, span=node.span) for index in range(len(then_values)))


def _are_sized_alike(pairs: Sequence[tuple[Expr, Expr]]) -> bool:
    """Whether values differ in sizes alone."""
    types = [(tensor_type(a), tensor_type(b)) for a, b in pairs]
    return all(a.rank == b.rank and a.dtype is b.dtype for a, b in types)


def _is_cheap(flow: Flow, results: Sequence[Expr]) -> bool:
    """Whether to compute both branches costs less than to choose one: few small calls."""
    outside = flow.values()
    todo, calls = list(results), 0
    seen: set[Expr] = set()
    while todo:
        expr = todo.pop()
        if expr in seen or expr in outside or isinstance(expr, Constant | Var):
            continue
        seen.add(expr)
        calls += 1
        light = isinstance(expr, Call) and expr.op.kind in (OpKind.ELEMWISE, OpKind.INJECTIVE)
        if calls > MOST_CHEAP or not light or not _is_small(expr.type):
            return False
        todo += children(expr)
    return all(_is_small(result.type) for result in results)


def _is_small(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.is_static and type_.elements <= SMALL


def _branch(node: NodeContext, name: str) -> Branch:
    """Import a branch that may be taken; it may be one that these input shapes rule out."""
    try:
        with guards_apart() as found, node.folder.run_sizes.apart():
            results = node.branch(name)
    except Diverging as fork:
        raise node.unsupported(f"{name}: {fork.message}", fork.hint) from None
    except ModelError as error:
        raise node.unsupported(
            f"the condition is only known at run time, and {name} does not fit: "
            f"{error.where}: {error.message}",
            "give the input that decides the condition a constant value",
        ) from None
    return Branch(results, found.guards)


def loop(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Loop: a small one of known iterations is written out, another stays a loop."""
    if node.flow is not None and not _is_written_out(node):
        return _iterated(node, node.flow)
    iterations = (
        1 << 63
        if node.optional(0) is None
        else node.required_integer(0, "the number of iterations")
    )
    going = node.optional(1) is None or bool(node.required_scalar(1, "the condition"))
    state = [node.input(index) for index in range(2, len(node.args))]
    rows: list[tuple[Expr, ...]] = []
    while going and len(rows) < iterations:
        _check_size(node, len(rows) + 1)
        given = [node.array(np.array(len(rows))), node.array(np.array(True)), *state]
        results = node.body("body", given)
        known = node.folder.value(results[0])
        if known is None and node.flow is not None:
            return _iterated(node, node.flow)
        if known is None:
            raise node.unsupported("Loop whose condition is not known at compile time", STATIC_HINT)
        going = bool(known.reshape(()))
        state = list(results[1 : 1 + len(state)])
        rows.append(tensors_of(node, results[1 + len(state) :]))
    return (*state, *_stacked(node, len(node.node.outputs) - len(state), rows))


def _iterated(node: NodeContext, flow: Flow) -> tuple[Expr, ...]:
    """Convert a Loop that stays one; what it appends to sequences it collects."""
    collecting = collecting_loop(node)
    if collecting is None:
        return iterated_loop(node, flow)
    appended = len(collecting.places)
    return collecting.results(iterated_loop(collecting.node, flow, appended))


def _is_written_out(node: NodeContext) -> bool:
    """Whether a loop is small, and it is known the trip count."""
    trip, condition = node.constant_value(0), node.constant_value(1)
    if trip is None or trip.size != 1 or (node.optional(1) is not None and condition is None):
        return False
    return _is_few(node, int(trip.reshape(())))


def _is_few(node: NodeContext, iterations: Size) -> bool:
    """Whether it is known that the iterations become few nodes."""
    nodes = max(1, len(node.graph("body").nodes))
    return isinstance(iterations, int) and iterations * nodes <= FEW_WRITTEN


def scan(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Scan over dimensions of known size if the body is small enough."""
    if node.opset < 9:
        return _batch_scan(node)
    count = node.integer("num_scan_inputs")
    operands = node.variadic()
    if not 1 <= count <= len(operands):
        raise node.model_error(f"num_scan_inputs={count} of {len(operands)} operands")
    state, inputs = operands[: len(operands) - count], operands[len(operands) - count :]
    axes = [
        node.normal_axis(axis, rank_of(x))
        for axis, x in zip(node.integers("scan_input_axes", (0,) * count), inputs, strict=True)
    ]
    back = node.integers("scan_input_directions", (0,) * count)
    first = len(operands) - count
    sizes = {node.static_shape(first + n)[axis] for n, axis in enumerate(axes)}
    if len(sizes) != 1:
        raise node.model_error(f"the operands have {sorted(sizes)} slices")
    (iterations,) = sizes
    if node.flow is not None and not _is_few(node, iterations):
        return iterated_scan(node, node.flow)
    _check_size(node, iterations)
    state, rows = _written_scan(node, state, inputs, axes, back)
    return (*state, *_scan_outputs(node, len(node.node.outputs) - len(state), rows))


def _batch_scan(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Scan as before opset 9: operands have a batch, then the dimension of the slices."""
    if node.optional(0) is not None:
        raise node.unsupported("Scan with lengths of sequences that differ")
    count = node.integer("num_scan_inputs")
    operands = [node.input(n) for n in range(1, len(node.args))]
    if not 1 <= count <= len(operands):
        raise node.model_error(f"num_scan_inputs={count} of {len(operands)} operands")
    first = len(operands) - count
    shapes = {node.static_shape(1 + n)[:2] for n in range(first, len(operands))}
    if len(shapes) != 1:
        raise node.model_error(f"the operands have {sorted(shapes)} samples and slices")
    ((batch, iterations),) = shapes
    for number in range(first):
        samples = next(iter(node.static_shape(1 + number)), 1)
        if samples != batch:
            raise node.model_error(f"the operands have batches of {samples} and {batch}")
    _check_size(node, batch * iterations)
    back = node.integers("directions", (0,) * count)
    made: list[tuple[Expr, ...]] = []
    for number in range(batch):
        given = [node.item(x, 0, number) for x in operands]
        state, rows = _written_scan(node, given[:first], given[first:], (0,) * count, back)
        collected = _stacked(node, len(node.node.outputs) - first, rows)
        made.append((*state, *collected))
    return tuple(_stacked(node, len(node.node.outputs), made))


def _written_scan(
    node: NodeContext,
    state: Sequence[Expr],
    inputs: Sequence[Expr],
    axes: Sequence[int],
    back: Sequence[int],
) -> tuple[list[Expr], list[tuple[Expr, ...]]]:
    """Write the iterations of a Scan out; return the last state, and what each one collects."""
    iterations = extents(sizes_of(inputs[0]))[axes[0]]
    rows: list[tuple[Expr, ...]] = []
    for iteration in range(iterations):
        given = [
            node.item(x, axis, iterations - 1 - iteration if backwards else iteration)
            for x, axis, backwards in zip(inputs, axes, back, strict=True)
        ]
        results = tensors_of(node, node.body("body", [*state, *given]))
        rows.append(results[len(state) :])
        state = results[: len(state)]
    return list(state), rows


def _scan_outputs(
    node: NodeContext, count: int, rows: Sequence[tuple[Expr, ...]]
) -> Iterator[Expr]:
    """Stack what the iterations gave, in the direction and along the axis that the node says."""
    axes = node.integers("scan_output_axes", (0,) * count)
    back = node.integers("scan_output_directions", (0,) * count)
    for number, stacked in enumerate(_stacked(node, count, rows, back)):
        rank = rank_of(stacked)
        axis = node.normal_axis(axes[number], rank)
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
        yield node.transpose(stacked, order)


def _stacked(
    node: NodeContext, count: int, rows: Sequence[tuple[Expr, ...]], back: Sequence[int] = ()
) -> Iterator[Expr]:
    """Join what iterations gave along a new first dimension, backwards where ``back`` is set."""
    if count > 0 and not rows:
        raise node.unsupported(f"{node.op_type} of no iterations that collects values", STATIC_HINT)
    if rows and len(rows[0]) != count:
        raise node.model_error(f"the body gives {len(rows[0])} values to collect, not {count}")
    for number in range(count):
        parts = [node.reshape(row[number], (1, *sizes_of(row[number]))) for row in rows]
        yield node.concat(parts[::-1] if back and back[number] else parts, 0)


def _check_size(node: NodeContext, iterations: int) -> None:
    """Refuse to write out more than a graph should hold; such a loop runs on the host."""
    written = iterations * max(1, len(node.graph("body").nodes))
    if written > MAX_WRITTEN:
        raise node.unsupported(
            f"{node.op_type} of {iterations} iterations or more, {written} nodes in all",
            STATIC_HINT,
        )


CONVERTERS = MappingProxyType({"If": if_, "Loop": loop, "Scan": scan})
