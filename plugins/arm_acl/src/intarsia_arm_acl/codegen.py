# SPDX-License-Identifier: Apache-2.0
"""From a region to its unit: a draft, its C++, and the code a compiler makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.artifact.unit import CompiledUnit
from intarsia.errors import PluginError, UnsupportedError
from intarsia.ir.expr import Expr, tensor_type
from intarsia.ir.match import match_pattern
from intarsia.ir.pattern import Match
from intarsia.ir.walk import calls, count_uses
from intarsia.partition.region import Region

from .draft import Draft, Tensor, label_of
from .emit import emit_unit, used_constants
from .operators.row import Row
from .support import all_rows
from .target import ArmAclOptions
from .toolchain import compile_unit, find_toolchain

LOADER = "arm_acl"
LIBRARY = "lib.so"
SOURCE = "unit.cpp"


@dataclass(frozen=True, slots=True)
class Source:
    """The C++ of a region.

    Attributes:
        draft: The steps it runs.
        text: The C++.
        constants: Names of its constants in the order in which the unit takes them.
    """

    draft: Draft
    text: str
    constants: tuple[str, ...]


def compile_region(region: Region, options: ArmAclOptions) -> CompiledUnit:
    """Compile a region to one shared library.

    Raises:
        PluginError: The region holds a call that no row of the support table takes.
        ToolchainError: There is no compiler or library, or the compiler fails.
    """
    source = write_region(region, threads=options.num_threads)
    tools = find_toolchain(options.acl_root, options.compiler)
    code = compile_unit(source.text, tools, opt_level=options.opt_level)
    named = dict(source.draft.constants.values())
    return CompiledUnit(
        name=region.name,
        loader=LOADER,
        files={LIBRARY: code, SOURCE: source.text.encode()},
        constants={name: named[name] for name in source.constants},
        versions={"arm-compute-library": tools.version},
    )


def write_region(region: Region, *, threads: int = 0) -> Source:
    """Write the C++ of a region. Needs neither compiler nor library.

    Raises:
        PluginError: The region holds a call that no row of the support table takes.
        UnsupportedError: Two of its operators differ on what the same integers stand for.
    """
    draft = Draft(region.name)
    function = region.function
    for param in function.params:
        spec = tensor_type(param)
        draft.values[param] = draft.new_tensor(spec.static_shape, spec.dtype)
    for row, match in _matches(region):
        draft.values[match.root] = row.lower(draft, match)
    inputs = tuple(draft.value(param) for param in function.params)
    outputs = _own_outputs(draft, inputs, tuple(draft.value(out) for out in function.outputs))
    draft.fuse(outputs)
    text = emit_unit(draft, inputs, outputs, threads=threads)
    return Source(draft, text, used_constants(draft))


def has_one_meaning(region: Region) -> bool:
    """Whether all operators of a region agree on what its integers stand for."""
    try:
        write_region(region)
    except UnsupportedError:
        return False
    return True


def _own_outputs(
    draft: Draft, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Copy outputs that are inputs, constants, or given twice."""
    taken: set[Tensor] = {*inputs, *draft.constants}
    own: list[Tensor] = []
    for output in outputs:
        tensor = draft.copy(output, output.shape, "output") if output in taken else output
        taken.add(tensor)
        own.append(tensor)
    return tuple(own)


def _matches(region: Region) -> list[tuple[Row, Match]]:
    """Return the matches that cover the region, operands before users."""
    rows = {row.name: row for row in all_rows()}
    uses = count_uses(region.function.outputs)
    found: list[tuple[Row, Match]] = []
    covered: set[Expr] = set()
    for call in reversed(list(calls(region.function))):
        if call in covered:
            continue
        row = rows.get(region.rows.get(call, ""))
        match = None if row is None else match_pattern(row.pattern, call, uses)
        if row is None or match is None:
            raise PluginError(
                f"region '{region.name}' has {label_of(call)} ({call.name}), which no row of the "
                "support table takes",
                where=str(call.span),
            )
        covered.update(match.calls)
        found.append((row, match))
    return found[::-1]
