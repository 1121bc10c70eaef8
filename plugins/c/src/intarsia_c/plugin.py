# SPDX-License-Identifier: Apache-2.0
"""What the host asks of this backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia.ir.expr import Function
from intarsia.lower.cpu.fit import fit_function
from intarsia.plugin import (
    Intrinsic,
    Memory,
    Probe,
    Role,
    Target,
    TargetKind,
    ToolchainError,
    hookimpl,
)
from intarsia.tir.intrinsic import IntrinsicRule

from .codegen import tir_codegen
from .intrinsics import RULES
from .procedures import target_function
from .schedules import SCHEDULES, bound_stack, tile_shape
from .target import COptions, canonicalise, this_machine
from .toolchain import compiler_version


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """The one kind of this plugin."""
    return (
        TargetKind(
            name="c",
            role=Role.BACKEND,
            options=COptions,
            summary="portable C99, compiled by the system's compiler",
            memory=(Memory("global", 64),),
            schedules=SCHEDULES,
            bound_stack=bound_stack,
            tir_codegen=tir_codegen,
            canonicalise=canonicalise,
            runtimes=("cpp", "c"),
            target_function=target_function,
        ),
    )


@hookimpl
def lower_intrinsic(target: Target) -> Mapping[Intrinsic, IntrinsicRule]:
    """What ``<math.h>`` has not."""
    return RULES


@hookimpl
def rewrite_relay(function: Function, target: Target) -> Function:
    """Operators that have fast loops, channels last, and weights packed for the registers."""
    options: COptions = target.options
    winograd = options.winograd and not options.is_microcontroller
    return fit_function(function, tile_shape(options), winograd=winograd)


@hookimpl
def probe(target: Target) -> Probe:
    """Name the compiler that is found."""
    try:
        version = compiler_version(target.options.cc)
    except ToolchainError as error:
        return Probe(usable=False, detail=str(error))
    return Probe(usable=True, sdk=version, device=this_machine())
