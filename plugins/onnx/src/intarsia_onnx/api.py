# SPDX-License-Identifier: Apache-2.0
"""The entry to the ONNX front end."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from intarsia_ir.budget import budget, limited
from intarsia_ir.diagnostics import ModelWarning
from intarsia_ir.graph.expr import Function
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import Dim, Size, TensorType
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.errors import IntarsiaError, ModelError, UsageError

from .broadcasts import bound
from .converters import CONVERTERS
from .graph import Graph, Model
from .importer import Importer
from .reader import MAX_MODEL_BYTES, read_model

if TYPE_CHECKING:
    from .reader import ModelSource


def from_onnx(
    model: ModelSource,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    max_bytes: int = MAX_MODEL_BYTES,
    mapped: bool = False,
    time_limit: float | None = None,
    memory_limit: int | None = None,
    control_flow: bool = False,
) -> IRModule:
    """Import an ONNX model.

    Args:
        model: Path, serialized bytes, or ``onnx.ModelProto`` (which is not changed). External
            weight files are read only for a path, and only inside its folder.
        shapes: Shape of an input by its name; other inputs keep the model's shape.
        constants: Value of an input by its name; such an input is not a parameter of the result.
        max_bytes: Limit on the size of the model file itself.
        mapped: Leave large weights in the file, which must then stay unchanged while they are used.
        time_limit: Limit in seconds; see :func:`intarsia_ir.budget.limited`.
        memory_limit: Limit in bytes.
        control_flow: Whether data-dependent branches and loops become functions of the module,
            which some backends compile. Otherwise both branches are computed, and loops are
            unrolled or refused.

    Returns:
        A module whose ``main`` has the graph's inputs as parameters, under their names, in order,
        and the graph's outputs as results. Every call carries the name of its node.

    Raises:
        ModelError: The file is not a model, or it is broken.
        UnsupportedError: The model has unsupported parts; the message lists all of them.
        UsageError: ``shapes`` or ``constants`` do not fit the model.
        ResourceError: The model is too large, or exceeds a limit.
    """
    with limited(time_limit, memory_limit):
        read = read_model(model, max_bytes=max_bytes, mapped=mapped)
        return import_read(read, shapes, constants, control_flow=control_flow)


def import_read(
    read: Model,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    control_flow: bool = False,
) -> IRModule:
    """Import an ONNX model that :func:`read_model` has read, as :func:`from_onnx` does.

    Raises:
        ModelError: The model is broken.
        UnsupportedError: The model uses what cannot be imported; the message lists all of it.
        UsageError: ``shapes`` or ``constants`` do not fit the model.
    """
    shapes = {} if shapes is None else shapes
    constants = {} if constants is None else constants
    limits = budget()
    limits.stage = "importing the model"
    try:
        inputs = input_types(read.graph, shapes, constants)
        module = Importer(read, CONVERTERS, inputs, constants, control_flow=control_flow).run()
        if not shapes and not constants:
            _check_outputs(read.graph, module.main)
        limits.stage = ""
    except IntarsiaError as error:
        error.where = place_error(read, error.where)
        raise
    return module


def declared_types(
    model: ModelSource,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    max_bytes: int = MAX_MODEL_BYTES,
) -> dict[str, TensorType]:
    """Return the type that a model declares for each input that is a tensor of known rank.

    With ``shapes`` of some inputs, theirs are put in, and sizes of the same name everywhere.

    Raises:
        ModelError: The file is no model, or a broken one.
        ResourceError: The model is too large.
        UsageError: ``shapes`` do not fit the model.
    """
    graph = read_model(model, max_bytes=max_bytes, any_value=True, mapped=True).graph
    return input_types(graph, shapes or {}, {})


def place_error(model: Model, where: str) -> str:
    """Put the model's name before the place of an error in it."""
    return f"{model.source}: {where}" if where else model.source


def input_types(
    graph: Graph, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, np.ndarray]
) -> dict[str, TensorType]:
    """Return the type of every input with the user's shapes put in."""
    types = {info.name: info.type for info in graph.inputs if info.type is not None}
    _check_names(shapes, types, "shape")
    _check_names(constants, types, "value")
    sizes: dict[Dim, Size] = {}
    for name, shape in shapes.items():
        types[name] = _overridden(name, types[name], tuple(shape), sizes)
    for name, value in constants.items():
        _check_constant(name, types[name], value)
    return bound(types, sizes.items())


def _check_names(given: Collection[str], known: Mapping[str, TensorType], what: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"inputs: {', '.join(known)}"
            raise UsageError(f"a {what} is given for '{name}', which is no input", hint=hint)


def _overridden(
    name: str, type_: TensorType, shape: tuple[Size, ...], sizes: dict[Dim, Size]
) -> TensorType:
    if len(shape) != type_.rank:
        raise UsageError(
            f"input '{name}' has {type_.rank} dimensions, the given shape has {len(shape)}",
            hint=f"it is declared as {type_}",
        )
    for declared, size in zip(type_.shape, shape, strict=True):
        if isinstance(size, int) and size < 0:
            raise UsageError(f"the shape of input '{name}' has the negative size {size}")
        if isinstance(declared, int):
            continue
        if sizes.setdefault(declared, size) != size:
            raise UsageError(f"dimension '{declared}' is {sizes[declared]} and {size} at once")
    return type_.with_shape(shape)


def _check_constant(name: str, type_: TensorType, value: np.ndarray) -> None:
    if value.dtype != numpy_dtype(type_.dtype):
        raise UsageError(f"input '{name}' takes {type_.dtype}, the given value is {value.dtype}")
    fits = len(value.shape) == type_.rank and all(
        isinstance(size, Dim) or size == given
        for size, given in zip(type_.shape, value.shape, strict=True)
    )
    if not fits:
        raise UsageError(f"input '{name}' is {type_}, the given value has shape {value.shape}")


def _check_outputs(graph: Graph, function: Function) -> None:
    """Compare the declared types of the outputs with the inferred ones."""
    for info, value in zip(graph.outputs, function.outputs, strict=True):
        declared, found = info.type, value.type
        if declared is None or not isinstance(found, TensorType):
            continue
        same_shape = declared.rank == found.rank and all(
            isinstance(a, Dim) or isinstance(b, Dim) or a == b
            for a, b in zip(declared.shape, found.shape, strict=False)
        )
        if declared.dtype is not found.dtype or not same_shape:
            message = f"output '{info.name}' is declared as {declared}, but is {found}"
            if declared.dtype is not found.dtype:
                raise ModelError(message)
            warnings.warn(message, ModelWarning, stacklevel=2)
