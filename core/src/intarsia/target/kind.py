# SPDX-License-Identifier: Apache-2.0
"""A kind of target: the typed row that a plugin registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import TargetError

if TYPE_CHECKING:
    from ..artifact.machine import Machine
    from ..artifact.unit import CompiledUnit
    from ..tir.func import PrimFunc
    from ..tir.target_call import FindFunction


class Role(Enum):
    """What a kind can be in a target."""

    BACKEND = "backend"  # compiles any graph: fallback or host
    ACCELERATOR = "accelerator"  # takes the part it supports; only in front of a backend


@dataclass(frozen=True, slots=True)
class Memory:
    """One level of a device's memory.

    Attributes:
        name: ``global``, ``shared``, ``sram``...
        alignment: Alignment of buffers in bytes.
        size: Bytes; 0 means unknown or bounded by the machine.
        shared_by: Of a cache, the cores that share it.
    """

    name: str = "global"
    alignment: int = 64
    size: int = 0
    shared_by: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """What a device does in a second; for comparing devices, so orders of magnitude are enough.

    Attributes:
        flops: Arithmetic operations a second that its kernels reach; a multiply-add is two.
        bandwidth: Bytes a second between its memory and its arithmetic.
        launch: Seconds that calling a region costs beyond its work; of a backend, a kernel.
        copy_bandwidth: Bytes a second at which values cross to it and back; ``None`` if it computes
            in the fallback's memory.
        copy_latency: Seconds for each value that crosses, whatever its size.
    """

    flops: float = 2e10
    bandwidth: float = 1e10
    launch: float = 1e-6
    copy_bandwidth: float | None = None
    copy_latency: float = 0.0

    def __post_init__(self) -> None:
        speeds = (self.flops, self.bandwidth, 1 if (c := self.copy_bandwidth) is None else c)
        if not all(0 < speed < inf for speed in speeds):
            raise TargetError("a Performance needs speeds above 0", where=str(self))
        if not all(0 <= time < inf for time in (self.launch, self.copy_latency)):
            raise TargetError("a Performance needs times of 0 or more", where=str(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativePerformance:
    """What an accelerator does, in multiples of what the fallback of its target does.

    Attributes:
        flops: Arithmetic operations a second, in multiples; all else is equal. Values are copied
            across its border if it is another type of device.
    """

    flops: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.flops < inf:
            raise TargetError("a RelativePerformance needs a factor above 0", where=str(self))


@dataclass(frozen=True, slots=True)
class KnownValue:
    """A value that an option may have, and one line on it."""

    value: str
    doc: str = ""


@dataclass(frozen=True, slots=True)
class KnownValues:
    """What the code generator itself says of an option's values.

    Attributes:
        rows: The values.
        source: Who says so, and what for: ``generator 3.1 for arm64-linux``.
        machine: What the running machine is; empty if that has no meaning.
    """

    rows: tuple[KnownValue, ...]
    source: str
    machine: str = ""


@dataclass(frozen=True, slots=True)
class TargetKind:
    """Everything the host must know of a kind of target.

    Attributes:
        name: What users write in front of the options.
        role: Backend or accelerator.
        options: Frozen keyword-only dataclass of the options; made with
            :func:`intarsia.target.options.option`.
        summary: One line.
        device_type: DLPack device type; 1 is the CPU.
        default_keys: General to special, e.g. ``("cpu",)``; used for dispatch.
        memory: Levels of memory, outermost first.
        schedules: Operator name to a function ``schedule(group: FusedGroup, target: Target) ->
            PrimFunc | None`` that replaces the default loops of a fused group with that operator
            as its anchor; or to a table of such functions by key, of which that of the most
            special of the target's keys counts (``default`` for all others).
        loops: Backends only: ``loops(name: str, stages: Stages, target: Target) -> PrimFunc``
            replaces the default loops of groups that no schedule takes.
        bound_stack: Backends only: ``bound_stack(kernel: PrimFunc, target: Target) -> PrimFunc``
            moves temporaries that no stack is sure to hold into scratch parameters, before the
            workspace is planned; see :mod:`intarsia.tir.passes.stack_to_scratch`. Without one,
            one thread runs the loops of a kernel that has large temporaries.
        tir_codegen: ``tir_codegen(module: TensorModule, target: Target) -> CompiledUnit`` compiles
            loops: for a backend what it is the fallback of, for an accelerator each of its regions
            (the hook ``relay_codegen`` is then not asked).
        canonicalise: Checks options against each other and fills in what depends on the machine;
            raises :class:`~intarsia.errors.TargetError`, which is pointed at the option that its
            message begins with: ``-mcpu: no processor 'x'``.
        env_version: Version of the vendor component that a build depends on; part of cache keys.
        host: Backends of devices only: kind that drives it when the user names no host.
        main_loader: Backends of devices only: the loader (entry-point group
            ``intarsia.loaders``) that runs a whole plan on the device. Without one, nothing can.
        runtimes: Backends only: kinds of runtime that its code is for.
        arches: Accelerators only: instruction sets that its code is for, as Linux names them
            (``aarch64``); empty if it has none of its own.
        channels_last: Accelerators only: whether images are turned from ``(N, C, H, W)`` to
            ``(N, H, W, C)`` where they enter a region, and back.
        known_flags: Options whose values only the code generator can list.
        known_values: ``known_values(flag, options) -> KnownValues`` lists them; may take seconds.
        performance: ``performance(options) -> Performance | RelativePerformance``: what it does in
            a second, for choosing between accelerators by cost. An accelerator without one is
            presumed to be fast: it gets all that it takes and states no cost of.
        follows: Accelerators only: flags whose values come from the backend behind, where it has
            such an option: both are for one device.
        simulated: ``simulated(options) -> str``: how results are computed where the options ask for
            a simulation, e.g. ``by NumPy on this machine``; empty if code runs on the device. What
            is simulated is reported as such, and never counted as offloaded.
        machine: Backends only: ``machine(options) -> Machine``: the least machine that code for the
            options may be for, so an artifact that needs no more may run there. Without one, a
            kernel is compiled and its unit asked.
        target_function: ``target_function(name) -> Signature | None`` finds a function that loops
            may call by the code generator's own name, with
            :func:`intarsia.tir.target_call.call_target_intrinsic`.
        attributes: What plugins say of the kind, by the name of the column; filled in by the host.
            Read it with :meth:`intarsia.target.kind_attribute.KindAttribute.get`.
    """

    name: str
    role: Role
    options: type
    summary: str = ""
    device_type: int = 1
    default_keys: tuple[str, ...] = ("cpu",)
    memory: tuple[Memory, ...] = (Memory(),)
    schedules: Mapping[
        str, Callable[..., PrimFunc | None] | Mapping[str, Callable[..., PrimFunc | None]]
    ] = field(default_factory=lambda: MappingProxyType({}))
    loops: Callable[..., PrimFunc] | None = None
    bound_stack: Callable[..., PrimFunc] | None = None
    tir_codegen: Callable[..., CompiledUnit] | None = None
    canonicalise: Callable[[Any], Any] | None = None
    env_version: Callable[[], str] | None = None
    host: str = ""
    main_loader: str = ""
    runtimes: tuple[str, ...] = ("cpp",)
    arches: tuple[str, ...] = ()
    channels_last: bool = False
    known_flags: tuple[str, ...] = ()
    known_values: Callable[[str, Any], KnownValues] | None = None
    performance: Callable[..., Performance | RelativePerformance] | None = None
    follows: tuple[str, ...] = ()
    simulated: Callable[..., str] | None = None
    machine: Callable[..., Machine] | None = None
    target_function: FindFunction | None = None
    attributes: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
