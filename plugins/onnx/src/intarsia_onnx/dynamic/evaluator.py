# SPDX-License-Identifier: Apache-2.0
"""Carries out single nodes on the host, now that the values of their operands are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, partial
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from intarsia_ir.budget import budget
from intarsia_ir.graph.expr import Expr, Function, Var, constant, make_tuple
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.artifact.plan import NARROW
from intarsia_runtime.dtype import parse_dtype
from intarsia_runtime.errors import IntarsiaError, ModelError, ResourceError, UnsupportedError
from intarsia_runtime.loading import PieceCall

from ..context import NodeContext
from ..converters import TENSOR_CONVERTERS
from ..fold import ConstantFolder
from ..graph import Bodies, Graph, Node
from ..kernels import KERNELS, OWN_DOMAIN, Generators, NumpyCall, Tables, Value
from ..kernels.strings import MOVES, Numbered
from ..names import GRADIENT, converter_name, free_names
from ..narrow import unwrapped
from .program import PIECE
from .recipes import NotingFolder, Recipe, Recipes, TooLargeError, Writer

Scope: TypeAlias = "MutableMapping[str, Value]"
"""Values by name."""

_BROKEN = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError)
"""What NumPy and Python raise for operands that do not fit."""

MOST_BODIES = 256
"""Most graphs, and most bodies of operators for types of operands, that are remembered."""


class Evaluator:
    """Carries out nodes: by their kernel, else by the operators their converter makes of them
    (with those operators' NumPy definitions), else by the body that ONNX gives for them.

    What a converter or ONNX made of a node is remembered for its next run.

    Args:
        bodies: Returns those bodies; called only when one is needed, because it needs ``onnx``.
        fixed: Identities of arrays that live and never change as long as this does.
        pieces: Compiled pieces by name, which nodes of our own domain call.
    """

    def __init__(
        self,
        bodies: Callable[[], Bodies],
        fixed: AbstractSet[int] = frozenset(),
        pieces: Mapping[str, PieceCall] = MappingProxyType({}),
    ) -> None:
        self._bodies = bodies
        self._pieces = pieces
        self._generators: Generators = {}
        self._tables: Tables = {}
        self._recipes = Recipes(fixed)
        self._expansions: dict[tuple[object, ...], tuple[Node, Graph, int]] = {}
        self._free: dict[int, tuple[Graph, list[str]]] = {}

    def run(self, nodes: Iterable[Node], scope: Scope, opset: int) -> None:
        """Carry out nodes in order; their results are added to the scope.

        Raises:
            ModelError: A node cannot take these operands.
            UnsupportedError: A node asks for what there is not.
        """
        with np.errstate(all="ignore"):
            for node in nodes:
                self.step(node, scope, opset)

    def step(self, node: Node, scope: Scope, opset: int) -> None:
        """Carry out one node as :meth:`run` does, where the caller ignores NumPy's warnings."""
        budget().check(node.span)
        results = self._checked(node, scope, opset)
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                scope[name] = value

    def graph(
        self, scope: Scope, opset: int, graph: Graph, values: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        """Carry out a graph inside a node of ``scope`` and return its results."""
        known = self._free.get(id(graph))
        if known is None or known[0] is not graph:
            if len(self._free) >= MOST_BODIES:
                self._free = {}
            known = self._free[id(graph)] = (graph, free_names(graph))
        inner: Scope = {name: scope[name] for name in known[1]}
        inner.update(graph.initializers)
        inner.update(values)
        self.run(graph.nodes, inner, opset)
        return tuple([inner[info.name] for info in graph.outputs])

    def node(self, node: Node, scope: Scope, opset: int) -> tuple[Value, ...]:
        """Return the results of one node; errors as for :meth:`run`."""
        with np.errstate(all="ignore"):
            return self._checked(node, scope, opset)

    def _checked(self, node: Node, scope: Scope, opset: int) -> tuple[Value, ...]:
        operands = [scope[name] if name else None for name in node.inputs]
        if node.op_type == PIECE and node.domain == OWN_DOMAIN:
            return tuple(self._pieces[str(node.attrs["name"])](operands))
        try:
            return self._node(node, operands, scope, opset)
        except IntarsiaError as error:
            if not error.where:
                error.where = str(node.span)
            raise
        except MemoryError:
            raise ResourceError("not enough memory", where=str(node.span)) from None
        except _BROKEN as error:
            raise ModelError(
                f"cannot take these operands: {error}", where=str(node.span)
            ) from error

    def _node(
        self, node: Node, operands: list[Value], scope: Scope, opset: int
    ) -> tuple[Value, ...]:
        kernel = KERNELS.get((node.domain, node.op_type))
        if kernel is not None:
            run_graph = partial(self.graph, scope, opset)
            call = NumpyCall(node, opset, run_graph, self._generators, self._tables)
            result = kernel(call, *operands)
            if result is not NotImplemented:
                return result if isinstance(result, tuple) else (result,)
        arrays = [None if value is None else _tensor(node, value) for value in operands]
        if runs_by_converter(node):
            if moves_strings(node) and any(x is not None and x.dtype.hasobject for x in arrays):
                return self._moved(node, arrays, opset)
            return self._converted(node, arrays, opset)
        return self._expanded(node, arrays, opset)

    def _moved(
        self, node: Node, operands: Sequence[np.ndarray | None], opset: int
    ) -> tuple[Value, ...]:
        """Carry out an operator that moves strings, on their numbers in a list."""
        numbered = Numbered(operands)
        found = self._converted(node, numbered.operands, opset)
        if node.op_type in ("Shape", "Size"):
            return found
        return tuple(numbered.texts(np.asarray(numbers)) for numbers in found)

    def _converted(
        self, node: Node, operands: Sequence[np.ndarray | None], opset: int
    ) -> tuple[Value, ...]:
        recipe = self._recipes.find(node, operands)
        if recipe is not None:
            return tuple(recipe.run([None if x is None else _plain(x) for x in operands]))
        again = self._recipes.is_profitable(node, operands)
        recipe = self._written(node, operands, opset) if again else None
        if recipe is not None:
            return tuple(recipe.run([None if x is None else _plain(x) for x in operands]))
        results = self._directly(node, operands, opset)
        if again:
            self._recipes.give_up(node)
        return results

    def _directly(
        self, node: Node, operands: Sequence[np.ndarray | None], opset: int
    ) -> tuple[Value, ...]:
        """Convert the node over its operands as constants, and evaluate what comes out."""
        args = [None if value is None else constant(_plain(value)) for value in operands]
        results, stored = _convert(node, args, operands, ConstantFolder(), opset)
        arrays = evaluate(Function((), make_tuple(results)), {})
        return tuple(
            array if dtype is None else array.view(dtype)
            for array, dtype in zip(arrays, stored, strict=True)
        )

    def _written(
        self, node: Node, operands: Sequence[np.ndarray | None], opset: int
    ) -> Recipe | None:
        """Convert the node over variables; ``None`` if that cannot be or would be no use."""
        args = [None if x is None else Var(f"x{n}", _type(x)) for n, x in enumerate(operands)]
        values: dict[Var, np.ndarray] = {}
        for arg, x in zip(args, operands, strict=True):
            found = None if x is None else self._recipes.readable(x)
            if arg is not None and found is not None:
                values[arg] = _plain(found)
        folder = NotingFolder(values)
        if all(x is None or self._recipes.is_fixed(x) for x in operands):
            folder.read.update(values)  # then the results are known, too
        try:
            results, stored = _convert(node, args, operands, folder, opset)
            known = {var: values[var] for var in folder.read}
            recipe = Writer(args, known).write(results, stored)
        except (IntarsiaError, TooLargeError, *_BROKEN):
            return None
        if recipe is not None:
            read = tuple(n for n, arg in enumerate(args) if arg in folder.read)
            self._recipes.keep(node, operands, read, recipe)
        return recipe

    def _expanded(
        self, node: Node, operands: Sequence[np.ndarray | None], opset: int
    ) -> tuple[Value, ...]:
        types = [None if x is None else (x.dtype, x.shape) for x in operands]
        key = (id(node), *types)
        known = self._expansions.get(key)
        if known is None or known[0] is not node:
            found = self._bodies().expand(
                node, opset, [None if x is None else _type(x) for x in operands]
            )
            if found is None:
                raise UnsupportedError(f"operator '{node.op_type}' is not supported")
            if len(self._expansions) >= MOST_BODIES:
                self._expansions = {}
            known = self._expansions[key] = (node, *found)
        _, graph, version = known
        scope: Scope = dict(zip(node.inputs, operands, strict=True))
        self.run(graph.nodes, scope, version)
        return tuple(scope[name] if name else None for name in node.outputs)


def moves_strings(node: Node) -> bool:
    """Whether the operator of a node moves elements, whatever they are."""
    return not node.domain and node.op_type in MOVES


def runs_by_converter(node: Node) -> bool:
    """Whether a node can be carried out by the operators that its converter makes."""
    name = converter_name(node)
    return name in TENSOR_CONVERTERS and name != GRADIENT


def _convert(
    node: Node,
    args: Sequence[Expr | None],
    operands: Sequence[np.ndarray | None],
    folder: ConstantFolder,
    opset: int,
) -> tuple[tuple[Expr, ...], list[np.dtype | None]]:
    """Return what the converter makes, and the element types that results of bytes store."""
    used = {name for name in node.outputs if name}
    given = [None if x is None or not is_narrow(x.dtype) else x.dtype for x in operands]
    context = NodeContext(node, args, opset, folder, used, no_branch, given)
    found: dict[str, np.dtype] = {}
    results = unwrapped(node, TENSOR_CONVERTERS[converter_name(node)](context), given, found)
    results = results[: len(node.outputs)]
    for value in results:
        if isinstance(value.type, TensorType) and value.type.is_static:
            budget().reserve(value.type.bytes, node.span)
    return results, [found.get(name) for name in node.outputs[: len(results)]]


def _tensor(node: Node, value: Value) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    raise UnsupportedError(f"operator '{node.op_type}' of a sequence is not supported")


@cache
def is_narrow(dtype: np.dtype) -> bool:
    """Whether elements are narrow numbers, which operators have as bytes."""
    return dtype.name in NARROW


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array as operators have it: narrow numbers as bytes."""
    return array.view(np.uint8) if is_narrow(array.dtype) else array


def _type(array: np.ndarray) -> TensorType:
    """Return the type of an operand as operators have it."""
    return TensorType(array.shape, parse_dtype(_plain(array).dtype.name))


def no_branch(graph: Graph, given: Mapping[str, Expr]) -> tuple[Expr, ...]:
    """Refuse to import a graph; what a node that must not have one is given to import it.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(f"graph '{graph.name}' inside a node that is no control flow")
