# SPDX-License-Identifier: Apache-2.0
"""Two forms of a model whose open sizes are broadcast, of which the run takes one.

:mod:`~intarsia_onnx.broadcasts` says which sizes these are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Expr, Function, Var
from intarsia_ir.graph.guards import COMPUTED, Guard, guards_apart, require_all
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.compare import Equal

from .broadcasts import bound, names_of
from .builder import Builder, sizes_of
from .flow import Branch, Flow, fit_together
from .fold import ConstantFolder
from .import_scope import ImportScope

_SPAN = Span("sizes", "Broadcast")


def import_forms(
    functions: dict[str, Function],
    folder: ConstantFolder,
    scope: ImportScope,
    inputs: Mapping[str, TensorType],
    trial: Callable[[ImportScope, Sequence[Guard]], Branch | None],
) -> list[Expr | None] | None:
    """Import a model for open sizes that are equal, and again for others that broadcast.

    Args:
        functions: All of the module by now, by name; of the forms, if there are two, afterwards.
        folder: That of the importer.
        scope: The values of inputs and weights.
        inputs: Types of the inputs.
        trial: Imports the nodes with these values where these guards hold; ``None`` if it fails.

    Returns:
        What the run chooses, or the second form if sizes cannot be equal; ``None`` if the model
        must be the form that is there.
    """
    before = dict(functions)
    functions.clear()
    with guards_apart() as found:
        numbers = _with_numbers(scope, folder, inputs)
    equal = trial(numbers, found.guards)
    if equal is None:  # a size is broadcast with two numbers, so it is 1
        functions.clear()
    folder.broadcasts.is_general = True
    general = trial(scope.copied(), ())
    folder.broadcasts.is_general = False
    if equal is None and general is not None:
        require_all(general.guards)
        return [*general.results]
    if equal is not None and general is not None and fit_together(equal, general):
        params = {value for value in scope.values.values() if isinstance(value, Var)}
        flow = Flow(functions, lambda: set[Expr](params))
        return [*_choose(flow, folder, equal, general)]
    functions.clear()
    functions.update(before)
    return None


def _with_numbers(
    scope: ImportScope, folder: ConstantFolder, inputs: Mapping[str, TensorType]
) -> ImportScope:
    """Return a copy with numbers in the place of size variables that are broadcast with them."""
    copy, builder = scope.copied(), Builder(_SPAN, folder)
    for name, type_ in bound(inputs, folder.broadcasts.equal_numbers().items()).items():
        value = scope.values.get(name)
        if isinstance(value, Var):
            copy.values[name] = builder.reshape(value, type_.shape)
    return copy


def _choose(flow: Flow, folder: ConstantFolder, equal: Branch, general: Branch) -> tuple[Expr, ...]:
    """Return the results of a model that was imported twice: the run compares sizes."""
    builder = Builder(_SPAN, folder)
    needed = {(guard.left, guard.right) for guard in general.guards}
    require_all(guard for guard in equal.guards if (guard.left, guard.right) in needed)
    with guards_apart() as found:
        require_all(equal.guards)
        values = [
            builder.reshape(x, sizes_of(wanted)) if _is_of_inputs(wanted) else x
            for x, wanted in zip(equal.results, general.results, strict=True)
        ]
    difference = builder.size_tensor(folder.broadcasts.difference())
    are_equal = builder.call(Equal, difference, builder.array(np.zeros(1, np.int64)))
    branches = Branch(tuple(values), found.guards), general
    return flow.choose(builder, builder.reshape(are_equal, ()), branches)


def _is_of_inputs(x: Expr) -> bool:
    """Whether the sizes of the inputs decide the shape of a result."""
    return not any(COMPUTED in name for size in sizes_of(x) for name in names_of(size))
