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

from .codegen import compile_region, has_two_meanings
from .support import support_table
from .target import ARM_ACL, ArmAclOptions
from .toolchain import find_toolchain
from .validate import emulator


@hookimpl
def register_target_kind() -> Sequence[TargetKind]:
    """Return the kind ``arm_acl``."""
    return (ARM_ACL,)


@hookimpl
def annotate(target: Target) -> SupportTable:
    """Return what the library takes; the same for all options."""
    return support_table()


@hookimpl
def partition(regions: Sequence[Region], target: Target) -> Sequence[Region]:
    """Keep the regions whose integers mean one thing each: the library keeps it with the tensor."""
    return drop_regions(regions, has_two_meanings)


@hookimpl
def relay_codegen(region: Region, target: Target) -> CompiledUnit:
    """Generate the C++ of a region and compile it."""
    return compile_region(region, cast("ArmAclOptions", target.options))


@hookimpl
def probe(target: Target) -> Probe:
    """Say which compiler and library units are built with."""
    options = cast("ArmAclOptions", target.options)
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
