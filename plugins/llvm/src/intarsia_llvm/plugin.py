# SPDX-License-Identifier: Apache-2.0
"""What the host asks of this backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intarsia.ir.expr import Function
from intarsia.lower.cpu.fit import fit_function
from intarsia.lower.cpu.spaces import cpu_spaces
from intarsia.lower.space import ScheduleSpaces
from intarsia.plugin import (
    IntarsiaError,
    Intrinsic,
    Memory,
    Probe,
    Role,
    Target,
    TargetKind,
    hookimpl,
)
from intarsia.tir.intrinsic import IntrinsicRule

from .codegen import env_version, tir_codegen
from .functions import target_function
from .intrinsics.expand import RULES
from .known import check_processor, known_values
from .link import linker_text
from .optimise import llvm_version
from .schedules.table import SCHEDULES, bound_stack, loops, shape_of, tile_shape
from .target import LlvmOptions, canonicalise, least_machine, machine


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """The one kind of this plugin."""
    return (
        TargetKind(
            name="llvm",
            role=Role.BACKEND,
            options=LlvmOptions,
            summary="CPUs, through LLVM: x86-64, AArch64, RISC-V, Cortex-M",
            memory=(Memory("global", 64),),
            schedules=SCHEDULES,
            tir_codegen=tir_codegen,
            canonicalise=check_processor,
            env_version=env_version,
            runtimes=("cpp", "c"),
            known_flags=("mcpu", "mattr", "mtune"),
            known_values=known_values,
            target_function=target_function,
            machine=least_machine,
            loops=loops,
            bound_stack=bound_stack,
        ),
    )


@hookimpl
def lower_intrinsic(target: Target) -> Mapping[Intrinsic, IntrinsicRule]:
    """Polynomials for what no instruction computes."""
    return RULES


@hookimpl
def rewrite_relay(function: Function, target: Target) -> Function:
    """Operators that have fast loops, channels last, and weights packed for the registers."""
    options: LlvmOptions = target.options
    model = machine(options)
    return fit_function(function, tile_shape(model), winograd=options.winograd and not model.bare)


@hookimpl
def schedule_spaces(target: Target) -> ScheduleSpaces:
    """The sizes in kernels of convolutions and products, by processor and its registers."""
    model = machine(target.options)
    arch = model.triple.partition("-")[0]
    unit = "/amx" if model.amx else ""
    name = f"{arch}/{model.tune or model.cpu}/{32 * model.lanes}{unit}"
    return ScheduleSpaces(name, cpu_spaces(shape_of))


@hookimpl
def probe(target: Target) -> Probe:
    """Name LLVM's version, the processor, and what links."""
    options, sdk = canonicalise(target.options), f"LLVM {llvm_version()}"
    try:
        detail = linker_text(options.mtriple)
    except IntarsiaError as error:
        return Probe(usable=False, sdk=sdk, detail=str(error))
    return Probe(usable=True, sdk=sdk, device=options.mtune or options.mcpu, detail=detail)
