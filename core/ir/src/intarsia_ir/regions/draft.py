# SPDX-License-Identifier: Apache-2.0
"""A region while an accelerator writes it in its vendor's terms, and what all of them read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping
from typing import Generic, TypeVar

import numpy as np

from intarsia_runtime.errors import PluginError

from ..graph.expr import Call, Constant, Expr, tensor_type
from ..graph.typical import typical
from ..tir.tensor import extents as tensor_extents

V = TypeVar("V", bound=Hashable)


class Draft(ABC, Generic[V]):
    """A region in the plugin's own form, under construction: its values and constants.

    Args:
        name: Name of the region.

    Attributes:
        name: Name of the region.
        values: The plugin's value of each lowered expression.
        constants: Name and data of each value that is known at compile time.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[Expr, V] = {}
        self.constants: dict[V, tuple[str, np.ndarray]] = {}

    @abstractmethod
    def constant(self, data: np.ndarray) -> V:
        """Return the value of an array that is known at compile time."""

    def value(self, expr: Expr) -> V:
        """Return the value of an expression; a constant is added at its first use."""
        if expr not in self.values and isinstance(expr, Constant):
            self.values[expr] = self.constant(expr.data)
        return self.values[expr]

    def keep(self, value: V, data: np.ndarray) -> V:
        """Name the data of a value, and return the value."""
        self.constants[value] = (f"{self.name}.{len(self.constants)}", data)
        return value

    def weights(self, used: Collection[V]) -> dict[V, str]:
        """Return the names of the constants among ``used``, in the order they were made."""
        return {value: name for value, (name, _) in self.constants.items() if value in used}


def sizes(expr: Expr) -> tuple[int, ...]:
    """Return the static shape of a tensor."""
    return tensor_type(expr).static_shape


def extents(expr: Expr) -> tuple[int, ...]:
    """Return the shape of a tensor; symbolic dimensions are expressions.

    An expression has the arithmetic of a number; comparisons other than equality are refused.
    """
    return tensor_extents(tensor_type(expr).shape)


def typical_sizes(expr: Expr, values: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a tensor with typical numbers in place of symbolic dimensions.

    Args:
        expr: The tensor.
        values: Values of the size variables: those of its region.
    """
    return tuple(typical(size, values) for size in tensor_type(expr).shape)


def label_of(call: Call) -> str:
    """Return the name of a node in messages: that of the model, or that of the operator."""
    return str(call.span) or call.name


def scalar(expr: Expr) -> float | None:
    """Return the number that a constant of one element holds, else ``None``."""
    if isinstance(expr, Constant) and expr.data.size == 1:
        return float(expr.data.reshape(-1)[0])
    return None


def array_of(expr: Expr) -> np.ndarray:
    """Return the content of a constant.

    Raises:
        PluginError: It is none: the row of the table does not ask for one.
    """
    if not isinstance(expr, Constant):
        raise PluginError(f"{expr} is not known at compile time, and its row does not ask for it")
    return expr.data
