# SPDX-License-Identifier: Apache-2.0
"""Control flow: If, Loop, Scan, SequenceMap. Bodies are graphs, carried out node by node."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from intarsia_ir.budget import budget

from ..graph import Graph
from .call import NumpyCall, Value

MAX_TURNS = 1 << 31  # of a loop whose limit is left out; a model that needs more never ends


def if_(call: NumpyCall, condition: np.ndarray) -> tuple[Value, ...]:
    """Carry out the branch that the condition, one bool, chooses."""
    name = "then_branch" if bool(condition.reshape(())) else "else_branch"
    return call.run_graph(call.graph(name), {})


def loop(
    call: NumpyCall, limit: np.ndarray | None, condition: np.ndarray | None, *carried: Value
) -> tuple[Value, ...]:
    """Repeat ``body(turn, condition, *carried)`` while it says so, at most ``limit`` times.

    Gives the carried values of the last turn and then, stacked over the turns, what else the body
    gives.
    """
    body = call.graph("body")
    iterations = MAX_TURNS if limit is None else int(limit.reshape(()))
    going = condition is None or bool(condition.reshape(()))
    names = [info.name for info in body.inputs]
    state: list[Value] = list(carried)
    rows: list[tuple[Value, ...]] = []
    iteration = 0
    limits = budget()
    while going and iteration < iterations:
        limits.check(call.span)
        given: list[Value] = [np.array(iteration, np.int64), np.array(going), *state]
        results = call.run_graph(body, dict(zip(names, given, strict=True)))
        going = bool(_array(call, results[0]).reshape(()))
        state = list(results[1 : 1 + len(state)])
        rows.append(results[1 + len(state) :])
        iteration += 1
    return (*state, *_stacked(call, body, 1 + len(state), rows))


def _stacked(
    call: NumpyCall, body: Graph, first: int, rows: list[tuple[Value, ...]]
) -> list[np.ndarray]:
    """Join what each turn gave along a new first dimension; of no turns, by declared types."""
    if rows:
        columns = zip(*rows, strict=True)
        return [_stack(call, [_array(call, item) for item in column]) for column in columns]
    empty: list[np.ndarray] = []
    for info in body.outputs[first:]:
        sizes = () if info.type is None else info.type.shape
        known = tuple(size if isinstance(size, int) else 0 for size in sizes)
        dtype = np.float32 if info.type is None else np.dtype(info.type.dtype.value)
        empty.append(np.empty((0, *known), dtype))
    return empty


def _stack(call: NumpyCall, arrays: Sequence[np.ndarray]) -> np.ndarray:
    call.reserve((len(arrays), *arrays[0].shape), arrays[0].itemsize)
    return np.stack(arrays)


def scan(call: NumpyCall, *operands: Value) -> tuple[Value, ...]:
    """Walk over slices of the last operands, carrying the first ones (opset 8 has a batch too)."""
    count = call.integer("num_scan_inputs")
    if call.opset >= 9:
        states, inputs = _split(call, operands, count)
        axes = call.integers("scan_input_axes", (0,) * count)
        return _scan(call, states, inputs, axes)
    lengths, *rest = operands
    if lengths is not None:
        raise call.unsupported("Scan with lengths of sequences that differ")
    states, inputs = _split(call, rest, count)
    batches = [
        _scan(call, [s[b] for s in states], [x[b] for x in inputs], (0,) * count)
        for b in range(inputs[0].shape[0])
    ]
    columns = zip(*batches, strict=True)
    return tuple(np.stack([_array(call, item) for item in column]) for column in columns)


def _split(
    call: NumpyCall, operands: Sequence[Value], count: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    arrays = [_array(call, operand) for operand in operands]
    border = len(arrays) - count
    return arrays[:border], arrays[border:]


def _scan(
    call: NumpyCall,
    states: list[np.ndarray],
    inputs: list[np.ndarray],
    axes: tuple[int, ...],
) -> tuple[Value, ...]:
    body = call.graph("body")
    names = [info.name for info in body.inputs]
    backwards = call.integers(
        "directions" if call.opset < 9 else "scan_input_directions", (0,) * len(inputs)
    )
    slices = [
        np.flip(np.moveaxis(x, axis, 0), 0) if back else np.moveaxis(x, axis, 0)
        for x, axis, back in zip(inputs, axes, backwards, strict=True)
    ]
    current: list[Value] = list(states)
    rows: list[tuple[Value, ...]] = []
    limits = budget()
    for iteration in range(slices[0].shape[0]):
        limits.check(call.span)
        given = [*current, *(np.asarray(x[iteration]) for x in slices)]
        results = call.run_graph(body, dict(zip(names, given, strict=True)))
        current = list(results[: len(current)])
        rows.append(results[len(current) :])
    stacked = _stacked(call, body, len(current), rows)
    to = call.integers("scan_output_axes", (0,) * len(stacked))
    flipped = call.integers("scan_output_directions", (0,) * len(stacked))
    outputs = [
        np.moveaxis(np.flip(y, 0) if back else y, 0, axis)
        for y, axis, back in zip(stacked, to, flipped, strict=True)
    ]
    return (*current, *outputs)


def sequence_map(call: NumpyCall, first: list[Value], *others: Value) -> tuple[Value, ...]:
    """Apply the body to every element of a sequence; tensors are the same for each."""
    body = call.graph("body")
    names = [info.name for info in body.inputs]
    rows: list[tuple[Value, ...]] = []
    for index, item in enumerate(first):
        given = [item, *(o[index] if isinstance(o, list) else o for o in others)]
        rows.append(call.run_graph(body, dict(zip(names, given, strict=True))))
    return tuple([row[index] for row in rows] for index in range(len(body.outputs)))


def _array(call: NumpyCall, value: Value) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    raise call.model_error("expects a tensor, got a sequence or nothing")


KERNELS = MappingProxyType(
    {("", "If"): if_, ("", "Loop"): loop, ("", "Scan"): scan, ("", "SequenceMap"): sequence_map}
)
