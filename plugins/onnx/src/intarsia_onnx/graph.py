# SPDX-License-Identifier: Apache-2.0
"""An ONNX graph as plain values, without protobuf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import numpy as np

    from intarsia_ir.diagnostics import Span
    from intarsia_ir.graph.types import TensorType
    from intarsia_runtime.dtype import DType
    from intarsia_runtime.errors import UnsupportedError


class UnsupportedAttribute(Struct, frozen=True):
    """An attribute of a kind that no converter reads: a type, a sparse tensor, several graphs.

    Attributes:
        kind: What it is, for the message.
    """

    kind: str


class ValueInfo(Struct, frozen=True):
    """A named graph input or output.

    Attributes:
        name: Name in the model.
        type: Its tensor type; ``None`` when an output or a branch's result is declared without one,
            and for a value that no compiled function takes.
        kind: What such a value is, e.g. ``seq(tensor(float))``; empty if ``type`` says it.
        stored: NumPy's name of the element type, if ``type`` says bytes in its place.
        element: Element type of the tensors in a sequence or an optional, if it has an array here.
        sizes: Their sizes, ``None`` for one that may differ; ``None`` if their rank may differ.
    """

    name: str
    type: TensorType | None
    kind: str = ""
    stored: str = ""
    element: DType | None = None
    sizes: tuple[int | None, ...] | None = None


class Node(Struct, frozen=True):
    """One operator application.

    Attributes:
        op_type: Operator name, e.g. ``Conv``.
        domain: Operator set; empty for the standard one.
        inputs: Value names; an empty name is an optional input left out.
        outputs: Value names; an empty name is an output nobody wants.
        attrs: Attribute values by name.
        span: Node name (or first output) and operator, for messages.
    """

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attribute]
    span: Span


class Graph(Struct, frozen=True):
    """Nodes in execution order with their inputs, weights and results."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    initializers: Mapping[str, np.ndarray]
    nodes: tuple[Node, ...]


Attribute: TypeAlias = (
    "int | float | str | np.ndarray | tuple[int | float | str, ...] | Graph | UnsupportedAttribute"
)


ATTRIBUTE_TYPES = MappingProxyType(
    {
        "INT": "an integer",
        "FLOAT": "a float",
        "STRING": "a string",
        "INTS": "a list of integers",
        "FLOATS": "a list of floats",
        "STRINGS": "a list of strings",
        "TENSOR": "a tensor",
        "GRAPH": "a graph",
    }
)
"""Types of attributes that are read, by ONNX's names, in words."""


def has_type(value: Attribute, wanted: str) -> bool:
    """Whether an attribute has the type that ONNX calls ``wanted``; types not read are not told."""
    match wanted:
        case "INT":
            return isinstance(value, int)
        case "FLOAT":
            return isinstance(value, float)
        case "STRING":
            return isinstance(value, str)
        case "INTS" | "FLOATS" | "STRINGS":
            item = {"INTS": int, "FLOATS": float, "STRINGS": str}[wanted]
            return isinstance(value, tuple) and {type(x) for x in value} <= {item}
        case "TENSOR" | "GRAPH":
            return not isinstance(value, int | float | str | tuple)
        case _:
            return True


class Bodies(Protocol):
    """What ONNX itself knows of operators: bodies of other operators, and types."""

    def infer_types(self, inputs: Mapping[str, TensorType]) -> Mapping[str, TensorType]:
        """Return the types of values of the model as far as ONNX infers them, by name."""
        ...

    def knows(self, node: Node, opset: int) -> bool:
        """Whether the operator of ``node`` is defined so, for some types of its inputs."""
        ...

    def expand(
        self, node: Node, opset: int, types: Sequence[TensorType | None]
    ) -> tuple[Graph, int] | None:
        """Return the body of ``node`` and the opset it is written in; ``None`` if it has none."""
        ...


class Model(Struct, frozen=True):
    """A validated model.

    Attributes:
        graph: The entry graph.
        opset: Version of the standard operator set.
        source: File name, for messages; ``<model>`` if it came from memory.
        bodies: What ONNX itself defines by other operators.
        refused: Of a model that may have any values: why it is none that can be compiled whole,
            because the first one of them is no tensor of a known rank and element type.
    """

    graph: Graph
    opset: int
    source: str
    bodies: Bodies
    refused: UnsupportedError | None = None
