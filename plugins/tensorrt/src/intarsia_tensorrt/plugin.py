# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the compiler asks of this plugin.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.plugin import IntarsiaError, RelativePerformance, hookimpl

from .target import TENSORRT, TensorrtOptions, canonicalize

if TYPE_CHECKING:
    from intarsia.plugin import (
        CompiledUnit,
        Function,
        Probe,
        Region,
        SupportTable,
        Target,
        TargetKind,
    )


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``tensorrt``."""
    return (TENSORRT,)


@hookimpl
def canonicalize_target(target: Target[TensorrtOptions]) -> Target[TensorrtOptions]:
    """The options, checked against each other."""
    canonicalize(target.options)
    return target


@hookimpl
def environment_version(target: Target[TensorrtOptions]) -> str:
    """What compiled regions depend on."""
    from .environment import environment_version

    return environment_version()


@hookimpl
def performance(target: Target[TensorrtOptions]) -> RelativePerformance:
    """Faster than the fallback, by the usual factor."""
    return RelativePerformance()


@hookimpl
def annotate(target: Target[TensorrtOptions]) -> SupportTable:
    """Return what the library takes for the GPU that the options name."""
    from .sdk import builds_on_the_gpu
    from .support import EngineDevice, support_table

    options = target.options
    capability = "" if builds_on_the_gpu(options.library) else options.capability
    return support_table(int8=options.int8, device=EngineDevice(capability, options.fp16))


@hookimpl
def rewrite_relay(function: Function, target: Target[TensorrtOptions]) -> Function:
    """Steps of recurrent layers, whose operators the library has."""
    from intarsia.plugin.accelerator import unroll_recurrent

    return unroll_recurrent(function)


@hookimpl
def partition(regions: Sequence[Region], target: Target[TensorrtOptions]) -> Sequence[Region]:
    """Keep all regions, or with ``-remove-no-mac-regions`` those with heavy arithmetic."""
    from intarsia.plugin import drop_regions

    from .codegen import no_heavy_call

    if not target.options.remove_no_mac_regions:
        return regions
    return drop_regions(regions, no_heavy_call)


@hookimpl
def relay_codegen(region: Region, target: Target[TensorrtOptions]) -> CompiledUnit:
    """Build the engine of a region."""
    from .codegen import compile_region

    return compile_region(region, target.options)


@hookimpl
def probe(target: Target[TensorrtOptions]) -> Probe:
    """Name the library and the GPU."""
    from intarsia.plugin import Probe

    from .device import Gpu
    from .sdk import find_library

    try:
        library = find_library(target.options.library)
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
