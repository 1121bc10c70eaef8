# SPDX-License-Identifier: Apache-2.0
"""Walk a graph of ATen operators and convert each; operators in place become plain ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from intarsia_ir.budget import budget
from intarsia_ir.diagnostics import NO_SPAN, Span
from intarsia_ir.graph.expr import Expr, constant, tensor_type
from intarsia_ir.graph.types import TensorType
from intarsia_onnx.builder import Builder
from intarsia_onnx.fold import ConstantFolder
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import IntarsiaError, UnsupportedError
from intarsia_runtime.size import Dim, Size

from ..kinds import calls_one_of, is_node, is_number, is_operator, is_tensor
from .context import AtenContext, Operand
from .fractions import fraction
from .in_place import Writes, is_in_place, schema_of
from .sizes import Symbols, dtype_named
from .table import converter_of

if TYPE_CHECKING:
    import numpy as np

    from ..types import AtenOperator, FxNode, GraphModule, SymInt, TorchTensor

_IGNORED = ("_set_grad_enabled", "_enter_autocast", "_exit_autocast", "_assert_async")
"""Functions that do nothing to tensors: casts of autocast are operators of the graph already."""
_CHECKS = ("_assert_async", "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range")
"""Operators that check what guards have checked."""

Array: TypeAlias = "Callable[[TorchTensor], np.ndarray]"
"""Gives a tensor's memory as an array."""


class UnknownOperatorsError(UnsupportedError):
    """A graph has operators that no converter knows.

    Attributes:
        operators: They.
    """

    def __init__(self, operators: Sequence[AtenOperator]) -> None:
        names = ", ".join(sorted({str(item) for item in operators}))
        super().__init__(f"no converter knows {names}")
        self.operators = tuple(operators)


class AtenImporter:
    """Imports one graph.

    Args:
        graph_module: The graph, with what torch knows of each value in ``meta["val"]``.
        symbols: The symbols of its sizes.
        array_of: Gives the memory of the graph's own tensors.
    """

    def __init__(self, graph_module: GraphModule, symbols: Symbols, array_of: Array) -> None:
        self._module = graph_module
        self._symbols = symbols
        self._array_of = array_of
        self._folder = ConstantFolder()
        self._values: dict[FxNode, Operand] = {}
        self._writes = Writes(tuple(graph_module.graph.nodes))

    def run(self, inputs: Sequence[Operand]) -> list[Operand]:
        """Return the results of the graph.

        Args:
            inputs: Value of each placeholder.

        Raises:
            UnknownOperatorsError: No converter knows an operator.
            UnsupportedError: An operator is used in a way that cannot be imported.
        """
        nodes = tuple(self._module.graph.nodes)
        unknown = unknown_among(nodes)
        if unknown:
            raise UnknownOperatorsError(unknown)
        given = iter(inputs)
        for node in nodes:
            budget().check(Span(node.name, str(node.target)))
            match node.op:
                case "placeholder":
                    self._values[node] = next(given)
                case "get_attr":
                    self._values[node] = self._attribute(node)
                case "call_function":
                    self._values[node] = self._call(node)
                case _:
                    found = self._resolved(node.args[0])
                    return cast("list[Operand]", found)
        raise UnsupportedError("the graph has no results")

    def _attribute(self, node: FxNode) -> Operand:
        value = operator.attrgetter(str(node.target))(self._module)
        if not is_tensor(value):
            raise UnsupportedError(f"the graph has a graph inside, '{node.target}'")
        return constant(self._array_of(value).copy(), name=node.name)

    def _call(self, node: FxNode) -> Operand:
        target, value = node.target, node.meta.get("val")
        if not is_operator(target):
            return self._python_call(node)
        name, overload = name_of(target)
        if is_number(value):
            return self._number(value)
        if name in _CHECKS:
            return None
        made = self._converted(node, name, overload, value)
        if is_in_place(target):
            assert isinstance(made, Expr)  # writes give the tensor written to
            self._values.update(dict.fromkeys(self._writes.renamed(node), made))
        return made

    def _python_call(self, node: FxNode) -> Operand:
        """Carry out a function of Python: an item of several results, arithmetic of sizes."""
        value = node.meta.get("val")
        if is_number(value):
            return self._number(value)
        ignored = calls_one_of(node.target, _IGNORED)
        if node.target is operator.getitem:
            results, index = cast("tuple[tuple[Operand, ...], int]", self._resolved(node.args))
            if index >= len(results):
                if not node.users:
                    return None
                raise UnsupportedError(f"result {index} of '{node.args[0]}' is used")
            return results[index]
        if ignored or value is None:
            if any(self._is_used(user) for user in node.users):
                raise UnsupportedError(f"the graph calls '{node.target}'")
            return None
        raise UnsupportedError(f"the graph calls '{node.target}'")

    def _is_used(self, node: FxNode) -> bool:
        return not calls_one_of(node.target, _IGNORED)

    def _converted(self, node: FxNode, name: str, overload: str, value: object) -> Operand:
        converter = converter_of(name, overload)
        assert converter is not None  # asked at the beginning
        span = Span(node.name, f"aten.{name}")
        is_list = isinstance(value, list | tuple)
        several = cast("Sequence[TorchTensor | None]", value if is_list else [value])
        types = [None if item is None else self._symbols.type(item) for item in several]
        args = self._arguments(node)
        context = AtenContext(name, overload, args, types, span, self._folder, self._symbols)
        try:
            made = converter(context)
        except IntarsiaError as error:
            error.where = error.where or str(span)
            raise
        for item, type_ in zip(made if isinstance(made, tuple) else (made,), types, strict=False):
            self._check(context, item, type_)
        return made

    def _check(self, context: AtenContext, made: Expr, wanted: TensorType | None) -> None:
        """Refuse what has become another type than torch has found."""
        found = tensor_type(made)
        if wanted is None:
            return
        same = found.dtype is wanted.dtype and found.rank == wanted.rank
        if not same or not all(map(self._is_same, found.shape, wanted.shape)):
            context.unsupported(f"PyTorch's result is {wanted}, the converted one {found}")

    def _is_same(self, one: Size, other: Size) -> bool:
        if one == other:
            return True
        values = self._symbols.example(one), self._symbols.example(other)
        return isinstance(one, Dim) | isinstance(other, Dim) and values[0] == values[1]

    def _arguments(self, node: FxNode) -> dict[str, Operand]:
        schema = schema_of(node.target)
        found: dict[str, Operand] = {}
        for position, argument in enumerate(schema.arguments):
            if position < len(node.args):
                found[argument.name] = self._resolved(node.args[position])
            elif argument.name in node.kwargs:
                found[argument.name] = self._resolved(node.kwargs[argument.name])
            else:
                found[argument.name] = _plain(argument.default_value)
        return found

    def _number(self, value: object) -> Operand:
        if isinstance(value, int | float):
            return value
        number = cast("SymInt", value)
        if type(value).__name__ == "SymInt":
            return self._symbols.size(number)
        if type(value).__name__ != "SymFloat":
            return None  # a condition, which a guard has decided
        return fraction(Builder(NO_SPAN, self._folder), number.node.expr, self._symbols)

    def _resolved(self, value: object) -> Operand:
        if is_node(value):
            return self._values[value]
        if isinstance(value, list | tuple):
            return [self._resolved(item) for item in cast("list[object]", value)]
        return _plain(value)


def unknown_among(nodes: Sequence[FxNode]) -> list[AtenOperator]:
    """Return the operators that no converter knows."""
    unknown: list[AtenOperator] = []
    for node in nodes:
        if node.op != "call_function" or not is_operator(node.target):
            continue
        target = node.target
        name, overload = name_of(target)
        if converter_of(name, overload) is None and not _is_plain(node, name):
            unknown.append(target)
    return unknown


def _plain(value: object) -> Operand:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[object]", value)]
    return dtype_named(value) if str(value) in _DTYPES else str(value)


_DTYPES = frozenset(f"torch.{dtype.value}" for dtype in DType)


def name_of(target: AtenOperator) -> tuple[str, str]:
    """Return the name of an operator without namespace, and of its overload; writes are none."""
    schema = schema_of(target)
    namespace, _, name = schema.name.partition("::")
    name = name if namespace == "aten" else f"{namespace}::{name}"
    if is_in_place(target):
        name = name[:-1]
    return name, schema.overload_name


def _is_plain(node: FxNode, name: str) -> bool:
    """Whether an operator needs no converter: it gives a number, or checks something."""
    return name in _CHECKS or is_number(node.meta.get("val"))


__all__ = ["AtenImporter", "UnknownOperatorsError", "unknown_among"]
