# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the compiler asks of this plugin.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from intarsia.plugin import IntarsiaError, RelativePerformance, hookimpl

from .target import ETHOS_U, EthosUOptions, canonicalize

if TYPE_CHECKING:
    from intarsia.plugin import CompiledUnit, Probe, Region, SupportTable, Target, TargetKind


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``ethos-u``."""
    return (ETHOS_U,)


@hookimpl
def canonicalize_target(target: Target[EthosUOptions]) -> Target[EthosUOptions]:
    """The options, checked against each other."""
    canonicalize(target.options)
    return target


@hookimpl
def environment_version(target: Target[EthosUOptions]) -> str:
    """What compiled regions depend on."""
    from .environment import environment_version

    return environment_version()


@hookimpl
def performance(target: Target[EthosUOptions]) -> RelativePerformance:
    """Faster than the fallback, by the usual factor."""
    return RelativePerformance()


@hookimpl
def simulated(target: Target[EthosUOptions]) -> str:
    """How regions run on this machine; empty if they are for a device only."""
    return "by NumPy on this machine (-simulate)" if target.options.simulate else ""


@hookimpl
def annotate(target: Target[EthosUOptions]) -> SupportTable:
    """Return what an Ethos-U takes; the same for every configuration."""
    from .support import TABLE

    return TABLE.support()


@hookimpl
def partition(regions: Sequence[Region], target: Target[EthosUOptions]) -> Sequence[Region]:
    """Keep the regions with at least ``-min-macs`` multiply-accumulates."""
    from intarsia.plugin import Code, drop_regions, too_few_macs

    least = target.options.min_macs
    return drop_regions(regions, partial(too_few_macs, least=least), code=Code.SLOWER)


@hookimpl
def relay_codegen(region: Region, target: Target[EthosUOptions]) -> CompiledUnit:
    """Compile a region to a command stream."""
    from .codegen import compile_region

    return compile_region(region, target.options)


@hookimpl
def probe(target: Target[EthosUOptions]) -> Probe:
    """Say which Vela there is; there is no device to find from here."""
    from intarsia.plugin import Probe

    from .vela import find_vela, version_of

    try:
        program = find_vela(target.options.vela)
        version = version_of(program)
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    detail = f"{program}: compiles and estimates; -simulate runs regions by NumPy"
    return Probe(usable=True, sdk=f"vela {version}", device="none", detail=detail)
