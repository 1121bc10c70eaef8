# SPDX-License-Identifier: Apache-2.0
"""Builds a model of which a part is known at run time only: compiled pieces inside a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from intarsia_ir.graph.inputs import check_static, is_static
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.size_scopes import defined_sizes
from intarsia_ir.graph.walk import calls
from intarsia_runtime.artifact.machine import detect_machine
from intarsia_runtime.artifact.passport import Passport, UnitEntry
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import IntarsiaError, ModelError, ResourceError, UnsupportedError
from intarsia_runtime.load import VM

from .artifact import Artifact
from .config import Executor, Runtime
from .parts import Piece, join
from .place import merge_placements
from .request import BuildRequest
from .source import ModuleSource
from .version import __version__

if TYPE_CHECKING:
    from intarsia_onnx.dynamic import DynamicModel


def import_any(
    source: ModuleSource,
    executor: Executor | None,
    runtime: Runtime | None,
    shapes: Mapping[str, Sequence[int]] | None,
    *,
    keep: bool = False,
) -> IRModule | DynamicModel:
    """Return a module, or a program if the model needs one and may have one.

    It may if no executor is chosen, or ``vm``, and it is a file to be run in a process. Inputs of
    unknown size make everything after them a part of the program, which is slow: see
    :func:`is_open`.

    Args:
        source: The model.
        executor: The one that the user chose, if any.
        runtime: Where it runs; in a process if ``None``.
        shapes: Shapes of inputs.
        keep: Whether the same will be asked for once more.

    Raises:
        As :func:`~intarsia.driver.importing.import_model`.
    """
    wanted = None if executor is None else executor.kind
    if isinstance(source.model, IRModule) or not source.is_onnx or wanted not in (None, VM):
        return source.module(shapes, keep=keep)
    if runtime is not None and runtime.kind != "cpp":
        return source.module(shapes, keep=keep)
    if wanted == VM:
        return source.program(shapes, keep=keep)
    try:
        return source.module(shapes, keep=keep)
    except UnsupportedError as error:
        refused = error
    try:
        return source.program(shapes, keep=keep)
    except (ModelError, ResourceError):
        raise  # it is broken or too large, not just more than what is supported
    except IntarsiaError:
        raise refused from None


def is_open(imported: IRModule | DynamicModel) -> bool:
    """Whether a size is not known: that of an input, or one that the model computes."""
    if isinstance(imported, IRModule):
        known = all(is_static(param.type) for param in imported.main.params)
        functions = imported.functions.values()
        return not known or any(defined_sizes(call) for one in functions for call in calls(one))
    types = [info.type for info in imported.program.inputs]
    return any(type_ is not None and not type_.is_static for type_ in types)


def needs_program(imported: IRModule | DynamicModel, executor: Executor) -> DynamicModel | None:
    """Return the program to build, ``None`` for a module that is compiled whole."""
    if not isinstance(imported, IRModule):
        return imported
    if executor.kind != VM:
        return None
    from intarsia_onnx.dynamic import DynamicModel

    check_static(imported)
    return DynamicModel.of_module(imported)


def pack_program(
    request: BuildRequest,
    model: DynamicModel,
    compile_piece: Callable[[IRModule, str], Artifact],
) -> Artifact:
    """Compile the pieces and put them, with the program, into one artifact.

    Args:
        request: What is built, and for what.
        model: The program and its pieces.
        compile_piece: Builds a piece, given the module and its name.

    Raises:
        As a build of each piece.
    """
    from intarsia_onnx.dynamic.loader import LOADER
    from intarsia_onnx.dynamic.program_json import SCHEMA, print_program

    pieces = [Piece(key, compile_piece(piece, key)) for key, piece in model.pieces.items()]
    files = print_program(model.program)
    unit = CompiledUnit("main", LOADER, MappingProxyType(files), format=SCHEMA)
    kinds = [accelerator.kind.name for accelerator in request.target.accelerators]
    found = {piece.name: piece.artifact.placement for piece in pieces}
    placement = merge_placements(model, found, kinds)
    machine = detect_machine()
    passport = Passport(
        name=request.name,
        intarsia=__version__,
        target=str(request.target),
        os=machine.os,
        arch=machine.arch,
        plan=CallPlan((), (), (), (), 0, ()),
        units=(
            UnitEntry(
                "main",
                LOADER,
                tuple(sorted(files)),
                plugin=f"intarsia-onnx=={__version__}",
                format=SCHEMA,
            ),
        ),
        executor=MappingProxyType(Executor(VM).to_json()),
        runtime=MappingProxyType(request.runtime.to_json()),
        placement=MappingProxyType(placement.summary()),
        declared=model.signature,
    )
    return join(passport, (unit,), pieces, placement)
