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
from .library import find_root, open_library
from .support import support_table
from .target import ETHOS_N, EthosNOptions


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``ethos-n``."""
    return (ETHOS_N,)


@hookimpl
def annotate(target: Target) -> SupportTable:
    """Return what the variant takes."""
    return support_table(cast("EthosNOptions", target.options))


@hookimpl
def partition(regions: Sequence[Region], target: Target) -> Sequence[Region]:
    """Keep the regions with at least ``-min-macs`` multiply-accumulates."""
    least = cast("EthosNOptions", target.options).min_macs
    return drop_regions(regions, partial(too_few_macs, least=least), code=Code.SLOWER)


@hookimpl
def relay_codegen(region: Region, target: Target) -> CompiledUnit:
    """Write a region as a network, compiled where there is a Support Library."""
    return compile_region(region, cast("EthosNOptions", target.options))


@hookimpl
def probe(target: Target) -> Probe:
    """Say which Support Library there is; there is no device to find from here."""
    root = find_root(cast("EthosNOptions", target.options).ethosn_root)
    if root is None:
        return Probe(
            usable=False,
            detail="no Support Library: set -ethosn-root or ETHOSN_ROOT; without it models are"
            " placed and simulated (-simulate), not compiled",
        )
    try:
        library = open_library(root)
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    detail = f"{root}: compiles and estimates; -simulate runs regions by NumPy"
    version = f"Ethos-N Support Library {library.version}"
    return Probe(usable=True, sdk=version, device="none", detail=detail)
