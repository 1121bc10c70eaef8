# SPDX-License-Identifier: Apache-2.0
"""Sizes of which any value runs: proved for those that are asked for, and tried where nobody asks.

A model is imported for some values of a size, and :mod:`.padding` compares the graphs: where the
positions along the size have nothing to do with each other, inputs may be padded, and cut.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..artifact.signature import SizeChoice
from ..errors import IntarsiaError, ResourceError, UnsupportedError
from ..ir.types import Dim
from .importing import Model, ModelFile, import_model
from .padding import calculated, check_padding, output_place
from .sizes import ShapeChoices, Size, Sizes, name_sizes

if TYPE_CHECKING:
    import numpy as np

_FAR = 1021
"""A size beyond what is compiled: a slice of the first 512 shows only there."""
_LIKELY = 128
"""A size that most models can have, where one has to be named."""


def prove_ranges(
    model: Model, shapes: ShapeChoices, params: Mapping[str, np.ndarray] | None
) -> None:
    """Prove for every range that what runs padded, or in chunks, has the results it should.

    Args:
        model: The model, not imported.
        shapes: Shapes with names of sizes.
        params: Values of inputs that are weights.

    Raises:
        UnsupportedError: Results may depend on the padding, or on other chunks.
    """
    for choice in shapes.choices:
        if choice.low:
            _prove(model, shapes, choice, params)


def open_choices(
    model: ModelFile,
    shapes: Mapping[str, Sequence[int]] | None,
    params: Mapping[str, np.ndarray] | None,
) -> ShapeChoices:
    """Return the shapes of a model's inputs where sizes that nobody gave may be any; proved.

    Args:
        model: An ONNX model.
        shapes: The shapes that are given.
        params: Values of inputs that are weights.

    Raises:
        UnsupportedError: Results depend on one of these sizes as a whole; the hint has shapes to
            give instead.
    """
    from ..frontend.onnx.api import declared_types  # a module that exists needs no importer

    given = frozenset(shapes or ())
    declared = declared_types(model, shapes)
    wanted = {
        name: tuple(map(_any_size, type_.shape))
        for name, type_ in declared.items()
        if name in given or not type_.is_static
    }
    made = name_sizes(wanted, declared)
    reasons: dict[str, IntarsiaError] = {}
    for choice in made.choices:
        try:
            _prove(model, made, choice, params)
        except IntarsiaError as error:
            reasons[choice.name] = error
    if not reasons:
        return made
    first = next(name for name, type_ in declared.items() if not type_.is_static)
    reason = next(iter(reasons.values()))
    refused = _still_refused(model, made, reasons, params)
    likely: dict[int | str, int] = dict.fromkeys(refused, _LIKELY)
    likely |= {sizes[0]: 1 for sizes in made.shapes.values() if sizes and sizes[0] in likely}
    options = [f"--shape {name}:{_example(sizes, likely)}" for name, sizes in made.shapes.items()]
    raise UnsupportedError(
        f"the size of input '{first}' is not known: {declared[first]}, and cannot be any: "
        f"{reason.message}",
        hint=f"for example {' '.join(options)}; or --executor vm, for any size but slower",
        where=reason.where,
    )


def example_shapes(
    model: ModelFile, shapes: Mapping[str, tuple[int, ...]]
) -> Mapping[str, tuple[int, ...]]:
    """Return shapes for a model, with the least size wherever neither it nor ``shapes`` has one.

    Raises:
        UnsupportedError: As :func:`open_choices`.
    """
    from ..frontend.onnx.api import declared_types  # a module that exists needs no importer

    if all(type_.is_static for type_ in declared_types(model, shapes).values()):
        return shapes
    made = open_choices(model, shapes, None)
    return made.at({choice.name: choice.example for choice in made.choices})


def _any_size(size: int | Dim) -> Size:
    return size if isinstance(size, int) else Sizes.at_least(1)


def _still_refused(
    model: ModelFile,
    shapes: ShapeChoices,
    refused: Container[str],
    params: Mapping[str, np.ndarray] | None,
) -> set[str]:
    """Return what cannot be any size either while the other sizes are likely ones."""
    found: set[str] = set()
    for choice in shapes.choices:
        others = {row.name: _LIKELY for row in shapes.choices if row.name in refused}
        try:
            _prove(model, shapes, choice, params, others)
        except IntarsiaError:
            found.add(choice.name)
    return found


def _example(sizes: Sequence[int | str], likely: Mapping[int | str, int]) -> str:
    """Return sizes as an option has them: those that may be any, and an example for the others."""
    return ",".join(
        str(likely.get(size, "1..") if isinstance(size, str) else size) for size in sizes
    )


def _prove(
    model: Model,
    shapes: ShapeChoices,
    choice: SizeChoice,
    params: Mapping[str, np.ndarray] | None,
    others: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Prove it for one size, with the others at their largest, or what they are said to be.

    Every compiled size is compared with the largest one, and with an odd one, so that what depends
    on the size itself is seen. Code for 1 runs no padded inputs, but it runs chunks. Where any
    size is to run, a large one is compared, too, if the machine's memory would hold its tensors.
    """
    if choice.sizes[-1] == choice.low and not choice.is_open:
        return
    values = {**{other.name: other.sizes[-1] for other in shapes.choices}, **others}
    largest = max(choice.sizes[-1], 2)
    sizes = (size for size in choice.sizes if size > 1 or choice.is_open)
    tried = sorted({*sizes, largest + 1} - {largest})
    at = shapes.at({**values, choice.name: largest})
    base = calculated(import_model(model, at, params, mapped=True))  # compared several times
    for size in (*tried, *((_FAR,) if choice.is_open else ())):
        at = shapes.at({**values, choice.name: size})
        try:
            other = import_model(model, at, params, mapped=True)
        except ResourceError:
            if size == _FAR:
                continue
            raise
        check_padding(other, base, (size, largest), choice.name)
        for one, two in zip(other.main.outputs, base.main.outputs, strict=True):
            output_place(one.type, two.type, (size, largest))
