# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the compiler asks of this plugin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from intarsia.plugin import (
    CompiledUnit,
    IntarsiaError,
    Probe,
    Region,
    SupportTable,
    Target,
    TargetKind,
    drop_regions,
    hookimpl,
)

from .codegen import compile_region, no_heavy_call
from .device import Gpu
from .sdk import builds_on_the_gpu, find_library
from .support import Device, support_table
from .target import TENSORRT, TensorrtOptions


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``tensorrt``."""
    return (TENSORRT,)


@hookimpl
def annotate(target: Target) -> SupportTable:
    """Return what the library takes for the GPU that the options name."""
    options = cast("TensorrtOptions", target.options)
    capability = "" if builds_on_the_gpu(options.library) else options.capability
    return support_table(int8=options.int8, device=Device(capability, options.fp16))


@hookimpl
def partition(regions: Sequence[Region], target: Target) -> Sequence[Region]:
    """Keep all regions, or with ``-remove-no-mac-regions`` those with heavy arithmetic."""
    if not cast("TensorrtOptions", target.options).remove_no_mac_regions:
        return regions
    return drop_regions(regions, no_heavy_call)


@hookimpl
def relay_codegen(region: Region, target: Target) -> CompiledUnit:
    """Build the engine of a region."""
    return compile_region(region, cast("TensorrtOptions", target.options))


@hookimpl
def probe(target: Target) -> Probe:
    """Name the library and the GPU."""
    try:
        library = find_library(cast("TensorrtOptions", target.options).library)
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    try:
        gpu = Gpu()
    except IntarsiaError as error:
        detail = "compiles, but cannot run here" if library.builds_without_gpu else "needs a GPU"
        return Probe(usable=False, sdk=library.label, detail=f"{detail}: {error}")
    try:
        return Probe(usable=True, sdk=library.label, device=gpu.identity)
    finally:
        gpu.close()
