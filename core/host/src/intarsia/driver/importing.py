# SPDX-License-Identifier: Apache-2.0
"""The first stage: whatever the user calls a model becomes a module that can be compiled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path
from typing import TypeAlias

import numpy as np

from intarsia_ir.budget import physical_memory
from intarsia_ir.graph.expr import Constant, Expr, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, TupleType, Type
from intarsia_ir.graph.walk import calls, post_order, substitute
from intarsia_runtime.artifact.mapped import release
from intarsia_runtime.errors import ModelError, ResourceError, UnsupportedError
from intarsia_runtime.installed import installed_version

from ..target.options import did_you_mean

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
            "shapes are given when a model is imported, this module has been",
            hint="from_onnx(model, shapes=...), or give the model itself instead of the module",
        )
    return bind_params(model, params) if params else model


def fits(array: np.ndarray, type_: TensorType) -> bool:
    """Whether an array is a value of an input, whose sizes may be open."""
    same = array.dtype.name == type_.dtype.value and array.ndim == type_.rank
    sizes = zip(array.shape, type_.shape, strict=False)
    return same and all(not isinstance(size, int) or size == own for own, size in sizes)


def bind_params(module: IRModule, params: Mapping[str, np.ndarray]) -> IRModule:
    """Replace parameters of ``main`` by constants.

    Raises:
        ModelError: ``main`` has no such parameter, or one of another shape or element type.
    """
    main = module.main
    values: dict[Expr, Expr] = {}
    named = {param.name: param for param in main.params}
    for name, array in params.items():
        if name not in named:
            hint = did_you_mean(name, named) or f"inputs: {', '.join(named)}"
            raise ModelError(f"params has '{name}', but the model has no such input", hint=hint)
        value = constant(array, name=name, span=named[name].span)
        if value.type != named[name].type:
            raise ModelError(f"input '{name}' is {named[name].type}, params has {value.type}")
        values[named[name]] = value
    kept = tuple(param for param in main.params if param not in values)
    return module.with_main(replace(main, params=kept, body=substitute(main.body, values)))


def release_files(module: IRModule) -> None:
    """Take weights that lie in mapped files out of memory until they are read again."""
    release(
        node.data
        for function in module.functions.values()
        for node in post_order(function.body)
        if isinstance(node, Constant)
    )


def check_static(module: IRModule) -> None:
    """Refuse a model with inputs of unknown size, or with sizes that it computes.

    Raises:
        UnsupportedError: There is one; the hint shows the option to give.
    """
    unknown = [param for param in module.main.params if not is_static(param.type)]
    if unknown:
        first = unknown[0]
        raise UnsupportedError(
            f"the size of input '{first.name}' is not known: {first.type}",
            hint=f"--shape {first.name}:{_example(first)}",
        )
    for call in calls(module.main):
        if call.op.defines_size:
            raise UnsupportedError(
                "the model computes a size, and this target takes known sizes alone",
                where=str(call.span),
                hint="give the value that decides it, or compile for a target of open sizes",
            )


def check_budget(module: IRModule, budget: int | None = None) -> None:
    """Refuse a model that cannot fit in memory, before anything is allocated.

    Args:
        module: Any module of static shapes.
        budget: Bytes; ``None`` means the memory of this machine.

    Raises:
        ResourceError: One tensor, or all weights together, need more.
    """
    limit = physical_memory() if budget is None else budget
    weights = 0
    for function in module.functions.values():
        for node in post_order(function.body):
            size = _bytes(node.type)
            weights += size if isinstance(node, Constant) else 0
            if size > limit or weights > limit:
                what = "the weights need" if weights > limit else "one tensor needs"
                raise ResourceError(
                    f"{what} {max(size, weights):,} bytes, the budget is {limit:,}",
                    hint="use smaller inputs, or a machine with more memory; "
                    "--memory-limit sets the budget (in Python memory_limit=...)",
                    where=str(node.span),
                )


def is_static(type_: Type) -> bool:
    """Whether a value is one tensor whose sizes are known."""
    return isinstance(type_, TensorType) and type_.is_static


def _example(param: Var) -> str:
    if not isinstance(param.type, TensorType):
        return "1"
    return ",".join(str(size) if isinstance(size, int) else "1" for size in param.type.shape)


def _bytes(type_: Type) -> int:
    """Bytes of a value; what is not static counts as nothing, a later stage refuses it."""
    if isinstance(type_, TupleType):
        return sum(_bytes(field) for field in type_.fields)  # tuples of tuples do not nest deep
    return type_.bytes if type_.is_static else 0
