# SPDX-License-Identifier: Apache-2.0
"""Sizes of which any value runs: proved for those that are asked for, and tried where nobody asks.

A model is imported for some values of a size, and :mod:`.padding` compares the graphs: where the
positions along the size have nothing to do with each other, inputs may be padded, and cut.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from intarsia_ir.graph.types import Dim
from intarsia_ir.passes.prove_size import prove_size
from intarsia_ir.size_values import ShapeChoices, Size, SizeValues, name_sizes
from intarsia_runtime.artifact.signature import SizeChoice
from intarsia_runtime.errors import IntarsiaError, UnsupportedError

from .dynamic import import_any
from .importing import ModelFile
from .source import ModuleSource

_LIKELY = 128
"""A size that most models can have, where one has to be named."""

_EXAMPLES = (_LIKELY, 224, 512, 576, 1024, 4096, 16000)
"""Sizes to try for an example: of sequences, images, and seconds or parts of seconds of sound."""


def prove_ranges(source: ModuleSource, shapes: ShapeChoices) -> None:
    """Prove for every range that what runs padded, or in chunks, has the results it should.

    Args:
        source: The model, not imported.
        shapes: Shapes with names of sizes.

    Raises:
        UnsupportedError: Results may depend on the padding, or on other chunks.
    """
    for choice in shapes.choices:
        if choice.low:
            _prove(source, shapes, choice)


def open_choices(source: ModuleSource, shapes: Mapping[str, Sequence[int]] | None) -> ShapeChoices:
    """Return the shapes of a model's inputs where sizes that nobody gave may be any; proved.

    Args:
        source: An ONNX model.
        shapes: The shapes that are given.

    Raises:
        UnsupportedError: Results depend on one of these sizes as a whole; the hint has shapes to
            give instead.
    """
    given = frozenset(shapes or ())
    declared = source.declared(shapes)
    wanted = {
        name: tuple(map(_any_size, type_.shape))
        for name, type_ in declared.items()
        if name in given or not type_.is_static
    }
    made = name_sizes(wanted, declared)
    reasons: dict[str, IntarsiaError] = {}
    for choice in made.choices:
        try:
            _prove(source, made, choice)
        except IntarsiaError as error:
            reasons[choice.name] = error
    if not reasons:
        return made
    first = next(name for name, type_ in declared.items() if not type_.is_static)
    reason = next(iter(reasons.values()))
    refused = _still_refused(source, made, reasons)
    likely = _likely_sizes(source, made, refused)
    if likely is None:
        hint = "give its sizes with --shape; or --executor vm, for any size but slower"
    else:
        options = " ".join(
            f"--shape {name}:{_example(sizes, likely)}" for name, sizes in made.shapes.items()
        )
        hint = f"for example {options}; or --executor vm, for any size but slower"
    raise UnsupportedError(
        f"the size of input '{first}' is not known: {declared[first]}, and cannot be any: "
        f"{reason.message}",
        hint=hint,
        where=reason.where,
    )


def _likely_sizes(
    source: ModuleSource, shapes: ShapeChoices, refused: Container[str]
) -> dict[int | str, int] | None:
    """Return sizes for those that are refused with which the model is compiled, found by trying.

    The first open size of an input is a batch as a rule, so it is tried as 1. ``None`` if nothing
    that is tried fits.
    """
    names = [choice.name for choice in shapes.choices if choice.name in refused]
    batches: set[int | str] = {sizes[0] for sizes in shapes.shapes.values() if sizes}
    last = {sizes[-1] for sizes in shapes.shapes.values() if sizes}
    for sizes in shapes.shapes.values():
        first = next((size for size in sizes if isinstance(size, str)), "")
        batches |= {first} - last
    for ones in (batches, set[int | str]()):
        for size in _EXAMPLES:
            likely = {name: 1 if name in ones else size for name in names}
            others = {choice.name: 1 for choice in shapes.choices if choice.name not in likely}
            with suppress(IntarsiaError):
                import_any(source, None, None, shapes.at({**others, **likely}))
                return {**likely}
    return None


def example_shapes(
    model: ModelFile, shapes: Mapping[str, tuple[int, ...]]
) -> Mapping[str, tuple[int, ...]]:
    """Return shapes for a model, with the least size wherever neither it nor ``shapes`` has one.

    Raises:
        UnsupportedError: As :func:`open_choices`.
    """
    source = ModuleSource(model, mapped=True)
    if all(type_.is_static for type_ in source.declared(shapes).values()):
        return shapes
    made = open_choices(source, shapes)
    return made.at({choice.name: choice.example for choice in made.choices})


def _any_size(size: int | Dim) -> Size:
    return size if isinstance(size, int) else SizeValues.at_least(1)


def _still_refused(source: ModuleSource, shapes: ShapeChoices, refused: Container[str]) -> set[str]:
    """Return what cannot be any size either while the other sizes are likely ones."""
    found: set[str] = set()
    for choice in shapes.choices:
        others = {row.name: _LIKELY for row in shapes.choices if row.name in refused}
        try:
            _prove(source, shapes, choice, others)
        except IntarsiaError:
            found.add(choice.name)
    return found


def _example(sizes: Sequence[int | str], likely: Mapping[int | str, int]) -> str:
    """Return sizes as an option has them: those that may be any, and an example for the others."""
    return ",".join(
        str(likely.get(size, "1..") if isinstance(size, str) else size) for size in sizes
    )


def _prove(
    source: ModuleSource,
    shapes: ShapeChoices,
    choice: SizeChoice,
    others: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Prove it for one size of a model."""
    bound = source.largest_bound() if choice.is_open else 0
    prove_size(
        shapes, choice, lambda at, keep: source.module(at, keep=keep), bound=bound, others=others
    )
