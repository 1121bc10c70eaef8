# SPDX-License-Identifier: Apache-2.0
"""What a converter sees of the node it converts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias, TypeGuard, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_ir.graph.guards import is_collecting
from intarsia_ir.graph.types import TensorType
from intarsia_ir.tir.tensor import extents
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ModelError, UnsupportedError
from intarsia_runtime.size import Dim, Size

from .builder import STATIC_HINT, Builder
from .flow import Branch, Flow
from .fold import ConstantFolder
from .graph import Attribute, Graph, Node
from .run_sizes import Hole, Partial
from .tensors import element_type

_Item = TypeVar("_Item", int, float, str)


class Narrow(Struct, frozen=True):
    """A result of a converter: bytes, and the element type that they store."""

    bytes: Expr
    dtype: np.dtype


class NeverSupported(UnsupportedError):
    """A node that no values of a run make possible: what is wrong is an attribute."""


class Diverging(UnsupportedError):
    """Branches give values of different ranks or types, so what follows differs, too.

    Attributes:
        condition: What chooses, one bool.
        branches: The results of both, and what each requires of sizes.
        is_repeated: Whether the node is applied to its own result then, which may diverge again.
    """

    def __init__(
        self,
        message: str,
        condition: Expr,
        branches: tuple[Branch, Branch],
        *,
        is_repeated: bool = False,
    ) -> None:
        super().__init__(message, hint=STATIC_HINT)
        self.condition = condition
        self.branches = branches
        self.is_repeated = is_repeated


Recompute: TypeAlias = "Callable[[str, Mapping[str, Expr]], Expr]"
"""Imports a value of a graph once more, for other values of some names."""


class NodeContext(Builder):
    """One node with its operands as expressions.

    Attributes:
        node: The node.
        args: Operands; ``None`` where an optional one is left out.
        opset: Version of the standard operator set.
        flow: Where control flow of the run puts its functions; ``None`` if it may not be.
    """

    __slots__ = ("_branch", "_recompute", "_stored", "_used", "args", "flow", "node", "opset")

    def __init__(
        self,
        node: Node,
        args: Sequence[Expr | None],
        opset: int,
        folder: ConstantFolder,
        used: AbstractSet[str],
        branch: Callable[[Graph, Mapping[str, Expr]], tuple[Expr, ...]],
        stored: Sequence[np.dtype | None] = (),
        recompute: Recompute | None = None,
        flow: Flow | None = None,
    ) -> None:
        super().__init__(node.span, folder)
        self.flow = flow
        self.node = node
        self.args = args
        self.opset = opset
        self._used = used
        self._branch = branch
        self._stored = stored
        self._recompute = recompute

    def as_standard(
        self, op_type: str, args: Sequence[Expr | None], **attrs: Attribute
    ) -> NodeContext:
        """Return the node as one of the standard operator set.

        Args:
            op_type: The operator.
            args: Its operands; ``None`` for one left out.
            attrs: Attributes that it has besides those of the node.
        """
        given = {**self.node.attrs, **attrs}
        return self.replaced(replace(self.node, op_type=op_type, domain="", attrs=given), args)

    def replaced(self, node: Node, args: Sequence[Expr | None]) -> NodeContext:
        """Return another node with its operands in the place of this one."""
        return NodeContext(
            node,
            args,
            self.opset,
            self.folder,
            self._used,
            self._branch,
            (),
            self._recompute,
            self.flow,
        )

    @property
    def op_type(self) -> str:
        """ONNX name of the operator."""
        return self.node.op_type

    def model_error(self, message: str) -> ModelError:
        """Make an error about a node that breaks ONNX's rules."""
        return ModelError(message, where=str(self.span))

    def unsupported(self, message: str, hint: str = "") -> UnsupportedError:
        """Make an error about a node that is valid but cannot be imported."""
        return UnsupportedError(message, where=str(self.span), hint=hint)

    def never_supported(self, message: str, hint: str = "") -> NeverSupported:
        """Make an error about a node that cannot be carried out on the host either."""
        return NeverSupported(message, where=str(self.span), hint=hint)

    def input(self, index: int) -> Expr:
        """Return a required operand."""
        found = self.optional(index)
        if found is None:
            raise self.model_error(f"needs input {index}")
        return found

    def optional(self, index: int) -> Expr | None:
        """Return an operand, or ``None`` if it is left out."""
        return self.args[index] if index < len(self.args) else None

    def stored(self, index: int) -> np.dtype | None:
        """Return the element type that the bytes of an operand store; ``None`` for plain ones."""
        return self._stored[index] if index < len(self._stored) else None

    def variadic(self) -> list[Expr]:
        """Return all operands, none of which may be left out."""
        return [self.input(index) for index in range(len(self.args))]

    def wants(self, index: int) -> bool:
        """Whether anything uses output ``index``."""
        outputs = self.node.outputs
        return index < len(outputs) and outputs[index] in self._used

    def only_first_output(self) -> None:
        """Refuse a node of which an optional output is used."""
        for index in range(1, len(self.node.outputs)):
            if self.wants(index):
                raise self.unsupported(f"output {index} ('{self.node.outputs[index]}') is used")

    def type_of(self, index: int) -> TensorType:
        """Return the type of a required operand."""
        return tensor_type(self.input(index))

    def static_shape(self, index: int) -> tuple[int, ...]:
        """Return the sizes of a required operand.

        They are numbers, or where a model is built with open sizes, what does the same arithmetic
        and refuses to be compared.
        """
        type_ = self.type_of(index)
        if not type_.is_static and not is_collecting():
            raise self.unsupported(f"the shape {type_} is not known at compile time", STATIC_HINT)
        return extents(type_.shape)

    def ranked_shape(self, index: int, *ranks: int) -> tuple[int, ...]:
        """Return the sizes of a required operand, of which there must be one of ``ranks``."""
        shape = self.static_shape(index)
        if len(shape) not in ranks:
            wanted = " or ".join(map(str, ranks))
            found = self.type_of(index)
            raise self.model_error(f"input {index} must have {wanted} dimensions, got {found}")
        return shape

    def constant_value(self, index: int) -> np.ndarray | None:
        """Return the value of an operand that is known at compile time, else ``None``."""
        found = self.optional(index)
        return None if found is None else self.folder.number(found)

    def is_fixed(self, index: int) -> bool:
        """Whether an operand is left out, or its value is known at compile time."""
        return self.optional(index) is None or self.constant_value(index) is not None

    def required_value(self, index: int, what: str) -> np.ndarray:
        """Return the value of an operand that must be known at compile time.

        Args:
            index: Operand.
            what: Its role, for the message.
        """
        value = self.folder.number(self.input(index))
        if value is None:
            raise self.unsupported(f"{what} is not known at compile time", STATIC_HINT)
        return value

    def required_ints(self, index: int, what: str) -> tuple[int, ...]:
        """Return the elements of an integer operand that must be known at compile time."""
        value = self.required_value(index, what)
        if value.dtype.kind not in "iu" or value.ndim > 1:
            raise self.model_error(f"{what} must be a vector of integers")
        return tuple(int(item) for item in value.reshape(-1))

    def required_sizes(self, index: int, what: str) -> tuple[Size, ...]:
        """Return the elements of an integer operand, which may be sizes that only the run knows.

        What the model computes becomes a size variable where a model is built with open sizes.
        """
        return tuple(
            self.size_of(item.expr, item.index) if isinstance(item, Hole) else item
            for item in self.partial_sizes(index, what)
        )

    def partial_sizes(self, index: int, what: str) -> tuple[Partial, ...]:
        """Return the elements of an integer operand; those that the model computes as holes.

        Raises:
            UnsupportedError: Some are not known, and the model is not built with open sizes.
        """
        expr = self.input(index)
        found = self.folder.sizes(expr)
        if found is None and is_collecting():
            found = self.folder.partial_sizes(expr)
        if found is None or found.ndim > 1:
            return self.required_ints(index, what)
        return tuple(
            item if isinstance(item, Dim | Hole) else int(item) for item in found.reshape(-1)
        )

    def required_scalar(self, index: int, what: str) -> int | float | bool:
        """Return the only element of an operand that must be known at compile time."""
        value = self.required_value(index, what)
        if value.size != 1:
            raise self.model_error(f"{what} must be one number, got shape {value.shape}")
        return (
            value.reshape(()).astype(np.float64).item() if value.dtype.kind == "V" else value.item()
        )

    def required_integer(self, index: int, what: str) -> int:
        """Return the only element of an operand as an integer; a float must be a whole number."""
        value = self.required_scalar(index, what)
        if not math.isfinite(value) or value != int(value):
            raise self.model_error(f"{what} must be a whole number, got {value}")
        return int(value)

    def has(self, name: str) -> bool:
        """Whether the attribute is set."""
        return name in self.node.attrs

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer attribute."""
        value = self.node.attrs.get(name, default)
        if isinstance(value, int):
            return value
        raise self._bad_attribute(name, "an integer")

    def element_type(self, name: str) -> DType:
        """Return an attribute that is the number of an element type."""
        return element_type(self.integer(name), str(self.span))

    def number(self, name: str, default: float | None = None) -> float:
        """Return a float attribute."""
        value = self.node.attrs.get(name, default)
        if isinstance(value, float):
            return value
        raise self._bad_attribute(name, "a float")

    def string(self, name: str, default: str | None = None) -> str:
        """Return a string attribute."""
        value = self.node.attrs.get(name, default)
        if isinstance(value, str):
            return value
        raise self._bad_attribute(name, "a string")

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return a list-of-integers attribute."""
        value = self.node.attrs.get(name, default)
        if _is_all(value, int):
            return value
        raise self._bad_attribute(name, "a list of integers")

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return a list-of-floats attribute; empty if not set."""
        value = self.node.attrs.get(name, ())
        if _is_all(value, float):
            return value
        raise self._bad_attribute(name, "a list of floats")

    def strings(self, name: str) -> tuple[str, ...]:
        """Return a list-of-strings attribute; empty if not set."""
        value = self.node.attrs.get(name, ())
        if _is_all(value, str):
            return value
        raise self._bad_attribute(name, "a list of strings")

    def tensor(self, name: str) -> np.ndarray:
        """Return a tensor attribute."""
        value = self.node.attrs.get(name)
        if isinstance(value, np.ndarray):
            return value
        raise self._bad_attribute(name, "a tensor")

    def graph(self, name: str) -> Graph:
        """Return a graph attribute.

        Raises:
            ModelError: It is missing.
        """
        value = self.node.attrs.get(name)
        if isinstance(value, Graph):
            return value
        raise self._bad_attribute(name, "a graph")

    def branch(self, name: str) -> tuple[Expr, ...]:
        """Import the graph in an attribute and return its results."""
        return self._branch(self.graph(name), {})

    def body(self, name: str, values: Sequence[Expr]) -> tuple[Expr, ...]:
        """Import the graph in an attribute for values of its inputs and return its results.

        Raises:
            ModelError: The graph has another number of inputs.
            UnsupportedError: Its results have a rank that only the run knows.
        """
        graph = self.graph(name)
        if len(values) != len(graph.inputs):
            raise self.model_error(
                f"'{name}' takes {len(graph.inputs)} values, {len(values)} are given"
            )
        names = (info.name for info in graph.inputs)
        try:
            return self._branch(graph, dict(zip(names, values, strict=True)))
        except Diverging as fork:
            raise self.unsupported(f"'{name}': {fork.message}", fork.hint) from None

    def recomputed(self, name: str, values: Mapping[str, Expr]) -> Expr:
        """Import a value of the graph around once more, for other values of some names.

        Raises:
            UnsupportedError: The node is carried out on the host, where no graph is around it.
        """
        if self._recompute is None:
            raise self.unsupported(f"{self.op_type} cannot run on the host", STATIC_HINT)
        return self._recompute(name, values)

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """Return an axis attribute, counted from the front."""
        return self.normal_axis(self.integer(name, default), rank)

    def normal_axis(self, axis: int, rank: int) -> int:
        """Count an axis from the front; it may be negative but must exist."""
        if not -rank <= axis < rank:
            raise self.model_error(f"axis {axis} is out of range for rank {rank}")
        return axis + rank if axis < 0 else axis

    def normal_axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Count axes from the front, sorted; none may be named twice."""
        result = tuple(sorted(self.normal_axis(axis, rank) for axis in axes))
        if len(set(result)) != len(result):
            raise self.model_error(f"an axis is named twice in {tuple(axes)}")
        return result

    def _bad_attribute(self, name: str, wanted: str) -> ModelError:
        if not self.has(name):
            return self.model_error(f"attribute '{name}' is missing")
        return self.model_error(f"attribute '{name}' is not {wanted}")


Converted: TypeAlias = "Expr | Narrow | tuple[Expr | Narrow, ...]"
Converter: TypeAlias = Callable[[NodeContext], Converted]


def _is_all(value: Attribute | None, kind: type[_Item]) -> TypeGuard[tuple[_Item, ...]]:
    """Whether an attribute is a list of elements of one type; lists may have millions of them."""
    return isinstance(value, tuple) and all(issubclass(own, kind) for own in set(map(type, value)))
