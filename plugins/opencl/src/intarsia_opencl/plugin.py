# SPDX-License-Identifier: Apache-2.0
"""What the host asks of this backend.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from intarsia.plugin import IntarsiaError, Memory, Role, TargetKind, hookimpl

from .target import ALIGNMENT, KIND, LOADER, OpenclOptions, canonicalize

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

_DLPACK_OPENCL = 4


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """The one kind of this plugin."""
    return (
        TargetKind(
            name=KIND,
            role=Role.BACKEND,
            options=OpenclOptions,
            summary="GPUs and other devices with an OpenCL driver",
            device_type=_DLPACK_OPENCL,
            default_keys=("opencl", "gpu"),
            memory=(Memory("global", ALIGNMENT), Memory("local", 16, 32 * 1024)),
            host="llvm",
            main_loader=LOADER,
            open_sizes=True,
        ),
    )


@hookimpl
def canonicalize_target(target: Target[OpenclOptions]) -> Target[OpenclOptions]:
    """The options, checked."""
    canonicalize(target.options)
    return target


@hookimpl
def target_function(name: str, target: Target[OpenclOptions]) -> CodegenSignature | None:
    """OpenCL C's mathematics, and what this generator writes."""
    from . import spelling

    return spelling.target_function(name)


@hookimpl
def rewrite_relay(function: Function, target: Target[OpenclOptions]) -> Function:
    """Steps of recurrent layers: products that all of the device computes."""
    from intarsia_ir.passes.unroll_recurrent import unroll_recurrent

    return unroll_recurrent(function)


@hookimpl
def lower(
    main: Function,
    regions: Sequence[Region],
    target: Target[OpenclOptions],
    alignment: int,
    tuned: Tuned | None,
    name: str,
) -> Lowered:
    """An item for each result; products by tiles of groups."""
    from .schedules import lower_function

    aligned = max(alignment, ALIGNMENT)
    return lower_function(main, regions, target=target, alignment=aligned, tuned=tuned, name=name)


@hookimpl
def tir_codegen(module: TensorModule, target: Target[OpenclOptions]) -> CompiledUnit:
    """OpenCL C, which the driver compiles when the artifact is loaded."""
    from . import codegen

    return codegen.tir_codegen(module, target)


@hookimpl
def lower_intrinsic(target: Target[OpenclOptions]) -> Mapping[Intrinsic, IntrinsicRule]:
    """What OpenCL C has not."""
    from .intrinsics import RULES

    return RULES


@hookimpl
def probe(target: Target[OpenclOptions]) -> Probe:
    """Name the device that the target would run on."""
    from intarsia.plugin import Probe

    from .driver import describe, find_device, require_opencl

    options = target.options
    try:
        sdk = f"pyopencl {require_opencl().VERSION_TEXT}"
    except IntarsiaError as error:
        return Probe(usable=False, detail=f"compiles, but cannot run here: {error}")
    try:
        device = find_device(options.device_type, options.device)
    except IntarsiaError as error:
        return Probe(usable=False, sdk=sdk, detail=f"compiles, but cannot run here: {error}")
    return Probe(usable=True, sdk=sdk, device=describe(device))
