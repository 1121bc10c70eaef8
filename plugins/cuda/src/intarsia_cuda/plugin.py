# SPDX-License-Identifier: Apache-2.0
"""What the host asks of this backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

from .codegen import LOADER, tir_codegen
from .driver import device_name
from .intrinsics import RULES
from .nvrtc import env_version, nvrtc_version
from .schedules.stages import device_loops
from .schedules.table import SCHEDULES
from .spelling import KIND, target_function
from .target import CudaOptions, canonicalise, simulated

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
            schedules=SCHEDULES,
            loops=device_loops,
            tir_codegen=tir_codegen,
            canonicalise=canonicalise,
            env_version=env_version,
            host="llvm",
            main_loader=LOADER,
            target_function=target_function,
            simulated=simulated,
        ),
    )


@hookimpl
def lower_intrinsic(target: Target) -> Mapping[Intrinsic, IntrinsicRule]:
    """What CUDA's mathematics has not."""
    return RULES


@hookimpl
def probe(target: Target) -> Probe:
    """Name NVRTC's version and the GPU."""
    options: CudaOptions = target.options
    if options.emulate:
        return Probe(usable=True, sdk=options.cxx, device="emulated on the CPU")
    try:
        sdk = nvrtc_version()
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    try:
        return Probe(usable=True, sdk=sdk, device=device_name())
    except IntarsiaError as error:
        return Probe(usable=False, sdk=sdk, detail=f"compiles, but cannot run here: {error}")
