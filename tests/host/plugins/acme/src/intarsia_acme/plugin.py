# SPDX-License-Identifier: Apache-2.0
"""The compiling half: which operators the accelerator takes, and its program for a region."""

from __future__ import annotations

import json
from collections.abc import Callable

from intarsia.plugin import (
    Call,
    Code,
    CompiledUnit,
    Constant,
    DType,
    Match,
    Region,
    Support,
    SupportRow,
    SupportTable,
    Target,
    TargetKind,
    TensorType,
    hookimpl,
    op,
    post_order,
)

from .target import ACME

OPERATORS = ("nn.relu", "add", "multiply")


@hookimpl
def register_target_kind() -> list[TargetKind]:
    """The one kind."""
    return [ACME]


@hookimpl
def annotate(target: Target) -> SupportTable:
    """Float32 element-wise operators up to a size."""
    return SupportTable([SupportRow(name, op(name), _predicate(target)) for name in OPERATORS])


def _predicate(target: Target) -> Callable[[Match], Support]:
    def takes(match: Match) -> Support:
        result = match.root.type
        if not isinstance(result, TensorType) or result.dtype is not DType.FLOAT32:
            return Support.no(Code.UNSUPPORTED_DTYPE, f"takes float32 only, not {result}")
        if not result.is_static:
            return Support.no(Code.UNSUPPORTED_SHAPE, f"takes static shapes only, not {result}")
        if result.elements > target.options.max_elements:
            return Support.no(
                Code.UNSUPPORTED_SHAPE, f"takes {target.options.max_elements} elements"
            )
        return Support.yes()

    return takes


@hookimpl
def relay_codegen(region: Region, target: Target) -> CompiledUnit:
    """A list of steps; each reads inputs, constants or the results of earlier steps."""
    function = region.function
    places = {param: ["input", number] for number, param in enumerate(function.params)}
    constants, steps = {}, []
    for node in post_order(*function.outputs):
        if isinstance(node, Constant):
            name = f"{region.name}_{len(constants)}"
            constants[name] = node.data
            places[node] = ["constant", name]
        elif isinstance(node, Call):
            steps.append({"op": node.name, "args": [places[arg] for arg in node.args]})
            places[node] = ["step", len(steps) - 1]
    program = {"steps": steps, "outputs": [places[output] for output in function.outputs]}
    return CompiledUnit(
        name=region.name,
        loader="acme",
        files={"program.json": json.dumps(program, sort_keys=True).encode()},
        constants=constants,
        versions={"acme": "0.3.0"},
    )
