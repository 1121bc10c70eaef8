# SPDX-License-Identifier: Apache-2.0
"""Shapes of which a size has several values, and the shapes they make.

``1..32`` is a range, ``1|4|16`` a list, and ``1..`` is every size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.types import Dim, TensorType, variable
from intarsia_runtime.artifact.signature import ANY_SIZE, ModelSignature, SizeChoice, ValueSpec
from intarsia_runtime.errors import UsageError

MAX_COMBINATIONS = 64
"""Programs that one artifact may hold; each is compiled."""

CHUNK = 8
"""How many positions of an open size run at once, as far as there are so many."""

_RANGE = re.compile(r"(\d+)\.\.(\d*)(?:/(\d+))?")
_INVENTED = re.compile(r"(unknown_|unk__)\d+")  # by our reader of ONNX, by a converter to ONNX
_LIST = re.compile(r"\d+(\|\d+)+")


class SizeValues(Struct, frozen=True):
    """Several values of one size of an input.

    Attributes:
        values: The sizes to compile for, ascending.
        low: Smallest size that runs, padded to the next of ``values``; 0 if only those run.
        is_open: Every size from ``low`` on runs, in chunks of ``values``, and nothing is padded.
    """

    values: tuple[int, ...]
    low: int = 0
    is_open: bool = False

    @classmethod
    def of_range(cls, low: int, high: int, step: int = 0) -> SizeValues:
        """Every size from ``low`` to ``high``, compiled for some of them.

        Args:
            low: Smallest size.
            high: Largest size.
            step: Compiled are its multiples; 0 means powers of two. ``high`` always is.

        Raises:
            UsageError: The range is empty, or begins at 0.
        """
        if not 0 < low <= high:
            raise UsageError(f"{low}..{high} is no range of sizes", hint="for example 1..32")
        powers = (1 << exponent for exponent in range(high.bit_length()))
        inner = range(step, high, step) if step else powers
        return cls(tuple(sorted({size for size in inner if low <= size < high} | {high})), low)

    @classmethod
    def at_least(cls, low: int, chunk: int = CHUNK) -> SizeValues:
        """Return all sizes from ``low`` on: in chunks of ``chunk``, and the rest one by one.

        Raises:
            UsageError: ``low`` or ``chunk`` is 0.
        """
        if low < 1 or chunk < 1:
            raise UsageError(f"{low}../{chunk} is no range of sizes", hint="for example 1../8")
        return cls(tuple(sorted({1, chunk})), low, is_open=True)


Size: TypeAlias = int | SizeValues
"""One size of an input, or several."""


class Combination(Struct, frozen=True):
    """One value for each size that has several.

    Attributes:
        sizes: The values, in the order of the choices.
        shapes: The shapes of the inputs with them.
    """

    sizes: tuple[int, ...]
    shapes: Mapping[str, tuple[int, ...]]


class ShapeChoices(Struct, frozen=True):
    """The shapes of a model's inputs with names where a size has several values.

    Attributes:
        choices: The sizes with several values.
        shapes: Shape of every input that was given, with names of choices.
    """

    choices: tuple[SizeChoice, ...]
    shapes: Mapping[str, tuple[int | str, ...]]

    def at(self, values: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes for one value of each choice."""
        return {
            name: tuple(size if isinstance(size, int) else values[size] for size in shape)
            for name, shape in self.shapes.items()
        }

    def opened(self) -> dict[str, tuple[int, ...]] | None:
        """Return the shapes with a size variable for each choice, if each is open from 1 on.

        A chunk that the user names is none: that asks for programs of such sizes.
        """
        every_size = SizeValues.at_least(1)
        found = [SizeValues(one.sizes, one.low, one.is_open) for one in self.choices]
        if any(values != every_size for values in found):
            return None
        return {
            name: cast(
                "tuple[int, ...]",
                tuple(size if isinstance(size, int) else variable(size) for size in shape),
            )
            for name, shape in self.shapes.items()
        }

    def combinations(self) -> list[Combination]:
        """Return every combination of values, the largest last.

        Raises:
            UsageError: There are more than :data:`MAX_COMBINATIONS`.
        """
        rows = list(product(*(choice.sizes for choice in self.choices)))
        if len(rows) > MAX_COMBINATIONS:
            raise UsageError(
                f"the sizes combine to {len(rows)} programs, at most {MAX_COMBINATIONS} are made",
                hint="give fewer sizes, or a wider step: 1..512/128",
            )
        names = [choice.name for choice in self.choices]
        return [Combination(row, self.at(dict(zip(names, row, strict=True)))) for row in rows]


def parse_size(text: str) -> Size | None:
    """Parse ``8``, ``1..32``, ``64..512/64``, ``1|4|16`` or ``1..``; else return ``None``.

    Raises:
        UsageError: A range is empty.
    """
    if text.isdecimal():
        return int(text)
    found = _RANGE.fullmatch(text)
    if found is not None and not found[2]:
        return SizeValues.at_least(int(found[1]), int(found[3] or CHUNK))
    if found is not None:
        return SizeValues.of_range(int(found[1]), int(found[2]), int(found[3] or 0))
    if _LIST.fullmatch(text):
        return SizeValues(tuple(sorted({int(size) for size in text.split("|")})))
    return None


def largest(shapes: Mapping[str, Sequence[Size]]) -> dict[str, tuple[int, ...]]:
    """Return shapes with the largest value of every size that has several."""
    return {
        name: tuple(size.values[-1] if isinstance(size, SizeValues) else size for size in shape)
        for name, shape in shapes.items()
    }


def name_sizes(
    shapes: Mapping[str, Sequence[Size]], declared: Mapping[str, TensorType]
) -> ShapeChoices:
    """Give every size with several values a name: that of the model if it has one.

    Sizes that have no name in the model, on the same axis of several inputs and with the same
    values, are taken as one: that of the first of these inputs. Beyond the first axis, the batch,
    this needs inputs of equal rank: axis 1 of audio ``(N, T)`` is not that of a state
    ``(2, N, C)``.

    Args:
        shapes: Shapes as the user gives them.
        declared: Types of the model's inputs; the same name in two inputs is the same size.

    Raises:
        UsageError: One name is given different values.
    """
    found: dict[str, Size] = {}
    named: dict[str, tuple[int | str, ...]] = {}
    unnamed: dict[tuple[int, int, Size], str] = {}
    for input_, shape in shapes.items():
        sizes: list[int | str] = []
        type_ = declared.get(input_)
        for axis, size in enumerate(shape):
            dim = type_.shape[axis] if type_ is not None and axis < type_.rank else None
            rank = len(shape) if axis else 0
            own = unnamed.setdefault((axis, rank, size), f"{input_}.{axis}")
            is_named = isinstance(dim, Dim) and not _INVENTED.fullmatch(dim.name)
            name = dim.name if isinstance(dim, Dim) and is_named else own
            if is_named and found.setdefault(name, size) != size:
                raise UsageError(f"size '{name}' is {_text(found[name])} and {_text(size)} at once")
            if isinstance(size, SizeValues):
                found[name] = size
            sizes.append(name if isinstance(size, SizeValues) else size)
        named[input_] = tuple(sizes)
    choices = tuple(
        SizeChoice(name, size.values, size.low, size.is_open)
        for name, size in found.items()
        if isinstance(size, SizeValues)
    )
    return ShapeChoices(choices, named)


def _text(size: Size) -> str:
    return str(size) if isinstance(size, int) else "|".join(map(str, size.values))


def joint_signature(
    shapes: ShapeChoices, found: Sequence[ModelSignature], combinations: Sequence[Combination]
) -> ModelSignature:
    """Return the signature with names of sizes, found by comparing those of the programs."""
    names = [choice.name for choice in shapes.choices]
    rows = [dict(zip(names, row.sizes, strict=True)) for row in combinations]
    inputs = tuple(
        replace(spec, shape=shapes.shapes[spec.name])
        if spec.name in shapes.shapes
        else _joined([other.inputs[at] for other in found], rows)
        for at, spec in enumerate(found[-1].inputs)
    )
    outputs = tuple(
        _joined([other.outputs[at] for other in found], rows)
        for at in range(len(found[-1].outputs))
    )
    return ModelSignature(inputs, outputs)


def _joined(specs: Sequence[ValueSpec], rows: Sequence[Mapping[str, int]]) -> ValueSpec:
    """Return one value of all programs: sizes that are the same stay, others get their name."""
    shapes = [spec.shape for spec in specs]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) > 1:
        return replace(specs[-1], shape=None)
    return replace(
        specs[-1], shape=tuple(_size(column, rows) for column in zip(*known, strict=True))
    )


def _size(column: Sequence[int | str], rows: Sequence[Mapping[str, int]]) -> int | str:
    if len(set(column)) == 1:
        return column[0]
    for name in rows[0]:
        if all(size == row[name] for size, row in zip(column, rows, strict=True)):
            return name
    return ANY_SIZE
