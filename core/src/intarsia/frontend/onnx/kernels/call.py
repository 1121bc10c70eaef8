# SPDX-License-Identifier: Apache-2.0
"""What a kernel on the host sees of the node it carries out: attributes, outputs, inner graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import numpy as np

from ....errors import ModelError
from ....ir.expr import Expr
from ..context import NodeContext
from ..fold import ConstantFolder
from ..graph import Graph, Node

Value: TypeAlias = "np.ndarray | list[Value] | None"
"""A tensor (object elements are strings), a sequence, or an optional that holds nothing."""

Result: TypeAlias = "Value | tuple[Value, ...]"
"""What a node gives: one value, or a tuple with one for each output."""

Kernel: TypeAlias = "Callable[..., Result]"
"""``kernel(call, *operands) -> Result``; ``NotImplemented`` leaves the node to its converter."""


Scalar: TypeAlias = "int | float | str | bool"
"""An element of a tensor as a Python value."""


class RunGraph(Protocol):
    """Carries out a graph inside the node; names of enclosing graphs are visible in it."""

    def __call__(self, graph: Graph, values: Mapping[str, Value]) -> tuple[Value, ...]: ...


class KernelCall(NodeContext):
    """One node at run time.

    Args:
        node: The node.
        opset: Version of the operator set it is written in.
        run_graph: Carries out a graph inside the node.
    """

    __slots__ = ("run_graph",)

    def __init__(self, node: Node, opset: int, run_graph: RunGraph) -> None:
        used = {name for name in node.outputs if name}
        super().__init__(node, (), opset, ConstantFolder(), used, _no_branch)
        self.run_graph = run_graph

    def optional_numbers(self, name: str) -> tuple[float, ...] | None:
        """Return a list-of-floats attribute, ``None`` if it is not set."""
        return self.numbers(name) if self.has(name) else None


def _no_branch(graph: Graph, given: Mapping[str, Expr]) -> tuple[Expr, ...]:
    raise ModelError(f"graph '{graph.name}' cannot be imported at run time")
