# SPDX-License-Identifier: Apache-2.0
"""What the host asks of this backend.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from intarsia.plugin import Memory, Role, TargetKind, ToolchainError, hookimpl
from intarsia_ir.capabilities import WINOGRAD

from .target import COptions, canonicalize, this_machine

if TYPE_CHECKING:
    from intarsia.plugin import (
        CodegenSignature,
        CompiledUnit,
        Function,
        Intrinsic,
        Probe,
        Region,
        Target,
        TensorModule,
    )
    from intarsia_ir.tir.intrinsic import IntrinsicRule
    from intarsia_ir.tir.module import Lowered
    from intarsia_ir.tir.space import Tuned
    from intarsia_runtime.plugin import Machine


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
            control_flow=True,
            reduced_convolution=WINOGRAD,
            open_sizes=True,
            runtimes=("cpp", "c"),
        ),
    )


@hookimpl
def canonicalize_target(target: Target[COptions]) -> Target[COptions]:
    """The options, checked against each other."""
    canonicalize(target.options)
    return target


@hookimpl
def machine(target: Target[COptions]) -> Machine | None:
    """The features that the compiler may use; nothing without one for the machine of the code."""
    from intarsia_runtime.plugin import this_machine as running

    from .toolchain import needed_features

    options, here = target.options, running()
    if options.freestanding or options.mtriple:
        return None
    try:
        return replace(here, cpu_features=frozenset(needed_features(options)))
    except ToolchainError:
        return None  # whoever compiles says it


@hookimpl
def target_function(name: str, target: Target[COptions]) -> CodegenSignature | None:
    """The procedures that this generator writes."""
    from . import procedures

    return procedures.target_function(name)


@hookimpl
def lower(
    main: Function,
    regions: Sequence[Region],
    target: Target[COptions],
    alignment: int,
    tuned: Tuned | None,
    name: str,
    functions: Mapping[str, Function],
) -> Lowered:
    """Loops that C compilers make good code of."""
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
def tir_codegen(module: TensorModule, target: Target[COptions]) -> CompiledUnit:
    """C sources, and a shared library of them for this machine."""
    from . import codegen

    return codegen.tir_codegen(module, target)


@hookimpl
def lower_intrinsic(target: Target[COptions]) -> Mapping[Intrinsic, IntrinsicRule]:
    """What ``<math.h>`` has not."""
    from .intrinsics import RULES

    return RULES


@hookimpl
def rewrite_relay(function: Function, target: Target[COptions]) -> Function:
    """Operators that have fast loops, channels last, and weights packed for the registers."""
    from intarsia_loops.cpu.legalize import legalize_for_cpu

    from .schedules import cpu_tiling
    from .unsigned_bytes import unsigned_bytes

    options = target.options
    if options.has_dsp and not options.has_mve:
        function = unsigned_bytes(function)
    winograd = options.winograd and not options.is_microcontroller
    return legalize_for_cpu(function, cpu_tiling(options), winograd=winograd)


@hookimpl
def probe(target: Target[COptions]) -> Probe:
    """Name the compiler that is found."""
    from intarsia.plugin import Probe

    from .toolchain import compiler_version

    try:
        version = compiler_version(target.options.cc)
    except ToolchainError as error:
        return Probe(usable=False, detail=str(error))
    return Probe(usable=True, sdk=version, device=this_machine())
