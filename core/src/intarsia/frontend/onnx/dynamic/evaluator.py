# SPDX-License-Identifier: Apache-2.0
"""Carries out single nodes on the host, now that the values of their operands are known."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

import numpy as np

from ....artifact.plan import NARROW
from ....errors import IntarsiaError, ModelError, ResourceError, UnsupportedError
from ....ir.expr import Expr, Function, constant, make_tuple, tensor_type
from ....ops.evaluate import evaluate
from ..context import NodeContext
from ..converters import CONVERTERS
from ..fold import ConstantFolder
from ..graph import Bodies, Graph, Node
from ..importer import unwrapped
from ..kernels import KERNELS, Generators, KernelCall, Value

Scope: TypeAlias = "ChainMap[str, Value]"
"""Values by name, those of the innermost graph first."""


class Evaluator:
    """Carries out nodes: by their kernel, else by the operators their converter makes of them
    (with those operators' NumPy definitions), else by the body that ONNX gives for them.

    Args:
        bodies: Returns those bodies; called only when one is needed, because it needs ``onnx``.
    """

    def __init__(self, bodies: Callable[[], Bodies]) -> None:
        self._bodies = bodies
        self._generators: Generators = {}

    def run(self, nodes: Iterable[Node], scope: Scope, opset: int) -> None:
        """Carry out nodes in order; their results are added to the innermost scope.

        Raises:
            ModelError: A node cannot take these operands.
            UnsupportedError: A node asks for what there is not.
        """
        for node in nodes:
            results = self.node(node, scope, opset)
            for name, value in zip(node.outputs, results, strict=False):
                if name:
                    scope[name] = value

    def graph(
        self, scope: Scope, opset: int, graph: Graph, values: Mapping[str, Value]
    ) -> tuple[Value, ...]:
        """Carry out a graph inside a node of ``scope`` and return its results."""
        weights: Mapping[str, Value] = graph.initializers
        inner: Scope = ChainMap({**weights, **values}, *scope.maps)
        self.run(graph.nodes, inner, opset)
        return tuple(inner[info.name] for info in graph.outputs)

    def node(self, node: Node, scope: Scope, opset: int) -> tuple[Value, ...]:
        """Return the results of one node."""
        operands = [scope[name] if name else None for name in node.inputs]
        try:
            with np.errstate(all="ignore"):
                return self._node(node, operands, scope, opset)
        except IntarsiaError as error:
            if not error.where:
                error.where = str(node.span)
            raise
        except MemoryError:
            raise ResourceError("not enough memory", where=str(node.span)) from None
        except (ValueError, IndexError, TypeError, ArithmeticError, AttributeError) as error:
            raise ModelError(
                f"cannot take these operands: {error}", where=str(node.span)
            ) from error

    def _node(
        self, node: Node, operands: list[Value], scope: Scope, opset: int
    ) -> tuple[Value, ...]:
        kernel = KERNELS.get((node.domain, node.op_type))
        if kernel is not None:
            call = KernelCall(node, opset, partial(self.graph, scope, opset), self._generators)
            result = kernel(call, *operands)
            if result is not NotImplemented:
                return result if isinstance(result, tuple) else (result,)
        if not node.domain and node.op_type in CONVERTERS:
            return self._converted(node, operands, opset)
        return self._expanded(node, operands, opset)

    def _converted(self, node: Node, operands: list[Value], opset: int) -> tuple[Value, ...]:
        args = [None if value is None else _constant(node, value) for value in operands]
        used = {name for name in node.outputs if name}
        stored = [_stored(value) for value in operands]
        context = NodeContext(node, args, opset, ConstantFolder(), used, no_branch, stored)
        found: dict[str, np.dtype] = {}
        results = unwrapped(node, CONVERTERS[node.op_type](context), stored, found)
        arrays = evaluate(Function((), make_tuple(results)), {})
        return tuple(
            array.view(found[name]) if name in found else array
            for name, array in zip(node.outputs, arrays, strict=False)
        )

    def _expanded(self, node: Node, operands: list[Value], opset: int) -> tuple[Value, ...]:
        types = [
            None if value is None else tensor_type(_constant(node, value)) for value in operands
        ]
        body = self._bodies().expand(node, opset, types)
        if body is None:
            raise UnsupportedError(f"operator '{node.op_type}' is not supported")
        graph, version = body
        scope: Scope = ChainMap(dict(zip(node.inputs, operands, strict=True)))
        self.run(graph.nodes, scope, version)
        return tuple(scope[name] if name else None for name in node.outputs)


def _constant(node: Node, value: Value) -> Expr:
    if not isinstance(value, np.ndarray):
        raise UnsupportedError(f"operator '{node.op_type}' of a sequence is not supported")
    return constant(value.view(np.uint8) if value.dtype.name in NARROW else value)


def _stored(value: Value) -> np.dtype | None:
    """Return the element type of narrow numbers, which operators have as bytes."""
    if isinstance(value, np.ndarray) and value.dtype.name in NARROW:
        return value.dtype
    return None


def no_branch(graph: Graph, given: Mapping[str, Expr]) -> tuple[Expr, ...]:
    """Refuse to import a graph; what a node that must not have one is given to import it.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(f"graph '{graph.name}' inside a node that is no control flow")
