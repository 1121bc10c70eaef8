# SPDX-License-Identifier: Apache-2.0
"""Sizes of a plan as plain JSON, and back: numbers, and expressions evaluated at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..errors import ArtifactError
from ..size import Size
from ..size_text import parse_size
from .fields import JsonObject, read_dict, read_int, read_list, read_sizes, read_str, read_texts
from .plan import OpenSizes, SizeGuard, SizeSource


def sizes_to_json(shape: Sequence[Size]) -> list[object]:
    """Return sizes as numbers and texts."""
    return [size if isinstance(size, int) else str(size) for size in shape]


def read_shape(fields: JsonObject) -> tuple[int, ...]:
    """Return a shape; texts in it are sizes that only the run knows."""
    if not any(isinstance(size, str) for size in read_list(fields, "shape")):
        return read_sizes(fields, "shape")
    return cast("tuple[int, ...]", tuple(map(size_from_json, read_list(fields, "shape"))))


def size_from_json(value: object) -> Size:
    """Return a size.

    Raises:
        ArtifactError: It is negative, or no size.
    """
    if type(value) is int and value >= 0:
        return value
    if not isinstance(value, str):
        raise ArtifactError(f"{value!r} is no size")
    return parse_size(value)


def guard_to_json(guard: SizeGuard) -> JsonObject:
    """Return a guard: its sizes, and why they must be equal."""
    return {"sizes": sizes_to_json((guard.left, guard.right)), "why": guard.why}


def guard_from_json(document: object) -> SizeGuard:
    """Inverse of :func:`guard_to_json`.

    Raises:
        ArtifactError: It is damaged.
    """
    row = read_dict(document, "a guard")
    sizes = [size_from_json(size) for size in read_list(row, "sizes")]
    if len(sizes) != 2:
        raise ArtifactError(f"a guard of the plan has {len(sizes)} sizes, not 2")
    return SizeGuard(sizes[0], sizes[1], read_str(row, "why"))


def open_to_json(sizes: OpenSizes) -> JsonObject:
    """Return what a plan knows of open sizes."""
    return {
        "variables": [
            {"name": source.name, "input": source.input, "axis": source.axis}
            for source in sizes.variables
        ],
        "guards": [guard_to_json(guard) for guard in sizes.guards],
        "slots": sizes_to_json(sizes.slots),
        **({"stages": [list(names) for names in sizes.stages]} if sizes.stages else {}),
        **({"behind": [list(row) for row in sizes.behind]} if sizes.behind else {}),
    }


def open_from_json(document: object) -> OpenSizes:
    """Inverse of :func:`open_to_json`.

    Raises:
        ArtifactError: It is damaged.
    """
    fields = read_dict(document, "the sizes of the plan")
    variables: list[SizeSource] = []
    for item in read_list(fields, "variables"):
        row = read_dict(item, "a size variable")
        source = SizeSource(read_str(row, "name"), read_int(row, "input"), read_int(row, "axis"))
        variables.append(source)
    guards = [guard_from_json(item) for item in read_list(fields, "guards")]
    slots = tuple(size_from_json(size) for size in read_list(fields, "slots"))
    stages = [] if "stages" not in fields else read_list(fields, "stages")
    names = tuple(read_texts({"stage": stage}, "stage") for stage in stages)
    rows = [] if "behind" not in fields else read_list(fields, "behind")
    behind = tuple(read_sizes({"behind": row}, "behind") for row in rows)
    return OpenSizes(tuple(variables), tuple(guards), slots, names, behind)
