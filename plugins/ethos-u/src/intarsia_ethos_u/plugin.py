# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the compiler asks of this plugin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

from intarsia.plugin import (
    Code,
    CompiledUnit,
    IntarsiaError,
    Probe,
    Region,
    SupportTable,
    Target,
    TargetKind,
    drop_regions,
    hookimpl,
    too_few_macs,
)

from .codegen import compile_region
from .support import support_table
from .target import ETHOS_U, EthosUOptions
from .vela import find_vela, version_of


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``ethos-u``."""
    return (ETHOS_U,)


@hookimpl
def annotate(target: Target) -> SupportTable:
    """Return what an Ethos-U takes; the same for every configuration."""
    return support_table()


@hookimpl
def partition(regions: Sequence[Region], target: Target) -> Sequence[Region]:
    """Keep the regions with at least ``-min-macs`` multiply-accumulates."""
    least = cast("EthosUOptions", target.options).min_macs
    return drop_regions(regions, partial(too_few_macs, least=least), code=Code.SLOWER)


@hookimpl
def relay_codegen(region: Region, target: Target) -> CompiledUnit:
    """Compile a region to a command stream."""
    return compile_region(region, cast("EthosUOptions", target.options))


@hookimpl
def probe(target: Target) -> Probe:
    """Say which Vela there is; there is no device to find from here."""
    try:
        program = find_vela(cast("EthosUOptions", target.options).vela)
        version = version_of(program)
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    detail = f"{program}: compiles and estimates; -simulate runs regions by NumPy"
    return Probe(usable=True, sdk=f"vela {version}", device="none", detail=detail)
