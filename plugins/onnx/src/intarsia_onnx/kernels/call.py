# SPDX-License-Identifier: Apache-2.0
"""What a kernel on the host sees of the node it carries out: attributes, outputs, inner graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

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
    """

    __slots__ = ("_generators", "run_graph")

    def __init__(
        self, node: Node, opset: int, run_graph: RunGraph, generators: Generators | None = None
    ) -> None:
        used = {name for name in node.outputs if name}
        super().__init__(node, (), opset, ConstantFolder(), used, _no_branch)
        self.run_graph = run_graph
        self._generators: Generators = {} if generators is None else generators

    def generator(self) -> np.random.RandomState:
        """Return the node's random generator, begun from ``seed`` at its first use."""
        key = self.node.outputs
        if key not in self._generators:
            seed = int(self.number("seed")) if self.has("seed") else None
            self._generators[key] = np.random.RandomState(seed)
        return self._generators[key]

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
