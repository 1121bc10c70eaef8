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
    hookimpl,
)

from .isa import exact_feature, hides_tiles
from .support import INEXACT, support_table
from .target import DNNL, DnnlOptions
from .worth import worthwhile


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``dnnl``."""
    return (DNNL,)


@hookimpl
def annotate(target: Target) -> SupportTable:
    """Return what oneDNN takes; products of 8-bit integers as ``-int8`` says."""
    options = cast("DnnlOptions", target.options)
    special = options.special == "exact"
    if options.int8 == "off":
        why = "-int8=off leaves products of 8-bit integers"
        return support_table(without_products=why, exact=special)
    exact = options.int8 == "on" or exact_feature()
    return support_table(without_products="" if exact else INEXACT, exact=special)


@hookimpl
def partition(regions: Sequence[Region], target: Target) -> Sequence[Region]:
    """Keep the regions that do enough work: in all, for a byte reordered, and for a call."""
    options = cast("DnnlOptions", target.options)
    return [worthwhile(region, options) for region in regions]


@hookimpl
def relay_codegen(region: Region, target: Target) -> CompiledUnit:
    """Compile a region to a program for the loader."""
    from .codegen import compile_region  # most of the plugin, which no region may need

    return compile_region(region, cast("DnnlOptions", target.options))


@hookimpl
def probe(target: Target) -> Probe:
    """Load the library and say which it is."""
    from .sdk import Dnnl

    try:
        dnnl = Dnnl(cast("DnnlOptions", target.options).library)
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    version = ".".join(map(str, dnnl.version))
    dnnl.close()
    without = "; without AMX, whose tiles this virtual machine does not describe"
    detail = f"{dnnl.path}{without if hides_tiles() else ''}"
    return Probe(usable=True, sdk=f"oneDNN {version}", device="cpu", detail=detail)
