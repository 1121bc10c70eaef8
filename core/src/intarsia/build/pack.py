# SPDX-License-Identifier: Apache-2.0
"""Packs what the stages made into an artifact, with a passport that says where it may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from ..artifact.machine import detect_machine
from ..artifact.passport import Passport, UnitEntry
from ..artifact.plan import TensorSpec
from ..artifact.unit import CompiledUnit
from ..errors import TargetError
from ..host.host import Host
from ..ir.expr import Function, tensor_type
from ..ir.module import IRModule
from ..lower.lower import Lowered
from ..runtime.installed import installed_version
from ..target.target import CompositeTarget
from .artifact import Artifact, collect_constants
from .config import Executor, Runtime
from .stages import Cut

_ELF = (b"\x7fELF\x01\x01", b"\x7fELF\x02\x01")  # 32 and 64 bits, little-endian
_ELF_MACHINES = MappingProxyType({40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"})


def pack(
    host: Host,
    name: str,
    module: IRModule,
    cutting: Cut,
    units: Sequence[CompiledUnit],
    lowered: Lowered,
    *,
    tuned: Mapping[str, object] | None = None,
) -> Artifact:
    """Return the artifact.

    Args:
        host: Knows who owns which kind.
        name: Name of the model.
        module: Carries target, executor and runtime.
        cutting: The regions and the placement.
        units: ``main`` first, then the regions.
        lowered: The plan and its weights.
        tuned: What the passport says of measured schedules.

    Raises:
        PluginError: Two units use one name for two weights.
        TargetError: A region's code is for another machine than that of ``main``.
    """
    _check_one_machine(units)
    target, executor, runtime = _settings(module)
    owners = {part.kind.name: host.owner(part.kind.name) for part in target.targets}
    machine = detect_machine()
    kinds = {"main": target.fallback.kind.name} | {r.name: r.kind for r in cutting.regions}
    functions = {region.name: region.function for region in cutting.regions}
    passport = Passport(
        name=name,
        intarsia=own_version(),
        target=str(target),
        os=machine.os,
        arch=_arch(units[0], machine.arch),
        plan=lowered.module.plan,
        units=tuple(
            _entry(unit, functions.get(unit.name), _requirement(host, kinds[unit.name]))
            for unit in units
        ),
        cpu_features=tuple(sorted({f for unit in units for f in unit.cpu_features})),
        executor=MappingProxyType(executor.to_json()),
        runtime=MappingProxyType(runtime.to_json()),
        plugins=MappingProxyType({o.distribution: o.version for o in owners.values()}),
        versions=MappingProxyType(
            {key: value for unit in units for key, value in unit.versions.items()}
        ),
        placement=MappingProxyType(cutting.placement.summary()),
        tuned=MappingProxyType(dict(tuned or {})),
    )
    constants = collect_constants(lowered.constants, units)
    kept = cutting.module if "freestanding" in runtime.row.traits else None
    return Artifact(passport, tuple(units), constants, cutting.placement, kept)


def own_version() -> str:
    """Return the version of Intarsia; ``0`` when it runs without being installed."""
    return installed_version("intarsia") or "0"


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


def _settings(module: IRModule) -> tuple[CompositeTarget, Executor, Runtime]:
    target = module.attr(CompositeTarget)
    assert target is not None  # build() put it there
    return target, module.attr(Executor) or Executor(), module.attr(Runtime) or Runtime()


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
        TensorSpec(param.name, tensor_type(param).static_shape, tensor_type(param).dtype)
        for param in function.params
    )
    outputs = tuple(
        TensorSpec(f"output{index}", tensor_type(value).static_shape, tensor_type(value).dtype)
        for index, value in enumerate(function.outputs)
    )
    return {"inputs": inputs, "outputs": outputs}


def _requirement(host: Host, kind: str) -> str:
    owner = host.owner(kind)
    return f"{owner.distribution}=={owner.version}"
