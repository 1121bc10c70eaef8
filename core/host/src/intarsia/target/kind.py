# SPDX-License-Identifier: Apache-2.0
"""A kind of target: the typed row that a plugin registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic

from intarsia_ir.capabilities import Memory as Memory

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from intarsia_ir.capabilities import ReducedConvolution

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
    """The values that a code generator knows for an option.

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
    """A kind of target, as data. Hooks of its plugin have the functions.

    See :mod:`intarsia.host.hookspecs`.

    Attributes:
        name: The first word of a target string.
        role: Backend or accelerator.
        options: Frozen keyword-only dataclass of the options; made with
            :func:`intarsia.target.options.option`.
        summary: One line.
        device_type: DLPack device type; 1 is the CPU.
        default_keys: General to special, e.g. ``("cpu",)``; used for dispatch.
        memory: Levels of memory, outermost first.
        host: Backends of devices only: the kind that drives it if the user names no host.
        main_loader: Backends of devices only: the loader (entry-point group
            ``intarsia.loaders``) that runs a whole plan on the device.
        runtimes: Backends only: the kinds of runtime that its code supports.
        arches: Accelerators only: the instruction sets of its code, as Linux names them
            (``aarch64``); empty if it has no machine code.
        open_sizes: Backends only: whether kernels take sizes as arguments.
        control_flow: Backends only: whether plans may branch and loop. Otherwise both branches are
            computed, and loops with data-dependent conditions are refused.
        reduced_convolution: Backends only: convolutions that it computes with fewer multiplications
            than they define, unless an option forbids it.
        channels_last: Accelerators only: whether images are transposed from ``(N, C, H, W)`` to
            ``(N, H, W, C)`` at the border of a region, and back.
        known_flags: Options whose values the hook ``known_values`` lists.
        follows: Accelerators only: flags that take their values from the same option of the
            following backend, because both are for one device.
        attributes: Values of plugins for this kind, by the name of the column; the host fills them
            in. Read it with :meth:`intarsia.target.kind_attribute.KindAttribute.get`.
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
