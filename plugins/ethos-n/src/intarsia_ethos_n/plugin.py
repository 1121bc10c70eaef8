# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the compiler asks of this plugin.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from intarsia.plugin import IntarsiaError, RelativePerformance, hookimpl

from .target import ETHOS_N, EthosNOptions, canonicalize

if TYPE_CHECKING:
    from intarsia.plugin import CompiledUnit, Probe, Region, SupportTable, Target, TargetKind


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``ethos-n``."""
    return (ETHOS_N,)


@hookimpl
def canonicalize_target(target: Target[EthosNOptions]) -> Target[EthosNOptions]:
    """The options, checked against each other."""
    canonicalize(target.options)
    return target


@hookimpl
def environment_version(target: Target[EthosNOptions]) -> str:
    """What compiled regions depend on."""
    from .environment import environment_version

    return environment_version()


@hookimpl
def performance(target: Target[EthosNOptions]) -> RelativePerformance:
    """Faster than the fallback, by the usual factor."""
    return RelativePerformance()


@hookimpl
def simulated(target: Target[EthosNOptions]) -> str:
    """How regions run on this machine; empty if they are for a device only."""
    return "by NumPy on this machine (-simulate)" if target.options.simulate else ""


@hookimpl
def annotate(target: Target[EthosNOptions]) -> SupportTable:
    """Return what the variant takes."""
    from .support import support_table

    return support_table(target.options)


@hookimpl
def partition(regions: Sequence[Region], target: Target[EthosNOptions]) -> Sequence[Region]:
    """Keep the regions with at least ``-min-macs`` multiply-accumulates."""
    from intarsia.plugin import Code, drop_regions, too_few_macs

    least = target.options.min_macs
    return drop_regions(regions, partial(too_few_macs, least=least), code=Code.SLOWER)


@hookimpl
def relay_codegen(region: Region, target: Target[EthosNOptions]) -> CompiledUnit:
    """Write a region as a network, compiled where there is a Support Library."""
    from .codegen import compile_region

    return compile_region(region, target.options)


@hookimpl
def probe(target: Target[EthosNOptions]) -> Probe:
    """Say which Support Library there is; there is no device to find from here."""
    from intarsia.plugin import Probe

    from .library import find_root, open_library

    root = find_root(target.options.ethosn_root)
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
