# SPDX-License-Identifier: Apache-2.0
"""Shapes of which a size has several values, and the programs they make.

``1|4|16`` is a list: a program for each. ``1..32`` is a range, and ``1..`` is every size from 1 on:
one program with a size variable, which guards keep in the range.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from intarsia_runtime.artifact.signature import ANY_SIZE, ModelSignature, SizeChoice, ValueSpec
from intarsia_runtime.errors import UsageError
from intarsia_runtime.size import minimum

from .graph.guards import Guard
from .graph.types import Dim, TensorType, variable

MAX_COMBINATIONS = 64
"""Programs that one artifact may hold; each is compiled."""

_RANGE = re.compile(r"(\d+)\.\.(\d*)(/\d+)?")
_INVENTED = re.compile(r"(unknown_|unk__)\d+")  # by our reader of ONNX, by a converter to ONNX
_LIST = re.compile(r"\d+(\|\d+)+")


class SizeValues(Struct, frozen=True):
    """Several values of one size of an input.

    Attributes:
        values: A list: the sizes to compile a program each for, ascending. Empty for a range.
        low: A range: the smallest size.
        high: A range: the largest size; ``None`` if there is none.
    """

    values: tuple[int, ...] = ()
    low: int = 0
    high: int | None = None

    @classmethod
    def of_range(cls, low: int, high: int) -> SizeValues:
        """Return every size from ``low`` to ``high``.

        Raises:
            UsageError: The range is empty, or begins at 0.
        """
        if not 0 < low <= high:
            raise UsageError(f"{low}..{high} is no range of sizes", hint="for example 1..32")
        return cls((), low, high)

    @classmethod
    def at_least(cls, low: int) -> SizeValues:
        """Return all sizes from ``low`` on.

        Raises:
            UsageError: ``low`` is 0.
        """
        if low < 1:
            raise UsageError(f"{low}.. is no range of sizes", hint="for example 1..")
        return cls((), low)

    def guards(self, name: str) -> Iterator[Guard]:
        """Return what must hold of a size variable for it to be in the range.

        A size that may be anything from 1 on is open, as one that nobody gives: it may be 0.
        """
        if self.low == 1 and self.high is None:
            return
        size, why = variable(name), f"the artifact was compiled for {name} {self}"
        if self.low == self.high:
            yield Guard(size, self.low, why)
            return
        yield Guard(minimum(self.low, size), self.low, why)
        if self.high is not None:
            yield Guard(minimum(self.high, size), size, why)

    def __str__(self) -> str:
        if self.values:
            return f"of {' or '.join(map(str, self.values))}"
        if self.high is None:
            return f"from {self.low} on"
        return f"from {self.low} to {self.high}"


Size: TypeAlias = int | SizeValues
"""One size of an input, or several."""


class Combination(Struct, frozen=True):
    """One value for each size of which there is a list.

    Attributes:
        sizes: The values, in the order of the choices.
        shapes: The shapes of the inputs with them; sizes of ranges are size variables.
    """

    sizes: tuple[int, ...]
    shapes: Mapping[str, tuple[int, ...]]


class ShapeChoices(Struct, frozen=True):
    """The shapes of a model's inputs with names where a size has several values.

    Attributes:
        choices: The sizes of which there is a list.
        ranges: The sizes of which there is a range, by name.
        shapes: Shape of every input that was given, with names of choices and ranges.
    """

    choices: tuple[SizeChoice, ...]
    ranges: Mapping[str, SizeValues]
    shapes: Mapping[str, tuple[int | str, ...]]

    def at(self, values: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes for one value of each choice; a size without one is a variable."""
        return {
            name: cast(
                "tuple[int, ...]",
                tuple(
                    size if isinstance(size, int) else values.get(size, variable(size))
                    for size in shape
                ),
            )
            for name, shape in self.shapes.items()
        }

    def guards(self) -> tuple[Guard, ...]:
        """Return what keeps sizes in their ranges."""
        return tuple(guard for name, one in self.ranges.items() for guard in one.guards(name))

    def combinations(self) -> list[Combination]:
        """Return every combination of values, the largest last.

        Raises:
            UsageError: There are more than :data:`MAX_COMBINATIONS`.
        """
        rows = list(product(*(choice.sizes for choice in self.choices)))
        if len(rows) > MAX_COMBINATIONS:
            raise UsageError(
                f"the sizes combine to {len(rows)} programs, at most {MAX_COMBINATIONS} are made",
                hint="give fewer sizes, or a range: 1..512",
            )
        names = [choice.name for choice in self.choices]
        return [Combination(row, self.at(dict(zip(names, row, strict=True)))) for row in rows]


def parse_size(text: str) -> Size | None:
    """Parse ``8``, ``1..32``, ``1..`` or ``1|4|16``; else return ``None``.

    Raises:
        UsageError: A range is empty, or has a step.
    """
    if text.isdecimal():
        return int(text)
    match = _RANGE.fullmatch(text)
    if match is not None and match[3]:
        plain = text.removesuffix(match[3])
        raise UsageError(
            f"'{text}': every size of a range runs as it is, so a range has no step",
            hint=f"{plain}, or a list of the sizes to compile a program each for: 8|16|32",
        )
    if match is not None and not match[2]:
        return SizeValues.at_least(int(match[1]))
    if match is not None:
        return SizeValues.of_range(int(match[1]), int(match[2]))
    if _LIST.fullmatch(text):
        return SizeValues(tuple(sorted({int(size) for size in text.split("|")})))
    return None


def largest(shapes: Mapping[str, Sequence[Size]]) -> dict[str, tuple[int, ...]]:
    """Return shapes with the largest value of every size, or the least if there is no largest."""
    return {
        name: tuple(size if isinstance(size, int) else _largest(size) for size in shape)
        for name, shape in shapes.items()
    }


def _largest(size: SizeValues) -> int:
    if size.values:
        return size.values[-1]
    return size.low if size.high is None else size.high


def name_sizes(
    shapes: Mapping[str, Sequence[Size]], declared: Mapping[str, TensorType]
) -> ShapeChoices:
    """Give every size with several values a name: that of the model if it has one.

    Sizes that have no name in the model, on the same axis of several inputs and with the same
    values, are taken as one, called ``input_axis`` of the first of these inputs. Beyond the first
    axis, the batch, this needs inputs of equal rank: axis 1 of audio ``(N, T)`` is not that of a
    state ``(2, N, C)``.

    Args:
        shapes: Shapes as the user gives them.
        declared: Types of the model's inputs; the same name in two inputs is the same size.

    Raises:
        UsageError: One name is given different values.
    """
    found: dict[str, Size] = {}
    named: dict[str, tuple[int | str, ...]] = {}
    unnamed: dict[tuple[int, int, Size], str] = {}
    taken = {
        n for t in declared.values() for d in t.shape if isinstance(d, Dim) for n in d.variables()
    }
    for input_, shape in shapes.items():
        sizes: list[int | str] = []
        type_ = declared.get(input_)
        for axis, size in enumerate(shape):
            dim = type_.shape[axis] if type_ is not None and axis < type_.rank else None
            rank = len(shape) if axis else 0
            own = unnamed.setdefault((axis, rank, size), _unused(f"{input_}_{axis}", taken))
            is_named = isinstance(dim, Dim) and not _INVENTED.fullmatch(dim.name)
            name = dim.name if isinstance(dim, Dim) and is_named else own
            if is_named and found.setdefault(name, size) != size:
                raise UsageError(f"size '{name}' is {found[name]} and {size} at once")
            if isinstance(size, SizeValues):
                found[name] = size
            sizes.append(name if isinstance(size, SizeValues) else size)
        named[input_] = tuple(sizes)
    several = {name: size for name, size in found.items() if isinstance(size, SizeValues)}
    choices = tuple(SizeChoice(name, size.values) for name, size in several.items() if size.values)
    return ShapeChoices(choices, {n: s for n, s in several.items() if not s.values}, named)


def _unused(name: str, taken: Collection[str]) -> str:
    """Return a name with so many underscores behind it that it is none of the model's."""
    while name in taken:
        name += "_"
    return name


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
