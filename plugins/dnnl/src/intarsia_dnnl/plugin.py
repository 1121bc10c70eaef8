# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the compiler asks of this plugin.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.plugin import IntarsiaError, hookimpl

from .target import DNNL, DnnlOptions

if TYPE_CHECKING:
    from intarsia.plugin import (
        CompiledUnit,
        Probe,
        Region,
        RelativePerformance,
        SupportTable,
        Target,
        TargetKind,
    )
    from intarsia_runtime.plugin import Machine


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``dnnl``."""
    return (DNNL,)


@hookimpl
def environment_version(target: Target[DnnlOptions]) -> str:
    """What compiled regions depend on."""
    from .environment import environment_version

    return environment_version()


@hookimpl
def performance(target: Target[DnnlOptions]) -> RelativePerformance:
    """Faster than the fallback, by the usual factor."""
    from intarsia.plugin import RelativePerformance

    return RelativePerformance()


@hookimpl
def annotate(target: Target[DnnlOptions]) -> SupportTable:
    """Return what oneDNN takes; products of 8-bit integers as ``-int8`` says."""
    from .isa import exact_feature
    from .support import INEXACT, support_table

    options = target.options
    special = options.special == "exact"
    if options.int8 == "off":
        why = "-int8=off leaves products of 8-bit integers"
        return support_table(without_products=why, exact=special)
    exact = options.int8 == "on" or exact_feature()
    return support_table(without_products="" if exact else INEXACT, exact=special)


@hookimpl
def partition(
    regions: Sequence[Region],
    target: Target[DnnlOptions],
    fallback: Target,
    machine: Machine | None,
) -> Sequence[Region]:
    """Keep the regions that gain: in all, for a byte reordered, and for a call."""
    from .profitable import Strengths, keep_profitable

    features = None if machine is None else machine.cpu_features
    narrow = fallback.to_json().get("fpmath-mode") in ("bf16", "any")
    strengths = Strengths(fallback.kind.reduced_convolution, features, narrow)
    return [keep_profitable(region, target.options, strengths) for region in regions]


@hookimpl
def relay_codegen(region: Region, target: Target[DnnlOptions]) -> CompiledUnit:
    """Compile a region to a program for the loader."""
    from .codegen import compile_region  # most of the plugin, which no region may need

    return compile_region(region, target.options)


@hookimpl
def probe(target: Target[DnnlOptions]) -> Probe:
    """Load the library and say which it is."""
    from intarsia.plugin import Probe

    from .isa import hides_tiles
    from .sdk import Dnnl

    try:
        dnnl = Dnnl(target.options.library)
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    version = ".".join(map(str, dnnl.version))
    dnnl.close()
    without = "; without AMX, whose tiles this virtual machine does not describe"
    detail = f"{dnnl.path}{without if hides_tiles() else ''}"
    return Probe(usable=True, sdk=f"oneDNN {version}", device="cpu", detail=detail)
