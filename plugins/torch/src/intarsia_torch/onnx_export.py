# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own exports: to its exported programs, and to ONNX; the only file that imports torch.

torch is imported when a program is, never before: it takes two seconds.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.errors import UnsupportedError, UsageError

from .aten.sizes import environment_of, ranges_of_symbols
from .attention import encoder_layer, self_attention

if TYPE_CHECKING:
    from intarsia_onnx.reader import ModelSource

    from .types import Exported

LARGEST_IN_MEMORY = 1 << 30
"""Bytes of weights up to which the ONNX model is handed over in memory; protobuf ends at 2 GiB."""


def require_torch() -> ModuleType:
    """Import torch.

    Raises:
        UsageError: It is missing.
    """
    try:
        return import_module("torch")
    except ImportError as error:
        raise _missing(error) from None


def _missing(error: ImportError) -> UsageError:
    return UsageError(
        f"importing PyTorch programs needs the packages 'torch' and 'onnxscript': {error}",
        hint="pip install 'intarsia[torch]'",
    )


def refuse_changes(exported: Exported) -> None:
    """Refuse a program that does more than compute.

    Raises:
        UnsupportedError: It writes to inputs or buffers.
    """
    signature = exported.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise UnsupportedError(
            f"the program writes to {', '.join(map(repr, changed))}; compiled code only computes",
            hint="in evaluation mode a batch norm does not; or return the new value",
        )


def export(
    torch: ModuleType,
    module: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    dynamic_shapes: object = None,
) -> Exported:
    """Return what ``torch.export`` makes of a module.

    Raises:
        UnsupportedError: It fails; the error says where in the user's code.
    """
    try:
        return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export has no root class of its errors
        raise UnsupportedError(
            f"PyTorch cannot export it: {first_line(error)}",
            hint="torch.export.export(model, args) shows the whole message",
            where=_place(torch, error),
        ) from error


def first_line(error: BaseException) -> str:
    """Return what an error says in one line, without colours."""
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
        import_module("onnxscript")  # torch.onnx imports it late, with a message of its own
    except ImportError as error:
        raise _missing(error) from None
    try:
        with ranges_of_symbols(environment_of(tuple(exported.graph_module.graph.nodes))):
            whole = _expand_fused(torch, exported)
            program = torch.onnx.export(whole, dynamo=True, verbose=False)
    except Exception as error:  # its errors are private classes
        raise UnsupportedError(
            f"PyTorch's ONNX export fails: {_export_problem(error)}",
            hint="torch.onnx.export(..., dynamo=True, report=True) writes all it knows",
        ) from error
    refuse_changes(program.exported_program)  # before the export, writes are operators
    tensors = (value.const_value for value in program.model.graph.initializers.values())
    size = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    if size <= LARGEST_IN_MEMORY:
        yield program.model_proto
        return
    with temporary_folder("torch") as folder:
        path = folder / "model.onnx"
        program.save(str(path), external_data=True)
        yield path


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
    return first_line(root)


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
