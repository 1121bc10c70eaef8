# SPDX-License-Identifier: Apache-2.0
"""Builds a model for several shapes: a program for each in one artifact, which share weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from intarsia_ir.graph.module import IRModule
from intarsia_ir.size_values import (
    Combination,
    ShapeChoices,
    Size,
    SizeValues,
    joint_signature,
    name_sizes,
)
from intarsia_runtime.artifact.passport import Passport
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.errors import UnsupportedError, UsageError

from .artifact import Artifact
from .config import Runtime
from .parts import Joint, Piece
from .source import ModuleSource, source_of

if TYPE_CHECKING:
    import numpy as np

    from intarsia_ir.partition.report import Placement

    from ..host.host import Host


def find_choices(
    source: ModuleSource, shapes: Mapping[str, Sequence[Size]] | None
) -> ShapeChoices | None:
    """Return the shapes with names for sizes of several values; ``None`` if no size has several.

    Raises:
        UsageError: One size of the model is given different values, the model is imported, or it
            is a saved program of PyTorch.
    """
    if shapes is None or not any(
        isinstance(s, SizeValues) for shape in shapes.values() for s in shape
    ):
        return None
    if isinstance(source.model, IRModule):
        raise UsageError(
            "an imported module has fixed shapes and cannot be built for several",
            hint="pass the model's file or bytes to build()",
        )
    if not source.is_onnx:
        raise UsageError(
            f"'{source.model}' is built for one shape",
            hint="torch.onnx.export(program, dynamo=True) writes an ONNX model for several",
        )
    return name_sizes(shapes, source.declared())


def open_shapes(
    host: Host, path: Path, arrays: Mapping[str, np.ndarray]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that arrays have of inputs whose sizes an ONNX file leaves open.

    Nothing for models of other formats.

    Raises:
        ModelError: The file is no model.
    """
    source = source_of(host, path)
    types = source.declared() if source.is_onnx else {}
    named = [name for name, type_ in types.items() if name in arrays and not type_.is_static]
    return {name: arrays[name].shape for name in named}


def static_shapes(
    shapes: Mapping[str, Sequence[Size]] | None,
) -> Mapping[str, Sequence[int]] | None:
    """Return shapes of which no size has several values as what importing takes."""
    return cast("Mapping[str, Sequence[int]] | None", shapes)


def check_one_program(runtime: Runtime) -> None:
    """Refuse a runtime that has no place for several programs.

    Raises:
        UnsupportedError: It has its memory laid out for one.
    """
    if runtime.is_freestanding:
        raise UnsupportedError(
            f"code for runtime '{runtime.kind}' has one shape",
            hint="give every size one value; compile once for each shape that is needed",
        )


def build_shapes(shapes: ShapeChoices, build_one: Callable[[Combination], Artifact]) -> Artifact:
    """Build a model for every combination of sizes.

    Args:
        shapes: Shapes with names of sizes.
        build_one: Builds for one combination.

    Raises:
        UsageError: There are too many combinations.
    """
    combinations = shapes.combinations()
    joint = Joint()
    made: dict[str, Passport] = {}
    placements: list[Placement] = []
    for row in combinations:
        name = "sizes" + "x".join(map(str, row.sizes))
        program = build_one(row)
        joint.add(Piece(name, program, row.sizes))
        made[name] = program.passport
        placements.append(program.placement)
    *_, largest = made.values()
    passport = replace(
        largest,
        plan=CallPlan((), (), (), (), 0, ()),
        units=(),
        placement=MappingProxyType({**largest.placement, "sizes": _lines(made)}),
        declared=joint_signature(
            shapes, [passport.signature for passport in made.values()], combinations
        ),
        sizes=shapes.choices,
    )
    return joint.artifact(passport, (), placements[-1])


def _lines(made: Mapping[str, Passport]) -> dict[str, object]:
    """Return what is said of the placement of each program."""
    return {name: passport.placement.get("summary", "") for name, passport in made.items()}
