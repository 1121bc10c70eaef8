# SPDX-License-Identifier: Apache-2.0
"""The program of a region: what ``region.json`` holds, written by codegen, read by the loader.

Values are numbered; every node computes one value from others. The library chooses their layouts on
the machine that runs; only of the stored weights it says in which they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, cast

from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import asdict, replace

from intarsia_runtime.plugin import (
    Index,
    Int64,
    Size,
    interpreting,
    print_unit_json,
    read_versioned_json,
    tensor_bytes,
)

from .names import BYTES, DTYPES
from .packed import PackedWeight

SCHEMA = 3
OPEN_SCHEMA = 4
"""Of programs with sizes that only the run knows."""

SCHEMAS = (SCHEMA, OPEN_SCHEMA)
FILE = "region.json"

MAX_NODES = 1 << 16
"""More nodes or values than any region has."""

Value: TypeAlias = Annotated[int, Meta(ge=0, lt=4 * MAX_NODES)]
"""Number of a value."""

Shape: TypeAlias = Annotated[tuple[Size, ...], Meta(max_length=12)]
"""oneDNN's tensors have at most 12 axes."""

AttrValue: TypeAlias = "Int64 | float | str | tuple[Int64, ...]"

OpenShape: TypeAlias = Annotated[tuple[Int64 | str, ...], Meta(max_length=12)]
"""Sizes or positions; texts are expressions over size variables."""


class RegionSizes(Struct, frozen=True):
    """Where a program has sizes that only the run knows.

    Attributes:
        variables: Size variables, in the order in which a call of the region has them.
        shapes: Of the values whose shapes have expressions.
        attrs: Attributes that have expressions, by the number of the node, by name.
    """

    variables: tuple[str, ...]
    shapes: Mapping[Value, OpenShape]
    attrs: Mapping[Index, Mapping[str, OpenShape]]


class PostOp(Struct, frozen=True):
    """Work that a primitive does on its result before it stores it.

    Attributes:
        kind: ``eltwise``, ``binary``, or ``sum`` (an add in the memory of its operand).
        algorithm: Name of the element-wise or binary function; empty for ``sum``.
        alpha: First parameter of an element-wise function.
        beta: Second parameter.
        value: Second operand of ``binary`` and ``sum``; -1 for ``eltwise``.
    """

    kind: str
    algorithm: str = ""
    alpha: float = 0.0
    beta: float = 0.0
    value: Annotated[int, Meta(ge=-1, lt=4 * MAX_NODES)] = -1


class PrimitiveNode(Struct, frozen=True):
    """One primitive, or a view (``reshape``, ``transpose``, ``slice``), moving no data if it can.

    Attributes:
        kind: Kind of primitive or view.
        args: Values it reads.
        result: Value it writes.
        attrs: Numbers, names and lists of integers.
        post: Work on the result, in order.
        label: Names of the model's operators in it, for messages.
    """

    kind: str
    args: tuple[Value, ...]
    result: Value
    attrs: Mapping[str, AttrValue] = field(default_factory=dict[str, AttrValue])
    post: tuple[PostOp, ...] = ()
    label: str = ""

    @property
    def reads(self) -> tuple[int, ...]:
        """Every value it reads, operands of post-ops included."""
        return (*self.args, *(op.value for op in self.post if op.value >= 0))

    def ints(self, key: str) -> tuple[int, ...]:
        """Return the attribute ``key``, a list such as strides."""
        return cast("tuple[int, ...]", self.attrs[key])

    def number(self, key: str) -> float:
        """Return the attribute ``key`` as floating point."""
        return float(cast("float", self.attrs[key]))

    def integer(self, key: str) -> int:
        """Return the attribute ``key``, an axis or a count."""
        return int(cast("int", self.attrs[key]))

    def text(self, key: str) -> str:
        """Return the attribute ``key``, the name of a function of the library."""
        return str(self.attrs[key])

    def reading(self, mapping: Mapping[int, int]) -> PrimitiveNode:
        """Return the node over other values."""
        args = tuple(mapping.get(arg, arg) for arg in self.args)
        post = tuple(replace(op, value=mapping.get(op.value, op.value)) for op in self.post)
        return replace(self, args=args, post=post)


class PrimitiveProgram(Struct, frozen=True):
    """A region.

    Attributes:
        shapes: Shape of every value, by number.
        dtypes: Element type of every value, by number: ``float32``, ``int8``, ``uint8``.
        inputs: Values given by the caller, in order.
        outputs: Values the caller gets, in order.
        constants: Value to name of the constant.
        nodes: In the order they run.
        fpmath_mode: ``strict``, or what a matrix product may compute in.
        threads: Number of threads; 0 takes the caller's.
        library: Path of the library; empty finds it.
        packed: Constants that are not stored row-major, by value.
        open: The sizes that only the run knows, for which the program itself has typical numbers;
            ``None`` if there are none.
    """

    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: Mapping[Value, str]
    nodes: Annotated[tuple[PrimitiveNode, ...], Meta(max_length=MAX_NODES)]
    fpmath_mode: str = "strict"
    threads: Annotated[int, Meta(ge=0, le=4096)] = 0
    library: str = ""
    packed: Mapping[Value, PackedWeight] = field(default_factory=dict[int, PackedWeight])
    open: RegionSizes | None = None


def multiplies_integers(nodes: Iterable[PrimitiveNode]) -> bool:
    """Whether there are products of 8-bit integers."""
    return any(node.kind in ("qconv", "qdeconv", "qmatmul") for node in nodes)


def print_program(program: PrimitiveProgram) -> bytes:
    """Return the program as JSON, the same bytes for the same program."""
    body = asdict(program)
    body["constants"] = {str(value): name for value, name in sorted(program.constants.items())}
    body["packed"] = {
        str(value): weight.to_json() for value, weight in sorted(program.packed.items())
    }
    body["nodes"] = [_node_to_json(node) for node in program.nodes]
    if program.open is None:
        del body["open"]
        return print_unit_json(body, schema=SCHEMA)
    body["open"] = to_builtins(program.open, str_keys=True)
    return print_unit_json(body, schema=OPEN_SCHEMA)


def parse_program(data: bytes) -> PrimitiveProgram:
    """Read a program that :func:`print_program` wrote, and check that it can be built.

    Raises:
        ArtifactError: It is damaged, or of another schema.
    """
    program = read_versioned_json(
        data, PrimitiveProgram, file=FILE, schema=SCHEMAS, writer="intarsia-dnnl"
    )
    with interpreting(FILE):
        _check(program)
    return program


def _check(program: PrimitiveProgram) -> None:
    """Check what types do not say: numbers of values, sizes of memory, the order of nodes.

    Raises:
        ValueError: A value is read before it is there, or described wrongly.
    """
    if len(program.shapes) != len(program.dtypes):
        raise ValueError(f"{len(program.shapes)} shapes and {len(program.dtypes)} element types")
    for shape, dtype in zip(program.shapes, program.dtypes, strict=True):
        tensor_bytes(shape, BYTES[DTYPES[dtype]])
    known: set[int] = set()
    for value in (*program.inputs, *program.constants):
        _define(program, known, value)
    for node in program.nodes:
        unknown = set(node.reads) - known
        if unknown:
            raise ValueError(f"{node.kind} reads value {min(unknown)} before it is computed")
        _define(program, known, node.result)
    if not known.issuperset(program.outputs):
        raise ValueError("an output is computed by no node")
    for value, weight in program.packed.items():
        weight.check()
        if value not in program.constants:
            raise ValueError(f"value {value} is packed and no constant")
        if weight.view.elements != prod(program.shapes[value]):
            raise ValueError(f"the packed value {value} has another size than its shape says")
    if program.open is not None:
        _check_open(program, program.open)


def _check_open(program: PrimitiveProgram, sizes: RegionSizes) -> None:
    """Check that shapes and attributes of open sizes belong to values and nodes.

    Raises:
        ValueError: One does not.
    """
    for value, shape in sizes.shapes.items():
        if value >= len(program.shapes) or len(shape) != len(program.shapes[value]):
            raise ValueError(f"value {value} has another rank, or is not there")
        if value in program.constants:
            raise ValueError(f"value {value} is a constant and has an open size")
    for number, attrs in sizes.attrs.items():
        if number >= len(program.nodes) or not attrs.keys() <= program.nodes[number].attrs.keys():
            raise ValueError(f"node {number} has no such attributes: {', '.join(sorted(attrs))}")


def _define(program: PrimitiveProgram, known: set[int], value: int) -> None:
    if value in known or value >= len(program.shapes):
        raise ValueError(f"value {value} is there twice, or has no shape")
    known.add(value)


def _node_to_json(node: PrimitiveNode) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": node.kind, "args": node.args, "result": node.result}
    if node.attrs:
        body["attrs"] = dict(node.attrs)
    if node.post:
        body["post"] = [
            {key: item for key, item in asdict(op).items() if item != _DEFAULTS.get(key)}
            for op in node.post
        ]
    if node.label:
        body["label"] = node.label
    return body


_DEFAULTS: Mapping[str, object] = MappingProxyType(
    {"algorithm": "", "alpha": 0.0, "beta": 0.0, "value": -1}
)
