# SPDX-License-Identifier: Apache-2.0
"""A kind of target: the typed row that a plugin registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic

from intarsia_ir.memory import Memory as Memory
from intarsia_runtime.errors import TargetError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from intarsia_ir.reduced import ReducedConvolution

    OptionsT_co = TypeVar("OptionsT_co", covariant=True, default=Any)
    """Class of a kind's options; ``Target`` alone is a target of any kind."""
else:
    from typing import TypeVar

    OptionsT_co = TypeVar("OptionsT_co", covariant=True)


class Role(Enum):
    """What a kind can be in a target."""

    BACKEND = "backend"  # compiles any graph: fallback or host
    ACCELERATOR = "accelerator"  # takes the part it supports; only in front of a backend


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
class TargetKind(Generic[OptionsT_co]):
    """What the host must know of a kind of target: data, and nothing that runs.

    What a kind can do are hooks of its plugin; see :mod:`intarsia.host.hookspecs`.

    Attributes:
        name: What users write in front of the options.
        role: Backend or accelerator.
        options: Frozen keyword-only dataclass of the options; made with
            :func:`intarsia.target.options.option`.
        summary: One line.
        device_type: DLPack device type; 1 is the CPU.
        default_keys: General to special, e.g. ``("cpu",)``; used for dispatch.
        memory: Levels of memory, outermost first.
        host: Backends of devices only: kind that drives it when the user names no host.
        main_loader: Backends of devices only: the loader (entry-point group
            ``intarsia.loaders``) that runs a whole plan on the device. Without one, nothing can.
        runtimes: Backends only: kinds of runtime that its code is for.
        arches: Accelerators only: instruction sets that its code is for, as Linux names them
            (``aarch64``); empty if it has none of its own.
        open_sizes: Backends only: whether kernels take sizes that only the run knows.
        control_flow: Backends only: whether plans may branch and loop; else both branches are
            computed, and loops of the run refused.
        reduced_convolution: Backends only: convolutions that it computes with fewer multiplications
            than they define, unless an option says otherwise.
        channels_last: Accelerators only: whether images are turned from ``(N, C, H, W)`` to
            ``(N, H, W, C)`` where they enter a region, and back.
        known_flags: Options whose values only the code generator can list; the hook
            ``known_values`` does.
        follows: Accelerators only: flags whose values come from the backend behind, where it has
            such an option: both are for one device.
        attributes: What plugins say of the kind, by the name of the column; filled in by the host.
            Read it with :meth:`intarsia.target.kind_attribute.KindAttribute.get`.
    """

    name: str
    role: Role
    options: type[OptionsT_co]
    summary: str = ""
    device_type: int = 1
    default_keys: tuple[str, ...] = ("cpu",)
    memory: tuple[Memory, ...] = (Memory(),)
    host: str = ""
    main_loader: str = ""
    runtimes: tuple[str, ...] = ("cpp",)
    arches: tuple[str, ...] = ()
    channels_last: bool = False
    open_sizes: bool = False
    control_flow: bool = False
    reduced_convolution: ReducedConvolution | None = None
    known_flags: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
