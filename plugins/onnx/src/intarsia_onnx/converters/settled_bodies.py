# SPDX-License-Identifier: Apache-2.0
"""Imports bodies of loops of the run until the sizes of loop-carried values are settled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np

from intarsia_ir.graph.expr import Expr, Var, tensor_type
from intarsia_ir.graph.guards import guards_apart, is_collecting
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_ir.ops import control
from intarsia_runtime.errors import ModelError

from ..builder import STATIC_HINT
from ..context import NodeContext
from ..graph import Graph
from .carried_sequences import given_values, handed_tensors
from .iteration_bodies import IterationBody, Iterations, IterationSize, new_size, with_next
from .sequences import tensors_of

MOST_ROUNDS = 6
"""How often a body is imported until the sizes of its values are settled."""


def settled_body(node: NodeContext, iterations: Iterations) -> IterationBody:
    """Import the body; where a value changes its size, that size becomes a variable.

    Raises:
        UnsupportedError: A value changes its rank or element type, or a size in a model that is
            built with known sizes.
    """
    types = [tensor_type(value) for value in iterations.tensors]
    sizes: dict[str, IterationSize] = {}
    for _ in range(MOST_ROUNDS):
        body, is_other = _imported(node, iterations, types)
        changed = _compared(node, iterations, body, types, sizes)
        if not changed and not is_other:
            _check(node, body, sizes)
            body.sizes = [*sizes.values()]
            return body
    raise node.unsupported("the sizes of loop-carried values do not converge", STATIC_HINT)


def _imported(
    node: NodeContext, iterations: Iterations, types: Sequence[TensorType]
) -> tuple[IterationBody, bool]:
    """Import the body for variables; return also whether less is known of a sequence."""
    infos = node.graph("body").inputs[2 * iterations.heads :]
    if len(infos) != len(iterations.state) + len(iterations.sliced):
        given = len(iterations.state) + len(iterations.sliced)
        raise node.model_error(f"the body takes {len(infos)} values, {given} are given")
    names = [info.name for info in infos]
    carried = [
        Var(name, type_)
        for name, type_ in zip(_tensor_names(iterations, names), types, strict=True)
    ]
    slices = [
        Var(name, control.row_type(tensor_type(x)))
        for name, x in zip(names[len(iterations.state) :], iterations.sliced, strict=True)
    ]
    with guards_apart() as found, node.folder.run_sizes.apart():
        results, handed, is_other = _results(node, iterations, carried, slices)
    same = [value is var for value, var in zip(handed, carried, strict=True)]
    if any(same) and not is_other:  # what no iteration changes is the same value inside
        pairs = zip(iterations.tensors, carried, same, strict=True)
        given = [x if kept else var for x, var, kept in pairs]
        with guards_apart() as found, node.folder.run_sizes.apart():
            results, handed, is_other = _results(node, iterations, given, slices)
    changing = [n for n, kept in enumerate(same) if not kept]
    body = IterationBody(
        results,
        slices,
        changing,
        [carried[n] for n in changing],
        [iterations.tensors[n] for n in changing],
        [handed[n] for n in changing],
        found.guards,
    )
    return body, is_other


def _tensor_names(iterations: Iterations, names: Sequence[str]) -> Iterator[str]:
    """Yield names for the tensors that values of the state are."""
    for value, name in zip(iterations.state, names, strict=False):
        yield from (f"{name} items", f"{name} shapes") if value.is_sequence else (name,)


def _results(
    node: NodeContext, iterations: Iterations, tensors: Sequence[Expr], slices: Sequence[Expr]
) -> tuple[tuple[Expr, ...], list[Expr], bool]:
    """Return what an iteration gives, and what :func:`handed_tensors` says of its state."""
    try:
        return _results_of(node, iterations, tensors, slices)
    except ModelError:
        news = [value for value in iterations.state if value.is_new and value.may_be_new]
        if not news:
            raise
    for value in news:  # the body reads elements, of which there are none yet
        value.may_be_new = False
    return _results_of(node, iterations, tensors, slices)


def _results_of(
    node: NodeContext, iterations: Iterations, tensors: Sequence[Expr], slices: Sequence[Expr]
) -> tuple[tuple[Expr, ...], list[Expr], bool]:
    head: tuple[Expr, ...] = ()
    if iterations.heads and iterations.iteration is not None:
        head = (iterations.iteration, node.array(np.array(True)))
    draws = node.folder.draws
    given = given_values(node, iterations.state, tensors)
    with nullcontext() if draws is None else draws.repeated(iterations.iteration):
        results = node.body("body", [*head, *given, *slices])
    count = iterations.heads + len(iterations.state)
    if len(results) < count:
        raise node.model_error(f"the body gives {len(results)} values")
    tensors_of(node, (*results[: iterations.heads], *results[count:]))
    handed = handed_tensors(node, iterations.state, results[iterations.heads : count])
    return results, *handed


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
                own = sizes[own.iteration.name] = with_next(own, after)
            if before == after or (own is not None and own.next == after):
                continue
            if not is_collecting():
                raise node.unsupported(
                    f"'{var.name}' is {old} in one iteration and {new} in the next", STATIC_HINT
                )
            first = tensor_type(iterations.tensors[number]).shape[axis]
            if (before, after) not in fresh:
                fresh[before, after] = new_size(node, first)
            shape[axis] = fresh[before, after].iteration
        types[number] = old.with_shape(shape)
    for size in fresh.values():
        sizes[size.iteration.name] = size
    if fresh:
        for name, size in sizes.items():
            sizes[name] = with_next(size, -1)  # said by the next import
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


def passes_condition(body: Graph) -> bool:
    """Whether the body of a Loop gives the condition that it got."""
    name, condition = body.outputs[0].name, body.inputs[1].name
    while name != condition:
        made = [node for node in body.nodes if name in node.outputs]
        if len(made) != 1 or made[0].op_type != "Identity":
            return False
        name = made[0].inputs[0]
    return True
