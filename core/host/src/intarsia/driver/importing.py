# SPDX-License-Identifier: Apache-2.0
"""The first stage: whatever the user calls a model becomes a module that can be compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import file_digest
from pathlib import Path
from typing import TypeAlias

import numpy as np

from intarsia_ir.graph.inputs import bind_params
from intarsia_ir.graph.module import IRModule
from intarsia_runtime.errors import ModelError
from intarsia_runtime.installed import installed_version

ModelFile: TypeAlias = "str | os.PathLike[str] | bytes"
"""An ONNX model: its path or its bytes; or the path of a saved PyTorch program."""

Model: TypeAlias = "IRModule | ModelFile"
"""A module, or an ONNX model: its path or its bytes; or the path of a saved PyTorch program."""

_PROGRAM = ".pt2"  # PyTorch's own name for what torch.export.save writes


def is_program(model: Model) -> bool:
    """Whether a model is a file with a program of PyTorch, by its name."""
    return isinstance(model, str | os.PathLike) and Path(model).suffix == _PROGRAM


def source_digests(path: Path) -> dict[str, str]:
    """Return a digest of a model's file and of every file that it keeps weights in, by name.

    What PyTorch makes of a program of its own depends on its version, which stands behind.

    Raises:
        ModelError: It cannot be read.
        UsageError: The package that reads it is missing.
    """
    if not is_program(path):
        from intarsia_onnx.reader import model_digests  # PyTorch's do without onnx

        return model_digests(path)
    try:
        with path.open("rb") as file:
            found = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"cannot read '{path}': {error.strerror}") from None
    for name in ("torch", "onnxscript"):
        known = installed_version(name)
        found += f" {name} {known}" if known else ""
    return {"": found}


def import_model(
    model: Model,
    shapes: Mapping[str, Sequence[int]] | None = None,
    params: Mapping[str, np.ndarray] | None = None,
    *,
    mapped: bool = False,
) -> IRModule:
    """Return the model as a module with ``params`` put in.

    Args:
        model: A module, an ONNX model, or a saved program of PyTorch.
        shapes: Shapes of inputs, for a model that is imported.
        params: Values of inputs, which then are no inputs any more.
        mapped: Leave large weights in the model's file.

    Raises:
        ModelError: The model is broken, or ``params`` do not fit it.
        UnsupportedError: The model uses what cannot be imported.
        UsageError: ``shapes`` do not fit the model.
    """
    if is_program(model):
        from intarsia_torch.importing import from_torch  # only who has such a file needs it

        model = from_torch(model, shapes=shapes)
    elif not isinstance(model, IRModule):
        from intarsia_onnx import from_onnx  # a module that exists needs no importer

        model = from_onnx(model, shapes=shapes, mapped=mapped)
    elif shapes:
        raise ModelError(
            "shapes belong to the import of a model; this module is already imported",
            hint="from_onnx(model, shapes=...), or pass the model file instead of the module",
        )
    return bind_params(model, params) if params else model
