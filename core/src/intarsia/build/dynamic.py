# SPDX-License-Identifier: Apache-2.0
"""Builds a model of which a part is known at run time only: compiled pieces inside a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..artifact.machine import detect_machine
from ..artifact.passport import Passport, UnitEntry
from ..artifact.plan import CallPlan
from ..artifact.unit import CompiledUnit
from ..errors import IntarsiaError, ModelError, ResourceError, UnsupportedError
from ..ir.module import IRModule
from ..target.target import CompositeTarget
from .artifact import Artifact
from .config import Executor, Runtime
from .importing import check_static, is_static
from .pack import own_version
from .parts import Piece, join
from .place import merge_placements
from .source import Source

if TYPE_CHECKING:
    from ..frontend.onnx.dynamic import DynamicModel
    from ..frontend.onnx.reader import ModelSource

VM = "vm"


def import_any(
    source: Source,
    executor: Executor | None,
    runtime: Runtime | None,
    shapes: Mapping[str, Sequence[int]] | None,
) -> IRModule | DynamicModel:
    """Return a module, or a program if the model needs one and may have one.

    It may if no executor is chosen, or ``vm``, and it is a file to be run in a process. Inputs of
    unknown size make everything after them a part of the program, which is slow: see
    :func:`is_open`.

    Raises:
        As :func:`~intarsia.build.importing.import_model`.
    """
    wanted = None if executor is None else executor.kind
    if isinstance(source.model, IRModule) or not source.is_onnx or wanted not in (None, VM):
        return source.module(shapes)
    if runtime is not None and runtime.kind != "cpp":
        return source.module(shapes)
    if wanted == VM:
        return _plan(source, source.model, shapes)
    try:
        return source.module(shapes)
    except UnsupportedError as error:
        refused = error
    try:
        return _plan(source, source.model, shapes)
    except (ModelError, ResourceError):
        raise  # it is broken or too large, not just more than what is supported
    except IntarsiaError:
        raise refused from None


def _plan(
    source: Source, model: ModelSource, shapes: Mapping[str, Sequence[int]] | None
) -> IRModule | DynamicModel:
    from ..frontend.onnx.dynamic import plan_onnx  # 20 ms that a model without a program is spared

    return plan_onnx(model, shapes=shapes, constants=source.params, mapped=source.mapped)


def is_open(imported: IRModule | DynamicModel) -> bool:
    """Whether the size of an input is not known."""
    if isinstance(imported, IRModule):
        return not all(is_static(param.type) for param in imported.main.params)
    types = [info.type for info in imported.program.inputs]
    return any(type_ is not None and not type_.is_static for type_ in types)


def needs_program(imported: IRModule | DynamicModel, executor: Executor) -> DynamicModel | None:
    """Return the program to build, ``None`` for a module that is compiled whole."""
    if not isinstance(imported, IRModule):
        return imported
    if executor.kind != VM:
        return None
    from ..frontend.onnx.dynamic import DynamicModel

    check_static(imported)
    return DynamicModel.of_module(imported)


def pack_program(
    model: DynamicModel,
    name: str,
    target: CompositeTarget,
    runtime: Runtime,
    compile_piece: Callable[[IRModule, str], Artifact],
) -> Artifact:
    """Compile the pieces and put them, with the program, into one artifact.

    Args:
        model: The program and its pieces.
        name: Name of the model.
        target: What the pieces are compiled for.
        runtime: Where it runs.
        compile_piece: Builds a piece, given the module and its name.

    Raises:
        As a build of each piece.
    """
    from ..frontend.onnx.dynamic.loader import LOADER
    from ..frontend.onnx.dynamic.program_json import SCHEMA, print_program

    pieces = [Piece(key, compile_piece(piece, key)) for key, piece in model.pieces.items()]
    files = print_program(model.program)
    unit = CompiledUnit("main", LOADER, MappingProxyType(files), format=SCHEMA)
    kinds = [accelerator.kind.name for accelerator in target.accelerators]
    found = {piece.name: piece.artifact.placement for piece in pieces}
    placement = merge_placements(model, found, kinds)
    machine = detect_machine()
    passport = Passport(
        name=name,
        intarsia=own_version(),
        target=str(target),
        os=machine.os,
        arch=machine.arch,
        plan=CallPlan((), (), (), (), 0, ()),
        units=(
            UnitEntry(
                "main",
                LOADER,
                tuple(sorted(files)),
                plugin=f"intarsia=={own_version()}",
                format=SCHEMA,
            ),
        ),
        executor=MappingProxyType(Executor(VM).to_json()),
        runtime=MappingProxyType(runtime.to_json()),
        placement=MappingProxyType(placement.summary()),
        declared=model.signature,
    )
    return join(passport, (unit,), pieces, placement)
