# SPDX-License-Identifier: Apache-2.0
"""The hooks: what the compiler asks of this plugin.

Each hook imports what it needs: reading a target loads the options and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from intarsia.plugin import IntarsiaError, RelativePerformance, hookimpl

from .target import ARM_ACL, ArmAclOptions

if TYPE_CHECKING:
    from intarsia.plugin import CompiledUnit, Probe, Region, SupportTable, Target, TargetKind


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``arm_acl``."""
    return (ARM_ACL,)


@hookimpl
def environment_version(target: Target[ArmAclOptions]) -> str:
    """What compiled regions depend on."""
    from .environment import environment_version

    return environment_version()


@hookimpl
def performance(target: Target[ArmAclOptions]) -> RelativePerformance:
    """Faster than the fallback, by the usual factor."""
    return RelativePerformance()


@hookimpl
def annotate(target: Target[ArmAclOptions]) -> SupportTable:
    """Return what the library takes; the same for all options."""
    from .support import support_table

    return support_table()


@hookimpl
def partition(regions: Sequence[Region], target: Target[ArmAclOptions]) -> Sequence[Region]:
    """Keep the regions whose integers mean one thing each: the library keeps it with the tensor."""
    from intarsia.plugin import drop_regions

    from .codegen import has_two_meanings

    return drop_regions(regions, has_two_meanings)


@hookimpl
def relay_codegen(region: Region, target: Target[ArmAclOptions]) -> CompiledUnit:
    """Generate the C++ of a region and compile it."""
    from .codegen import compile_region

    return compile_region(region, target.options)


@hookimpl
def probe(target: Target[ArmAclOptions]) -> Probe:
    """Say which compiler and library units are built with."""
    from intarsia.plugin import Probe

    from .toolchain import find_toolchain
    from .validate import emulator

    options = target.options
    try:
        tools = find_toolchain(options.acl_root, options.compiler)
    except IntarsiaError as error:
        return Probe(usable=False, detail=str(error))
    checked = "are" if emulator(options.acl_root) is not None else "without qemu-aarch64 are not"
    detail = (
        f"{tools.compiler}, headers in {tools.include}; units {checked} validated by the library"
        " when they are compiled"
    )
    return Probe(usable=True, sdk=f"libarm_compute {tools.version}", device="cpu", detail=detail)
