# SPDX-License-Identifier: Apache-2.0
"""From a region to its unit: a draft, its C++, and the code a compiler makes of it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from intarsia.plugin.accelerator import (
    CompiledUnit,
    Region,
    UnsupportedError,
    tensor_type,
)

from .draft import AclDraft, AclTensor
from .emit import emit_unit, used_constants
from .stamp import FORMAT, stamp_text, unit_stamp
from .support import TABLE
from .target import ArmAclOptions
from .toolchain import compile_unit, find_toolchain
from .validate import validate_unit

LOADER = "arm_acl"
LIBRARY = "lib.so"
SOURCE = "unit.cpp"


class AclSource(Struct, frozen=True):
    """The C++ of a region.

    Attributes:
        draft: The steps it runs.
        text: The C++.
        constants: Names of its constants in the order in which the unit takes them.
    """

    draft: AclDraft
    text: str
    constants: tuple[str, ...]


def compile_region(region: Region, options: ArmAclOptions) -> CompiledUnit:
    """Compile a region to one shared library.

    Raises:
        PluginError: The region holds a call that no row of the support table takes, or the library
            refuses what was made of it.
        ToolchainError: There is no compiler or library, or the compiler fails.
        ResourceError: The compiler takes too long.
    """
    source = write_region(region, threads=options.num_threads)
    tools = find_toolchain(options.acl_root, options.compiler)

    def validate(folder: Path, library: str) -> None:
        validate_unit(folder, library, region.name, tools, options.acl_root)

    named = dict(source.draft.constants.values())
    function = region.function
    text = source.text + stamp_text(
        unit_stamp(
            [(t.dtype.value, t.static_shape) for t in map(tensor_type, function.params)],
            [(t.dtype.value, t.static_shape) for t in map(tensor_type, function.outputs)],
            [(named[name].dtype.name, named[name].shape) for name in source.constants],
        )
    )
    code = compile_unit(
        text,
        tools,
        opt_level=options.opt_level,
        seconds=options.compile_timeout,
        validate=validate,
    )
    return CompiledUnit(
        name=region.name,
        loader=LOADER,
        format=FORMAT,
        files={LIBRARY: code, SOURCE: text.encode()},
        constants={name: named[name] for name in source.constants},
        versions={"arm-compute-library": tools.version},
    )


def write_region(region: Region, *, threads: int = 0) -> AclSource:
    """Write the C++ of a region. Needs neither compiler nor library.

    Raises:
        PluginError: The region holds a call that no row of the support table takes.
        UnsupportedError: Two of its operators differ on what the same integers stand for.
    """
    draft = AclDraft(region.name)
    function = region.function
    for param in function.params:
        spec = tensor_type(param)
        draft.values[param] = draft.new_tensor(spec.static_shape, spec.dtype)
    for row, match in TABLE.matches(region):
        draft.values[match.root] = row.lower(draft, match)
    inputs = tuple(draft.value(param) for param in function.params)
    outputs = _own_outputs(draft, inputs, tuple(draft.value(out) for out in function.outputs))
    draft.fuse(outputs)
    text = emit_unit(draft, inputs, outputs, threads=threads)
    return AclSource(draft, text, used_constants(draft))


def has_two_meanings(region: Region) -> str:
    """Object to a region whose operators differ on what the same integers stand for."""
    try:
        write_region(region)
    except UnsupportedError:
        return "a tensor of its region would have two scales or zero points; the library keeps one"
    return ""


def _own_outputs(
    draft: AclDraft, inputs: tuple[AclTensor, ...], outputs: tuple[AclTensor, ...]
) -> tuple[AclTensor, ...]:
    """Copy outputs that are inputs, constants, or given twice."""
    taken: set[AclTensor] = {*inputs, *draft.constants}
    own: list[AclTensor] = []
    for output in outputs:
        tensor = draft.copy(output, output.shape, "output") if output in taken else output
        taken.add(tensor)
        own.append(tensor)
    return tuple(own)
