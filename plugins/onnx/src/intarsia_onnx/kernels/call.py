# SPDX-License-Identifier: Apache-2.0
"""What a kernel on the host sees of the node it carries out: attributes, outputs, inner graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias, TypeVar, cast

import numpy as np

from intarsia_ir.budget import budget
from intarsia_ir.graph.expr import Expr
from intarsia_runtime.errors import ModelError

from ..context import NodeContext
from ..fold import ConstantFolder
from ..graph import Graph, Node

Value: TypeAlias = "np.ndarray | list[Value] | dict[int, float] | dict[str, float] | None"
"""A tensor (object elements are strings), a sequence, or an optional that holds nothing."""

Result: TypeAlias = "Value | tuple[Value, ...]"
"""What a node gives: one value, or a tuple with one for each output."""

Kernel: TypeAlias = "Callable[..., Result]"
"""``kernel(call, *operands) -> Result``; ``NotImplemented`` leaves the node to its converter."""


OWN_DOMAIN = "intarsia"
"""Domain of nodes that no model has: what a program does with results of compiled pieces."""

Scalar: TypeAlias = "int | float | str | bool"
"""An element of a tensor as a Python value."""


Generators: TypeAlias = "dict[tuple[str, ...], np.random.RandomState]"
"""Random generators by the names of the outputs of their node."""

Tables: TypeAlias = "dict[int, tuple[Node, object]]"
"""What nodes keep from run to run, by their identity, with the node."""

T = TypeVar("T")


_NO_CONSTANTS = ConstantFolder()
"""Operands of a kernel are arrays: there is nothing to fold."""


class RunGraph(Protocol):
    """Carries out a graph inside the node; names of enclosing graphs are visible in it."""

    def __call__(self, graph: Graph, values: Mapping[str, Value]) -> tuple[Value, ...]: ...


class NumpyCall(NodeContext):
    """One node at run time.

    Args:
        node: The node.
        opset: Version of the operator set it is written in.
        run_graph: Carries out a graph inside the node.
        generators: Random generators of the loaded model, by the outputs of their nodes.
        tables: What nodes of the loaded model keep from run to run.
    """

    __slots__ = ("_generators", "_tables", "run_graph")

    def __init__(
        self,
        node: Node,
        opset: int,
        run_graph: RunGraph,
        generators: Generators | None = None,
        tables: Tables | None = None,
    ) -> None:
        super().__init__(node, (), opset, _NO_CONSTANTS, frozenset(node.outputs), _no_branch)
        self.run_graph = run_graph
        self._generators: Generators = {} if generators is None else generators
        self._tables: Tables = {} if tables is None else tables

    def generator(self) -> np.random.RandomState:
        """Return the node's random generator, begun from ``seed`` at its first use."""
        key = self.node.outputs
        if key not in self._generators:
            seed = int(self.number("seed")) if self.has("seed") else None
            self._generators[key] = np.random.RandomState(seed)
        return self._generators[key]

    def kept(self, make: Callable[[NumpyCall], T]) -> T:
        """Return what depends on the node alone, made by the first run."""
        found = self._tables.get(id(self.node))
        if found is None:
            found = self._tables[id(self.node)] = (self.node, make(self))
        return cast("T", found[1])

    def reserve(self, sizes: Iterable[int], itemsize: int = 8) -> None:
        """Ask for memory for an array whose sizes are data or attributes, before it is made.

        Raises:
            ModelError: A size is negative.
            ResourceError: There is not as much.
        """
        shape = tuple(int(size) for size in sizes)
        if any(size < 0 for size in shape):
            raise self.model_error(f"a result would have the shape {shape}")
        budget().reserve(math.prod(shape) * itemsize, self.span)

    def optional_numbers(self, name: str) -> tuple[float, ...] | None:
        """Return a list-of-floats attribute, ``None`` if it is not set."""
        return self.numbers(name) if self.has(name) else None


def _no_branch(graph: Graph, given: Mapping[str, Expr]) -> tuple[Expr, ...]:
    raise ModelError(f"graph '{graph.name}' cannot be imported at run time")
