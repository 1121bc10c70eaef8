# SPDX-License-Identifier: Apache-2.0
"""A region's program while it is written: values, nodes and constants under numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from intarsia.ir.expr import Call, Constant, Expr, tensor_type

from .program import AttrValue, Node, PostOp
from .views import Values


class Draft(Values):
    """Collects nodes; values of expressions are looked up by the expression.

    Attributes:
        nodes: In the order they run.
        constants: Value to name and data.
        values: Value of each expression lowered so far.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.nodes: list[Node] = []
        self.constants: dict[int, tuple[str, np.ndarray]] = {}
        self.values: dict[Expr, int] = {}

    def value(self, expr: Expr) -> int:
        """Return the value of an expression; constants are taken in when first asked for."""
        if expr not in self.values and isinstance(expr, Constant):
            # The library knows no tensors of rank 0.
            self.values[expr] = self.constant(expr.data)
        return self.values[expr]

    def constant(self, data: np.ndarray) -> int:
        """Return the value of an array that is known at compile time."""
        value = self.new_value(data.shape or (1,), data.dtype.name)
        self.constants[value] = (f"{self._name}.{len(self.constants)}", data)
        return value

    def shape(self, value: int) -> tuple[int, ...]:
        """Return the shape of a value."""
        return self.shapes[value]

    def add(
        self,
        kind: str,
        args: tuple[int, ...],
        shape: tuple[int, ...],
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        label: str = "",
        dtype: str = "float32",
    ) -> int:
        """Append a node and return its result, of element type ``dtype``."""
        result = self.new_value(shape, dtype)
        self.nodes.append(Node(kind, args, result, dict(attrs or {}), (), label))
        return result

    def then(self, op: PostOp) -> None:
        """Give the node that was added last more work on its result."""
        last = self.nodes[-1]
        self.nodes[-1] = replace(last, post=(*last.post, op))

    def view(self, value: int, shape: tuple[int, ...]) -> int:
        """Return the same elements under another shape."""
        if self.shapes[value] == shape:
            return value
        return self.add("reshape", (value,), shape, dtype=self.dtypes[value])

    def eltwise(
        self, algorithm: str, value: int, alpha: float = 0.0, beta: float = 0.0, *, label: str = ""
    ) -> int:
        """Append an element-wise function of one value."""
        attrs = {"algorithm": algorithm, "alpha": alpha, "beta": beta}
        return self.add("eltwise", (value,), self.shapes[value], attrs, label=label)


def scalar(expr: Expr) -> float | None:
    """Return the number that a constant of one element holds, else ``None``."""
    if isinstance(expr, Constant) and expr.data.size == 1:
        return float(expr.data.reshape(-1)[0])
    return None


def sizes(expr: Expr) -> tuple[int, ...]:
    """Return the static shape of a tensor."""
    return tensor_type(expr).static_shape


def label_of(call: Call) -> str:
    """Return what messages call a node: the model's name for it, or the operator's."""
    return str(call.span) or call.name
