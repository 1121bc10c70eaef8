# SPDX-License-Identifier: Apache-2.0
"""What a converter sees of the ATen operator that it converts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast

import numpy as np

from intarsia_ir.diagnostics import Span
from intarsia_ir.graph.expr import Constant, Expr, tensor_type
from intarsia_ir.ops import generate
from intarsia_ir.tir.tensor import extents
from intarsia_onnx.builder import Builder, dtype_of, rank_of, sizes_of
from intarsia_onnx.context import NodeContext
from intarsia_onnx.converters import CONVERTERS as ONNX
from intarsia_onnx.fold import ConstantFolder
from intarsia_onnx.graph import Attribute, Graph, Node
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Dim, Size

from .sizes import Symbols

if TYPE_CHECKING:
    from intarsia_ir.graph.types import TensorType

OPSET = 22
"""Version of ONNX's standard operator set whose converters are called."""

Operand: TypeAlias = "Expr | Size | float | str | DType | list[Operand] | tuple[Expr, ...] | None"
"""An argument of an operator: tensors are expressions, ``SymInt`` are sizes."""

Result: TypeAlias = "Expr | tuple[Expr, ...]"


class AtenContext(Builder):
    """One operator of a graph with its arguments.

    Attributes:
        name: Name of the operator without namespace and overload, e.g. ``add``.
        overload: Name of the overload, e.g. ``Tensor``.
        args: Arguments by the name that the operator's schema gives them, defaults put in.
        types: What torch knows of each result: shape and element type.
        symbols: Example values of symbols.
    """

    __slots__ = ("args", "name", "overload", "symbols", "types")

    def __init__(
        self,
        name: str,
        overload: str,
        args: Mapping[str, Operand],
        types: Sequence[TensorType | None],
        span: Span,
        folder: ConstantFolder,
        symbols: Symbols,
    ) -> None:
        super().__init__(span, folder)
        self.name = name
        self.overload = overload
        self.args = args
        self.types = types
        self.symbols = symbols

    def unsupported(self, message: str) -> NoReturn:
        """Refuse the operator.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(f"{self.name}: {message}", where=str(self.span))

    @property
    def result(self) -> TensorType:
        """The type of the first result."""
        first = self.types[0]
        assert first is not None  # an operator without it has no converter
        return first

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the first result, open ones included."""
        return extents(self.result.shape)

    @property
    def dtype(self) -> DType:
        """The element type of the first result."""
        return self.result.dtype

    def tensor(self, name: str) -> Expr:
        """Return an argument that is a tensor."""
        found = self.optional(name)
        if found is None:
            self.unsupported(f"there is no '{name}'")
        return found

    def optional(self, name: str) -> Expr | None:
        """Return an argument that is a tensor, or ``None`` if it is left out."""
        found = self.args.get(name)
        return found if isinstance(found, Expr) else None

    def tensors(self, name: str) -> list[Expr]:
        """Return an argument that is a list of tensors."""
        items = cast("Sequence[object]", self.args[name])
        return [item for item in items if isinstance(item, Expr)]

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an argument that is a number known when the graph is compiled."""
        found = self.args.get(name)
        if found is None and default is not None:
            return default
        if not isinstance(found, int):
            self.unsupported(f"'{name}' is {found}, not a known integer")
        return int(found)

    def size(self, name: str) -> Size:
        """Return an argument that is an integer, which may be open."""
        found = self.args.get(name)
        return found if isinstance(found, Dim) else self.integer(name)

    def number(self, name: str, default: float | None = None) -> float:
        """Return an argument that is a number known when the graph is compiled."""
        found = self.args.get(name)
        if found is None and default is not None:
            return default
        if not isinstance(found, int | float):
            self.unsupported(f"'{name}' is {found}, not a known number")
        return found

    def flag(self, name: str) -> bool:
        """Return an argument that is true or false; false if it is left out."""
        return bool(self.args.get(name))

    def integers(self, name: str) -> tuple[int, ...]:
        """Return an argument that is a list of known integers; empty if it is left out."""
        found = self.args.get(name)
        if found is None:
            return ()
        items = found if isinstance(found, list) else [found]
        whole = tuple(item for item in items if isinstance(item, int))
        if len(whole) != len(items):
            self.unsupported(f"'{name}' is {found}, not a list of known integers")
        return whole

    def spread(self, name: str, count: int, default: int) -> tuple[int, ...]:
        """Return an argument that gives each of ``count`` dimensions a number, or one for all."""
        found = self.integers(name) or (default,)
        return found * count if len(found) == 1 else found

    def axis(self, name: str, rank: int) -> int:
        """Return an axis, counted from the front."""
        return _from_front(self.integer(name), rank)

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """Return axes, counted from the front; all of them if none are given."""
        found = self.integers(name)
        if not found:
            return tuple(range(rank))
        return tuple(sorted(_from_front(axis, rank) for axis in found))

    def value(self, name: str, dtype: DType) -> Expr:
        """Return an argument that is a tensor or a number as a tensor of an element type."""
        return self.as_tensor(self.args.get(name), dtype)

    def as_tensor(self, found: Operand, dtype: DType) -> Expr:
        """Return a tensor or a number as a tensor of an element type."""
        if isinstance(found, Expr):
            return self.cast(found, dtype)
        if isinstance(found, Dim):
            return self.cast(self.reshape(self.size_values([found]), ()), dtype)
        if not isinstance(found, int | float):
            self.unsupported(f"the operand {found} is no tensor and no number")
        return self.scalar(found, dtype)

    def size_values(self, sizes: Sequence[Size]) -> Expr:
        """Return sizes as a tensor of integers."""
        numbers = [size for size in sizes if not isinstance(size, Dim)]
        if len(numbers) == len(sizes):
            return self.array(np.array(numbers, np.int64))
        return self.call(generate.Sizes, attrs=generate.Sizes.Attrs(sizes=extents(sizes)))

    def onnx(self, op_type: str, *args: Expr | None, **attrs: Attribute) -> Expr:
        """Apply an operator of ONNX that has one result."""
        (found,) = self.onnx_results(1, op_type, *args, **attrs)
        return found

    def onnx_results(
        self, count: int, op_type: str, *args: Expr | None, **attrs: Attribute
    ) -> tuple[Expr, ...]:
        """Apply an operator of ONNX by its converter; all of its ``count`` results are wanted."""
        names = tuple(map(str, range(count)))
        node = Node(op_type, "", (), names, attrs, self.span)
        context = NodeContext(node, args, OPSET, self.folder, frozenset(names), _no_graphs)
        found = ONNX[op_type](context)
        results = found if isinstance(found, tuple) else (found,)
        return tuple(item for item in results if isinstance(item, Expr))[:count]

    def data(self, x: Expr) -> np.ndarray | None:
        """Return what a tensor holds, if that is known."""
        return x.data if isinstance(x, Constant) else self.folder.value(x)


def _no_graphs(_graph: Graph, _values: Mapping[str, Expr]) -> NoReturn:
    raise UnsupportedError("operators of PyTorch have no graphs inside")


def _from_front(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


Converter: TypeAlias = Callable[[AtenContext], Result]

__all__ = [
    "AtenContext",
    "Converter",
    "Operand",
    "Result",
    "dtype_of",
    "rank_of",
    "sizes_of",
    "tensor_type",
]
