# SPDX-License-Identifier: Apache-2.0
"""Packs what the stages made into an artifact, with a passport that says where it may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from intarsia_ir.graph.expr import Function, tensor_type
from intarsia_ir.partition.partition import PartitionResult
from intarsia_ir.tir.module import Lowered
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.artifact.machine import detect_machine
from intarsia_runtime.artifact.passport import Passport, UnitEntry
from intarsia_runtime.artifact.plan import TensorSpec
from intarsia_runtime.artifact.unit import CompiledUnit
from intarsia_runtime.errors import TargetError

from ..host.host import Host
from .artifact import Artifact, collect_constants
from .request import BuildRequest
from .version import __version__

_ELF = (b"\x7fELF\x01\x01", b"\x7fELF\x02\x01")  # 32 and 64 bits, little-endian
_ELF_MACHINES = MappingProxyType({40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"})


def pack(
    request: BuildRequest,
    partitioned: PartitionResult,
    units: Sequence[CompiledUnit],
    lowered: Lowered,
    *,
    tuned: Mapping[str, object] | None = None,
) -> Artifact:
    """Return the artifact.

    Args:
        request: What was built, and for what.
        partitioned: The regions and the placement.
        units: ``main`` first, then the regions.
        lowered: The plan and its weights.
        tuned: What the passport says of measured schedules.

    Raises:
        PluginError: Two units use one name for two weights.
        TargetError: A region's code is for another machine than that of ``main``.
    """
    _check_one_machine(units)
    host, target, runtime = request.host, request.target, request.runtime
    owners = {part.kind.name: host.owner(part.kind.name) for part in target.targets}
    machine = detect_machine()
    kinds = {"main": target.fallback.kind.name} | {r.name: r.kind for r in partitioned.regions}
    functions = {region.name: region.function for region in partitioned.regions}
    passport = Passport(
        name=request.name,
        intarsia=__version__,
        target=str(target),
        os=machine.os,
        arch=_arch(units[0], machine.arch),
        plan=lowered.module.plan,
        units=tuple(
            _entry(unit, functions.get(unit.name), _requirement(host, kinds[unit.name]))
            for unit in units
        ),
        cpu_features=tuple(sorted({f for unit in units for f in unit.cpu_features})),
        executor=MappingProxyType(request.executor.to_json()),
        runtime=MappingProxyType(runtime.to_json()),
        plugins=MappingProxyType({o.distribution: o.version for o in owners.values()}),
        versions=MappingProxyType(
            {key: value for unit in units for key, value in unit.versions.items()}
        ),
        placement=MappingProxyType(partitioned.placement.summary()),
        tuned=MappingProxyType(dict(tuned or {})),
    )
    constants = collect_constants(lowered.constants, units)
    kept = request.annotated(partitioned.module) if runtime.is_freestanding else None
    return Artifact(passport, tuple(units), constants, partitioned.placement, kept)


def _check_one_machine(units: Sequence[CompiledUnit]) -> None:
    main = _arch(units[0], "")
    for unit in units[1:]:
        arch = _arch(unit, main)
        if main and arch != main:
            raise TargetError(
                f"region '{unit.name}' is code for {arch}, the rest of the model for {main}",
                hint=f"give the fallback of the target the same machine, e.g. -mtriple={arch}-...",
            )


def _arch(unit: CompiledUnit, default: str) -> str:
    """Return the instruction set a library or an object is for, from its ELF header."""
    for name, content in unit.files.items():
        if name.endswith((".so", ".o")) and content[:6] in _ELF:
            number = int.from_bytes(content[18:20], "little")
            return _ELF_MACHINES.get(number, f"elf-{number}")
    return default


def _entry(unit: CompiledUnit, function: Function | None, plugin: str) -> UnitEntry:
    entry = UnitEntry(
        unit.name,
        unit.loader,
        tuple(sorted(unit.files)),
        tuple(sorted(unit.constants)),
        plugin=plugin,
        format=unit.format,
    )
    return entry if function is None else replace(entry, **_signature(function))


def _signature(function: Function) -> dict[str, tuple[TensorSpec, ...]]:
    inputs = tuple(
        TensorSpec(param.name, extents(tensor_type(param).shape), tensor_type(param).dtype)
        for param in function.params
    )
    outputs = tuple(
        TensorSpec(f"output{index}", extents(tensor_type(value).shape), tensor_type(value).dtype)
        for index, value in enumerate(function.outputs)
    )
    return {"inputs": inputs, "outputs": outputs}


def _requirement(host: Host, kind: str) -> str:
    owner = host.owner(kind)
    return f"{owner.distribution}=={owner.version}"
