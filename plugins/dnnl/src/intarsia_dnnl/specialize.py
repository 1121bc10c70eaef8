# SPDX-License-Identifier: Apache-2.0
"""Programs of open sizes: from expressions to numbers, once for each combination of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from intarsia_runtime.plugin import (
    Dim,
    UnsupportedError,
    parse_size,
    tensor_bytes,
    value_of,
)

from .names import BYTES, DTYPES
from .of_none import is_defined_over_none
from .program import AttrValue, OpenShape, PrimitiveNode, PrimitiveProgram, RegionSizes

_REDUCED_TO_EMPTY = "oneDNN does not reduce an axis without elements"


def open_program(
    program: PrimitiveProgram, variables: Sequence[str], typical: Mapping[str, int]
) -> PrimitiveProgram:
    """Return a program as a file has it: with typical numbers, and its expressions apart.

    Args:
        program: Whose shapes and attributes have expressions where only the run knows a number.
        variables: Size variables, in the order in which a call of the region has them.
        typical: What they are taken for.
    """
    shapes = {value: _texts(shape) for value, shape in enumerate(program.shapes) if _is_open(shape)}
    attrs: dict[int, dict[str, OpenShape]] = {}
    for number, node in enumerate(program.nodes):
        for key, attr in node.attrs.items():
            if isinstance(attr, tuple) and _is_open(attr):
                attrs.setdefault(number, {})[key] = _texts(attr)
    sizes = RegionSizes(tuple(variables), shapes, attrs)
    return Specializer(replace(program, open=sizes)).at([typical[name] for name in variables])


class Specializer:
    """Makes a program of numbers for each combination of sizes.

    Args:
        program: A program of open sizes.

    Raises:
        ArtifactError: A size is no expression.
        ValueError: A size has a variable that the program does not name.
    """

    def __init__(self, program: PrimitiveProgram) -> None:
        sizes = program.open
        assert sizes is not None  # the caller asks
        self.variables = sizes.variables
        self._program = program
        self._shapes = {value: _sizes(shape) for value, shape in sizes.shapes.items()}
        self._attrs = {
            number: {key: _sizes(attr) for key, attr in attrs.items()}
            for number, attrs in sizes.attrs.items()
        }
        used = [
            *self._shapes.values(),
            *(a for attrs in self._attrs.values() for a in attrs.values()),
        ]
        names = {n for row in used for s in row if isinstance(s, Dim) for n in s.variables()}
        if not names <= set(self.variables):
            raise ValueError(f"nothing says what size {min(names - set(self.variables))} is")

    def shape(self, value: int) -> tuple[int | Dim, ...]:
        """Return the shape of a value, with expressions."""
        return self._shapes.get(value, self._program.shapes[value])

    def at(self, numbers: Sequence[int]) -> PrimitiveProgram:
        """Return the program for values of the variables.

        Raises:
            ValueError: A size would be negative, or larger than any tensor is.
        """
        program = self._program
        values = dict(zip(self.variables, numbers, strict=True))
        shapes = list(program.shapes)
        for value, shape in self._shapes.items():
            shapes[value] = tuple([value_of(size, values) for size in shape])
            if min(shapes[value], default=0) < 0:
                raise ValueError(f"a size of {list(shapes[value])} is negative")
            tensor_bytes(shapes[value], BYTES[DTYPES[program.dtypes[value]]])
        nodes = list(program.nodes)
        for number, attrs in self._attrs.items():
            closed: dict[str, AttrValue] = {
                key: tuple([value_of(size, values) for size in attr]) for key, attr in attrs.items()
            }
            nodes[number] = replace(nodes[number], attrs={**nodes[number].attrs, **closed})
        return replace(program, shapes=tuple(shapes), nodes=tuple(nodes))


def without_empty(program: PrimitiveProgram) -> PrimitiveProgram:
    """Return a program in which only products and reductions read tensors without elements.

    What only such primitives read is not computed: of a softmax over no elements, its maxima.

    Raises:
        UnsupportedError: A node would make elements of none.
    """
    shapes = program.shapes
    empty = {value for value, shape in enumerate(shapes) if 0 in shape}
    nodes = [_of_one_element(program, node) for node in program.nodes]
    if not empty:
        return replace(program, nodes=tuple(nodes))
    kept: list[PrimitiveNode] = []
    needed = set(program.outputs)
    for node in reversed(nodes):
        if node.result in empty or node.result not in needed:
            continue
        if node.kind == "concat":
            node = replace(node, args=tuple([a for a in node.args if a not in empty]))
        if not empty.isdisjoint(node.reads) and not is_defined_over_none(node):
            raise UnsupportedError(_REDUCED_TO_EMPTY, where=node.label)
        kept.append(node)
        needed.update(node.reads)
    return replace(program, nodes=tuple(reversed(kept)))


def _of_one_element(program: PrimitiveProgram, node: PrimitiveNode) -> PrimitiveNode:
    """Return a reduction as a copy where the axes have one element each: there is no primitive."""
    if node.kind != "reduction" or program.shapes[node.args[0]] != program.shapes[node.result]:
        return node
    attrs: Mapping[str, AttrValue] = {"algorithm": "linear", "alpha": 1.0, "beta": 0.0}
    return replace(node, kind="eltwise", attrs=attrs)


def _is_open(sizes: Sequence[object]) -> bool:
    return any(isinstance(size, Dim) for size in sizes)


def _texts(sizes: Sequence[int | Dim]) -> OpenShape:
    return tuple([size if isinstance(size, int) else str(size) for size in sizes])


def _sizes(texts: OpenShape) -> tuple[int | Dim, ...]:
    return tuple([parse_size(size) if isinstance(size, str) else size for size in texts])
