# SPDX-License-Identifier: Apache-2.0
"""What the host asks of this backend.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from intarsia.plugin import IntarsiaError, Memory, Role, TargetKind, hookimpl

from .target import KIND, LOADER, CudaOptions, canonicalize

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

_DLPACK_CUDA = 2


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """The one kind of this plugin."""
    return (
        TargetKind(
            name=KIND,
            role=Role.BACKEND,
            options=CudaOptions,
            summary="NVIDIA GPUs, through CUDA C++ and NVRTC",
            device_type=_DLPACK_CUDA,
            default_keys=("cuda", "gpu"),
            memory=(Memory("global", 256), Memory("shared", 16, 48 * 1024)),
            host="llvm",
            main_loader=LOADER,
            open_sizes=True,
        ),
    )


@hookimpl
def canonicalize_target(target: Target[CudaOptions]) -> Target[CudaOptions]:
    """The GPU here for ``native``; the options, checked against each other."""
    return replace(target, options=canonicalize(target.options))


@hookimpl
def environment_version(target: Target[CudaOptions]) -> str:
    """NVRTC's version."""
    from . import nvrtc

    return nvrtc.environment_version()


@hookimpl
def simulated(target: Target[CudaOptions]) -> str:
    """How kernels run without a GPU."""
    return "by this machine's processor (-emulate)" if target.options.emulate else ""


@hookimpl
def target_function(name: str, target: Target[CudaOptions]) -> CodegenSignature | None:
    """CUDA's mathematics, and what this generator writes."""
    from . import spelling

    return spelling.target_function(name)


@hookimpl
def rewrite_relay(function: Function, target: Target[CudaOptions]) -> Function:
    """Steps of recurrent layers: products that all of the GPU computes."""
    from intarsia_ir.passes.unroll_recurrent import unroll_recurrent

    return unroll_recurrent(function)


@hookimpl
def lower(
    main: Function,
    regions: Sequence[Region],
    target: Target[CudaOptions],
    alignment: int,
    tuned: Tuned | None,
    name: str,
) -> Lowered:
    """A thread for each result; products by tiles of blocks."""
    from .lowering import lower_function

    return lower_function(main, regions, target=target, alignment=alignment, tuned=tuned, name=name)


@hookimpl
def tir_codegen(module: TensorModule, target: Target[CudaOptions]) -> CompiledUnit:
    """PTX by NVRTC; for ``-emulate`` a library of this machine."""
    from . import codegen

    return codegen.tir_codegen(module, target)


@hookimpl
def lower_intrinsic(target: Target[CudaOptions]) -> Mapping[Intrinsic, IntrinsicRule]:
    """What CUDA's mathematics has not."""
    from .intrinsics import RULES

    return RULES


@hookimpl
def probe(target: Target[CudaOptions]) -> Probe:
    """Name NVRTC's version and the GPU."""
    from intarsia.plugin import Probe

    from .driver import device_name
    from .nvrtc import nvrtc_version

    if target.options.emulate:
        return Probe(usable=True, sdk=target.options.cxx, device="emulated on the CPU")
    try:
        sdk = nvrtc_version()
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    try:
        return Probe(usable=True, sdk=sdk, device=device_name())
    except IntarsiaError as error:
        return Probe(usable=False, sdk=sdk, detail=f"compiles, but cannot run here: {error}")
