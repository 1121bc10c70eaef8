# SPDX-License-Identifier: Apache-2.0
"""A kind of target: the typed row that a plugin registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic

from intarsia_ir.memory import Memory as Memory

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
