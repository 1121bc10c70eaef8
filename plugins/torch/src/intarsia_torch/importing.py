# SPDX-License-Identifier: Apache-2.0
"""Import PyTorch programs through PyTorch's own ONNX export; the only file that imports torch.

torch is imported when a program is, never before: it takes two seconds.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
import zipfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from intarsia_ir.graph.module import IRModule
from intarsia_onnx import from_onnx
from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.errors import ModelError, UnsupportedError, UsageError

from .attention import encoder_layer, self_attention

if TYPE_CHECKING:
    from intarsia_onnx.reader import ModelSource

    from .types import Exported, Module

_SAVE = "torch.export.save(torch.export.export(model, args), 'model.pt2') writes one"

LARGEST_IN_MEMORY = 1 << 30
"""Bytes of weights up to which the ONNX model is handed over in memory; protobuf ends at 2 GiB."""


def require_torch() -> ModuleType:
    """Import torch.

    Raises:
        UsageError: It, or the package of its ONNX export, is missing.
    """
    try:
        torch = import_module("torch")
        import_module("onnxscript")  # torch.onnx does so late, with a message of its own
    except ImportError as error:
        raise UsageError(
            f"importing PyTorch programs needs the packages 'torch' and 'onnxscript': {error}",
            hint="pip install 'intarsia[torch]'",
        ) from None
    return torch


def from_torch(
    program: object,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> IRModule:
    """Import a PyTorch program through PyTorch's own ONNX export.

    Args:
        program: A ``torch.nn.Module`` in evaluation mode, or a ``torch.export.ExportedProgram``;
            neither is changed. Or the path of what ``torch.export.save`` wrote.
        args: Example arguments of a module; their shapes and element types hold, not their values.
        kwargs: Example arguments by keyword.
        shapes: Shape of an input by its name, for a program with sizes left open.

    Returns:
        A module whose ``main`` has the program's inputs as parameters and its outputs as results,
        named as the export names them; parameters and buffers are constants, copied.

    Raises:
        ModelError: The file cannot be read, or holds no exported program.
        UnsupportedError: PyTorch cannot export it, the exported graph uses what cannot be imported,
            or it changes its inputs or buffers.
        UsageError: torch or onnxscript is missing, a module is in training mode, or the program is
            none.
    """
    if isinstance(program, str | os.PathLike):
        _require_archive(Path(cast("str", program)))
    torch = require_torch()
    with quiet(torch):
        if isinstance(program, str | os.PathLike):
            program = _opened(torch, Path(cast("str", program)))
        exported = _exported(torch, program, args, kwargs)
        with onnx_model(torch, exported) as model:
            return from_onnx(model, shapes=shapes)


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
        reason = _first_line(recorded.error or error)
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
) -> Exported:
    """Return the program as an exported one."""
    if isinstance(program, torch.export.ExportedProgram):
        if args or kwargs:
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
    return export(torch, module, tuple(args), dict(kwargs or {}))


def export(
    torch: ModuleType, module: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> Exported:
    """Return what ``torch.export`` makes of a module.

    Raises:
        UnsupportedError: It fails; the error says where in the user's code.
    """
    try:
        return torch.export.export(module, args, kwargs)
    except Exception as error:  # torch.export has no root class of its errors
        raise UnsupportedError(
            f"PyTorch cannot export it: {_first_line(error)}",
            hint="torch.export.export(model, args) shows the whole message",
            where=_place(torch, error),
        ) from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return re.sub(r"\x1b\[\d*m", "", text.splitlines()[0])[:300]


def _place(torch: ModuleType, error: BaseException) -> str:
    """Return file and line of the user's code that an error comes from."""
    folders = tuple(str(Path(file or "").parent) + os.sep for file in (torch.__file__, __file__))
    found, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(folders) and not file.startswith("<"):
            found = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


@contextmanager
def onnx_model(torch: ModuleType, exported: Exported) -> Generator[ModelSource]:
    """Give the program as an ONNX model: in memory, or in files that are there until the end."""
    try:
        whole = _expand_fused(torch, exported)
        program = torch.onnx.export(whole, dynamo=True, verbose=False)
    except Exception as error:  # its errors are private classes
        raise UnsupportedError(
            f"PyTorch's ONNX export fails: {_export_problem(error)}",
            hint="torch.onnx.export(..., dynamo=True, report=True) writes all it knows",
        ) from error
    _refuse_changes(program.exported_program)  # before the export, writes are operators
    tensors = (value.const_value for value in program.model.graph.initializers.values())
    size = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    if size <= LARGEST_IN_MEMORY:
        yield program.model_proto
        return
    with temporary_folder("torch") as folder:
        path = folder / "model.onnx"
        program.save(str(path), external_data=True)
        yield path


def _refuse_changes(exported: Exported) -> None:
    """Raise unless the program only computes."""
    signature = exported.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise UnsupportedError(
            f"the program writes to {', '.join(map(repr, changed))}; compiled code only computes",
            hint="in evaluation mode a batch norm does not; or return the new value",
        )


def _expand_fused(torch: ModuleType, exported: Exported) -> Exported:
    """Replace PyTorch's own fused operators, which its ONNX export does not know."""
    names = torch.ops.aten
    table = {
        names._transformer_encoder_layer_fwd.default: partial(encoder_layer, torch),
        names._native_multi_head_attention.default: partial(self_attention, torch),
    }
    used = {node.target for node in exported.graph_module.graph.nodes}
    return exported if used.isdisjoint(table) else exported.run_decompositions(table)


def _export_problem(error: BaseException) -> str:
    """Return what the export lacks: operators by name if it says so."""
    root, text = error, str(error)
    while root.__cause__ is not None:
        root = root.__cause__
        text += f"\n{root}"
    operators = re.findall(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", text)
    if operators:
        return f"it has no ONNX operator for {', '.join(dict.fromkeys(operators))}"
    return _first_line(root)


@contextmanager
def quiet(torch: ModuleType) -> Generator[None]:
    """Export without gradients, and without words that help nobody."""
    registration = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = registration.level
    registration.setLevel(logging.ERROR)  # it names what other packages could add
    try:
        with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        registration.setLevel(level)
