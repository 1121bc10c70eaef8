# SPDX-License-Identifier: Apache-2.0
"""A region as a TOSA graph, and the JSON that the artifact carries.

Tensors have names; a tensor with a constant's name is constant. Attributes are those of the TOSA
1.0 specification, in its own spelling.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

from msgspec import Struct, field
from msgspec.structs import asdict

from intarsia_runtime.plugin import (
    Dims,
    Int64,
    interpreting,
    print_unit_json,
    read_versioned_json,
    tensor_bytes,
)

FILE = "program.json"
"""Member of the unit that holds the program."""

SCHEMA = 1
"""Version of the program's format."""

Attr: TypeAlias = "Int64 | bool | str | tuple[Int64, ...]"


class TosaTensor(Struct, frozen=True, array_like=True):
    """A tensor: static shape, and TOSA's name of the element type (``INT8``, ``INT32``)."""

    shape: Dims
    dtype: str


class TosaNode(Struct, frozen=True):
    """One TOSA operator.

    Attributes:
        op: Name in the specification: ``CONV2D``.
        inputs: Tensors, in the specification's order.
        output: The tensor it gives.
        attrs: Attributes by name; sizes that TOSA takes as shapes are attributes here.
        label: What messages call it.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    attrs: Mapping[str, Attr] = field(default_factory=lambda: MappingProxyType({}))
    label: str = ""

    def ints(self, key: str) -> tuple[int, ...]:
        """Return an attribute that is a list of whole numbers."""
        return cast("tuple[int, ...]", self.attrs[key])

    def integer(self, key: str) -> int:
        """Return an attribute that is one whole number."""
        return cast("int", self.attrs[key])


class TosaBorder(Struct, frozen=True):
    """How a tensor of the model becomes a tensor of the graph.

    Attributes:
        name: The tensor of the graph.
        axes: Order of the model's axes in the graph; empty where it is the same.
        unsigned: The model's elements are uint8; the graph has them less 128, as int8.
    """

    name: str
    axes: Dims = ()
    unsigned: bool = False


class TosaProgram(Struct, frozen=True):
    """A region.

    Attributes:
        tensors: Every tensor by name.
        constants: Names of the constants in the unit, by tensor.
        nodes: In the order they run.
        inputs: What the caller gives, in order.
        outputs: What the caller gets, in order.
    """

    tensors: Mapping[str, TosaTensor]
    constants: Mapping[str, str]
    nodes: tuple[TosaNode, ...]
    inputs: tuple[TosaBorder, ...]
    outputs: tuple[TosaBorder, ...]


def print_program(program: TosaProgram) -> bytes:
    """Return the program as JSON, the same bytes for the same program."""
    body: dict[str, object] = {
        "tensors": {name: [list(t.shape), t.dtype] for name, t in program.tensors.items()},
        "constants": dict(program.constants),
        "nodes": [
            {
                "op": node.op,
                "inputs": node.inputs,
                "output": node.output,
                "attrs": dict(node.attrs),
                "label": node.label,
            }
            for node in program.nodes
        ],
        "inputs": [asdict(border) for border in program.inputs],
        "outputs": [asdict(border) for border in program.outputs],
    }
    return print_unit_json(body, schema=SCHEMA)


def parse_program(data: bytes) -> TosaProgram:
    """Read a program that :func:`print_program` wrote.

    Raises:
        ArtifactError: It is damaged, or of another schema.
    """
    program = read_versioned_json(
        data, TosaProgram, file=FILE, schema=SCHEMA, writer="intarsia-ethos-u"
    )
    with interpreting(FILE):
        _check(program)
    return program


def _check(program: TosaProgram) -> None:
    """Check that every tensor is described, and there before it is read.

    Raises:
        ValueError: One is not, or is larger than any tensor.
    """
    for tensor in program.tensors.values():
        tensor_bytes(tensor.shape, 8)
    for border in (*program.inputs, *program.outputs):
        rank = len(program.tensors[border.name].shape)
        if border.axes and sorted(border.axes) != list(range(rank)):
            raise ValueError(f"{border.axes} is no order of {rank} axes")
    known = {*program.constants, *(border.name for border in program.inputs)}
    for node in program.nodes:
        unknown = set(node.inputs) - known
        if unknown or node.output not in program.tensors:
            raise ValueError(f"{node.op} reads {min(unknown or {node.output})}, which is not there")
        known.add(node.output)
    if not known.issuperset(border.name for border in program.outputs):
        raise ValueError("an output is computed by no node")
