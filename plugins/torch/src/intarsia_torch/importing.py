# SPDX-License-Identifier: Apache-2.0
"""Import PyTorch programs: what ``torch.export`` made of a module, or saved in a file.

torch is imported when a program is, never before: it takes two seconds.
"""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from intarsia_ir.graph.expr import tensor_type
from intarsia_ir.graph.guards import RequiredSizes, collecting_guards
from intarsia_ir.graph.module import IRModule
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import IntarsiaError, ModelError, UsageError

from .checks import require_export
from .exported import import_exported
from .onnx_export import export, first_line, onnx_model, quiet, require_torch

if TYPE_CHECKING:
    from .types import Exported, Module

_SAVE = "torch.export.save(torch.export.export(model, args), 'model.pt2') writes one"


def from_torch(
    program: object,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dynamic_shapes: object = None,
) -> IRModule:
    """Import a PyTorch program, by its ATen operators or through PyTorch's ONNX export.

    Args:
        program: A ``torch.nn.Module`` in evaluation mode, a ``torch.export.ExportedProgram``
            (neither is changed), or the path of a file from ``torch.export.save``.
        args: Example arguments of a module; only their shapes and element types matter.
        kwargs: Example arguments by keyword.
        shapes: Shape of an input by its name, for a program with open sizes.
        dynamic_shapes: For a module, the argument of this name of ``torch.export.export``: the
            sizes that stay open. The compiled program checks the ranges of ``torch.export.Dim``.

    Returns:
        A module whose ``main`` has the program's inputs as parameters and its outputs as results,
        with the names of the export; parameters and buffers are copied constants.

    Raises:
        ModelError: The file cannot be read, or has no exported program.
        UnsupportedError: PyTorch cannot export it, the exported graph has unsupported operators,
            or it changes its inputs or buffers.
        UsageError: torch or onnxscript is missing, a module is in training mode, or ``program`` has
            another type.
    """
    if isinstance(program, str | os.PathLike):
        _require_archive(Path(cast("str", program)))
    torch = require_torch()
    with quiet(torch):
        if isinstance(program, str | os.PathLike):
            program = _opened(torch, Path(cast("str", program)))
        exported = _exported(torch, program, args, kwargs, dynamic_shapes)
        try:
            return import_exported(torch, exported, shapes)
        except UsageError:
            raise
        except IntarsiaError:  # PyTorch's ONNX export may know what the converters do not
            with onnx_model(torch, exported) as model:
                return _checked(torch, exported, from_onnx(model, shapes=shapes))


def _checked(torch: ModuleType, exported: Exported, module: IRModule) -> IRModule:
    """Return a module of PyTorch's ONNX export with the checks of the exported program.

    Raises:
        UnsupportedError: A check has no counterpart.
        UsageError: Sizes that are given do not meet one.
    """
    required = module.attr(RequiredSizes)
    with collecting_guards(required.guards if required is not None else ()) as guards:
        shapes = {param.name: tensor_type(param).shape for param in module.main.params}
        require_export(torch, exported, shapes)
    return module.with_attr(RequiredSizes, RequiredSizes(tuple(guards))) if guards else module


def _require_archive(path: Path) -> None:
    """Tell what cannot be an exported program, with no need of torch.

    Raises:
        ModelError: The file cannot be read, or is no zip archive, or a damaged one.
    """
    if not path.is_file():
        raise ModelError(f"there is no file '{path}'")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch believes whatever the members hold
    except Exception as error:  # of files, zip and compression
        raise ModelError(f"'{path}' holds no exported program: {error}", hint=_SAVE) from None
    if damaged is not None:
        raise ModelError(f"'{path}' is damaged: the checksum of '{damaged}' is another")


def _opened(torch: ModuleType, path: Path) -> object:
    """Read what ``torch.export.save`` wrote.

    Raises:
        ModelError: The file holds something else.
    """
    recorded = _RecordedErrors()
    logger = logging.getLogger("torch.export")  # torch prints the first error, and goes on
    logger.addFilter(recorded)
    try:
        return torch.export.load(str(path))
    except Exception as error:  # of zip, JSON, or of operators that are not registered
        reason = first_line(recorded.error or error)
        raise ModelError(
            f"'{path}' holds no exported program that this torch reads: {reason}", hint=_SAVE
        ) from error
    finally:
        logger.removeFilter(recorded)


class _RecordedErrors(logging.Filter):
    """Keeps the error of a log's records, and lets none through."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        self.error = self.error or (record.exc_info[1] if record.exc_info else None)
        return False


def _exported(
    torch: ModuleType,
    program: object,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None,
    dynamic_shapes: object,
) -> Exported:
    """Return the program as an exported one."""
    if isinstance(program, torch.export.ExportedProgram):
        if args or kwargs or dynamic_shapes is not None:
            raise UsageError("an exported program knows its arguments; args are for a module")
        return cast("Exported", program)
    if not isinstance(program, torch.nn.Module):
        raise UsageError(
            f"expected a torch.nn.Module or an exported program, got {type(program).__name__}",
            hint="a function goes through torch.compile(function, backend='intarsia')",
        )
    module = cast("Module", program)
    if module.training:
        raise UsageError(
            f"the module {type(module).__name__} is in training mode, and what is compiled infers",
            hint="put it in evaluation mode: model.train(mode=False)",
        )
    return export(torch, module, tuple(args), dict(kwargs or {}), dynamic_shapes)
