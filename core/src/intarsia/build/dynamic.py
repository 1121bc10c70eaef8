# SPDX-License-Identifier: Apache-2.0
"""Builds a model of which a part is known at run time only: compiled pieces inside a program."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..artifact.archive import SUFFIX
from ..artifact.machine import detect_machine
from ..artifact.passport import Passport, UnitEntry
from ..artifact.plan import CallPlan
from ..artifact.unit import CompiledUnit
from ..errors import IntarsiaError, UnsupportedError
from ..ir.module import IRModule
from ..partition.report import HostRow, Placement
from ..target.target import CompositeTarget
from .artifact import Artifact
from .config import Executor, Runtime
from .importing import Model, check_static, import_model
from .pack import own_version

if TYPE_CHECKING:
    import numpy as np

    from ..frontend.onnx.dynamic import DynamicModel

VM = "vm"


def import_any(
    model: Model,
    executor: Executor | None,
    runtime: Runtime | None,
    shapes: Mapping[str, Sequence[int]] | None,
    params: Mapping[str, np.ndarray] | None,
) -> IRModule | DynamicModel:
    """Return a module, or a program if the model needs one and may have one.

    It may if no executor is chosen, or ``vm``, and it is a file to be run in a process. Inputs of
    unknown size make everything after them a part of the program, which is slow; they need ``vm``
    to be asked for.

    Raises:
        As :func:`~intarsia.build.importing.import_model`.
    """
    wanted = None if executor is None else executor.kind
    if isinstance(model, IRModule) or wanted not in (None, VM):
        return import_model(model, shapes, params)
    if runtime is not None and runtime.kind != "cpp":
        return import_model(model, shapes, params)
    from ..frontend.onnx.dynamic import plan_onnx  # a module that exists needs no importer

    if wanted == VM:
        return plan_onnx(model, shapes=shapes, constants=params)
    try:
        return import_model(model, shapes, params)
    except UnsupportedError as error:
        refused = error
    try:
        planned = plan_onnx(model, shapes=shapes, constants=params)
    except IntarsiaError:
        raise refused from None
    if isinstance(planned, IRModule):
        return planned
    types = [info.type for info in planned.program.inputs]
    if any(type_ is not None and not type_.is_static for type_ in types):
        refused.hint = refused.hint or "give every input a shape, or choose the executor 'vm'"
        raise refused
    return planned


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
    from ..frontend.onnx.dynamic.program_json import print_program

    artifacts = {key: compile_piece(piece, key) for key, piece in model.pieces.items()}
    files = print_program(model.program)
    files |= {f"{key}{SUFFIX}": _bytes(artifact) for key, artifact in artifacts.items()}
    unit = CompiledUnit("main", LOADER, MappingProxyType(files))
    placement = _placement(model, [artifact.placement for artifact in artifacts.values()])
    machine = detect_machine()
    passports = [artifact.passport for artifact in artifacts.values()]
    passport = Passport(
        name=name,
        intarsia=own_version(),
        target=str(target),
        os=machine.os,
        arch=passports[0].arch if passports else machine.arch,
        plan=CallPlan((), (), (), (), 0, ()),
        units=(
            UnitEntry("main", LOADER, tuple(sorted(files)), plugin=f"intarsia=={own_version()}"),
        ),
        cpu_features=tuple(sorted({f for p in passports for f in p.cpu_features})),
        executor=MappingProxyType(Executor(VM).to_json()),
        runtime=MappingProxyType(runtime.to_json()),
        plugins=MappingProxyType({k: v for p in passports for k, v in p.plugins.items()}),
        versions=MappingProxyType({k: v for p in passports for k, v in p.versions.items()}),
        placement=MappingProxyType(_summary(placement)),
    )
    return Artifact(passport, (unit,), MappingProxyType({}), placement)


def _bytes(artifact: Artifact) -> bytes:
    """Return the artifact as the content of a file."""
    with tempfile.TemporaryDirectory(prefix="intarsia-") as folder:
        return artifact.save(Path(folder) / f"piece{SUFFIX}").read_bytes()


def _placement(model: DynamicModel, pieces: Sequence[Placement]) -> Placement:
    rows = tuple(
        HostRow(node.span.name, node.op_type, model.reasons.get(node.span.name, ""))
        for node in model.program.nodes
    )
    return Placement(
        nodes=sum(piece.nodes for piece in pieces) + len(rows),
        offloaded=sum(piece.offloaded for piece in pieces),
        regions=tuple(row for piece in pieces for row in piece.regions),
        verdicts=tuple(row for piece in pieces for row in piece.verdicts),
        border_bytes=sum(piece.border_bytes for piece in pieces),
        apart=tuple(row for piece in pieces for row in piece.apart),
        host=rows,
        in_float=tuple(name for piece in pieces for name in piece.in_float),
    )


def _summary(placement: Placement) -> Mapping[str, object]:
    return {
        "summary": str(placement),
        "nodes": placement.nodes,
        "offloaded": placement.offloaded,
        "border_bytes": placement.border_bytes,
        "regions": [row.to_json() for row in placement.regions],
        "host": [row.to_json() for row in placement.host],
    }
