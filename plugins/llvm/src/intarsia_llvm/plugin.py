# SPDX-License-Identifier: Apache-2.0
"""What the host asks of this backend.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from intarsia.plugin import IntarsiaError, Memory, Role, TargetKind, hookimpl
from intarsia_ir.capabilities import WINOGRAD

from .target import LlvmOptions, canonicalize, is_known

if TYPE_CHECKING:
    from intarsia.plugin import (
        CodegenSignature,
        CompiledUnit,
        Function,
        Intrinsic,
        KnownValues,
        Probe,
        Region,
        Target,
        TensorModule,
    )
    from intarsia_ir.tir.intrinsic import IntrinsicRule
    from intarsia_ir.tir.module import Lowered
    from intarsia_ir.tir.space import ScheduleSpaces, Tuned
    from intarsia_runtime.plugin import Machine


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
            open_sizes=True,
            control_flow=True,
            reduced_convolution=WINOGRAD,
            runtimes=("cpp", "c"),
            known_flags=("mcpu", "mattr", "mtune"),
        ),
    )


@hookimpl
def canonicalize_target(target: Target[LlvmOptions]) -> Target[LlvmOptions]:
    """This machine for ``native``; LLVM is loaded where its tables are asked for a name."""
    options = canonicalize(target.options)
    if not is_known(options):
        from .processors import check_processor  # reads what LLVM prints

        options = check_processor(options)
    return replace(target, options=options)


@hookimpl
def environment_version(target: Target[LlvmOptions]) -> str:
    """LLVM, and what links."""
    from . import codegen

    return codegen.environment_version()


@hookimpl
def known_values(flag: str, target: Target[LlvmOptions]) -> KnownValues:
    """What the installed LLVM knows for the triple."""
    from . import processors

    return processors.known_values(flag, target.options)


@hookimpl
def machine(target: Target[LlvmOptions]) -> Machine:
    """The features that code may use."""
    from .target import least_machine

    return least_machine(target.options)


@hookimpl
def target_function(name: str, target: Target[LlvmOptions]) -> CodegenSignature | None:
    """LLVM's intrinsics and this generator's own procedures."""
    from . import functions

    return functions.target_function(name)


@hookimpl
def lower(
    main: Function,
    regions: Sequence[Region],
    target: Target[LlvmOptions],
    alignment: int,
    tuned: Tuned | None,
    name: str,
    functions: Mapping[str, Function],
) -> Lowered:
    """Schedules for the registers and caches of the processor."""
    from .lowering import lower_function

    return lower_function(
        main,
        regions,
        target=target,
        alignment=alignment,
        tuned=tuned,
        name=name,
        functions=functions,
    )


@hookimpl
def tir_codegen(module: TensorModule, target: Target[LlvmOptions]) -> CompiledUnit:
    """Machine code: a shared library, or an object file."""
    from . import codegen

    return codegen.tir_codegen(module, target)


@hookimpl
def lower_intrinsic(target: Target[LlvmOptions]) -> Mapping[Intrinsic, IntrinsicRule]:
    """Polynomials for what no instruction computes."""
    from .intrinsics.expand import RULES

    return RULES


@hookimpl
def rewrite_relay(function: Function, target: Target[LlvmOptions]) -> Function:
    """Operators that have fast loops, channels last, and weights packed for the registers."""
    from intarsia_loops.cpu.legalize import legalize_for_cpu

    from .schedules.table import cpu_tiling
    from .target import machine

    model = machine(target.options)
    winograd = target.options.winograd and not model.bare
    return legalize_for_cpu(function, cpu_tiling(model), winograd=winograd)


@hookimpl
def schedule_spaces(target: Target[LlvmOptions]) -> ScheduleSpaces:
    """The sizes in kernels of convolutions and products, by processor and its registers."""
    from intarsia_ir.tir.space import ScheduleSpaces
    from intarsia_loops.cpu.schedule_spaces import cpu_spaces

    from .schedules.table import tiling_of
    from .target import machine

    model = machine(target.options)
    arch = model.triple.partition("-")[0]
    unit = "/amx" if model.amx else ""
    name = f"{arch}/{model.tune or model.cpu}/{32 * model.lanes}{unit}"
    return ScheduleSpaces(name, cpu_spaces(tiling_of))


@hookimpl
def probe(target: Target[LlvmOptions]) -> Probe:
    """Name LLVM's version, the processor, and what links."""
    from intarsia.plugin import Probe

    from .link import linker_text
    from .optimize import llvm_version
    from .target import canonicalize

    options, sdk = canonicalize(target.options), f"LLVM {llvm_version()}"
    try:
        detail = linker_text(options.mtriple)
    except IntarsiaError as error:
        return Probe(usable=False, sdk=sdk, detail=str(error))
    return Probe(usable=True, sdk=sdk, device=options.mtune or options.mcpu, detail=detail)
