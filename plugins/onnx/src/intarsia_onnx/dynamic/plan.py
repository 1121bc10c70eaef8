# SPDX-License-Identifier: Apache-2.0
"""The entry to planning: a model of which a part may only be known when it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

from intarsia_runtime.errors import IntarsiaError, TypeRuleError, UnsupportedError

from ..api import input_types, place_error
from ..reader import MAX_MODEL_BYTES, read_model
from .border import has_border, import_bordered
from .open_planner import OpenPlanner
from .planner import Planner

if TYPE_CHECKING:
    import numpy as np

    from intarsia_ir.graph.module import IRModule

    from ..graph import Model
    from ..reader import ModelSource
    from .program import DynamicModel


def plan_onnx(
    model: ModelSource,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    max_bytes: int = MAX_MODEL_BYTES,
    mapped: bool = False,
) -> IRModule | DynamicModel:
    """Import a model of which a part may only be known at run time.

    Args:
        model: Path, serialized bytes, or ``onnx.ModelProto`` (which is not changed).
        shapes: Shape of an input by its name. Inputs whose size stays unknown are values of the
            program, and what depends on them is no part of a compiled piece.
        constants: Value of an input by its name; such an input is no input of the result.
        max_bytes: Limit on the size of the model file itself.
        mapped: Leave large weights in the file, which must then stay as it is while they are used.

    Returns:
        A module if nothing depends on run time, else a program with its piece.

    Raises:
        ModelError: The file is no model, or a broken one.
        UnsupportedError: A node that can be neither compiled nor carried out.
        UsageError: ``shapes`` or ``constants`` do not fit the model.
        ResourceError: The model is too large.
    """
    read = read_model(model, max_bytes=max_bytes, any_value=True, mapped=mapped)
    return plan_read(read, shapes, constants)


def plan_read(
    read: Model,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opens: bool = False,
    hosted: Mapping[str, str] = MappingProxyType({}),
) -> IRModule | DynamicModel:
    """Import a model that was read with any values, as :func:`plan_onnx` does.

    Args:
        read: The model.
        shapes: As of :func:`plan_onnx`.
        constants: As of :func:`plan_onnx`.
        opens: Whether pieces are compiled for sizes that only the run knows. Then inputs of open
            size, results of steps, and graphs inside steps are parts of pieces too. Somebody must
            collect guards.
        hosted: Names of nodes that cannot be compiled, with the reason.

    Raises:
        ModelError: The model is broken.
        UnsupportedError: A node that can be neither compiled nor carried out.
        UsageError: ``shapes`` or ``constants`` do not fit the model.
    """
    fixed: Mapping[str, np.ndarray] = {} if constants is None else constants
    try:
        types = input_types(read.graph, shapes or {}, fixed)
        if has_border(read) and not hosted:
            with suppress(UnsupportedError, TypeRuleError):
                return import_bordered(read, types, fixed, opens=opens)
        planner = OpenPlanner(read, types, fixed, hosted) if opens else Planner(read, types, fixed)
        return planner.plan()
    except IntarsiaError as error:
        error.where = place_error(read, error.where)
        raise
