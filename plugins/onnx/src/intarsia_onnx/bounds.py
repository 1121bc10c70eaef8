# SPDX-License-Identifier: Apache-2.0
"""Finds the fixed numbers that sizes are compared with: what a model does may change there.

``x[:2000]`` is all of ``x`` for every size up to 2000. Such numbers are the bounds of slices, and
what is compared with, or added to, numbers that are computed of shapes. Only weights and results of
shapes are followed, and of each value only the largest number is known, so that more may be found
than there is. Roots, powers and logarithms of a size count as the size itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
from msgspec import Struct, field

from .graph import Attribute, Graph, Node

NO_BOUND = (1 << 31) - 1
"""Numbers from here on mean the end of a dimension, however long."""

_MOST_FLOATS = 1 << 16
"""Elements of a weight of floating-point numbers up to which it may be compared with sizes."""

_SHAPES = frozenset({"Shape", "Size"})
_COMPARING = frozenset(
    {
        *("Add", "And", "Clip", "Div", "Equal", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "Max", "Min", "Mod", "Range", "Sub", "Where"),
    }
)
"""Operators whose result changes its nature where a size passes a fixed operand."""
_BOUNDS = {"Slice": (1, 2), "CenterCropPad": (1,), "TopK": (1,)}
"""Operands that dimensions of the first operand are compared with."""
_BOUND_ATTRIBUTES = {"Slice": ("starts", "ends"), "Clip": ("min", "max")}
"""The same as attributes, in old operator sets."""


def largest_bound(graph: Graph) -> int:
    """Return the largest fixed number that a size of the model may be compared with; 0 if none.

    A size of which a fraction is compared counts as much larger: ``n // 8 < 200`` gives 1608.
    """
    found = _Found()
    found.walk(graph)
    return int(min(found.bound, NO_BOUND - 1))


class _Found(Struct):
    """What is known of values by name, and the largest bound so far.

    Attributes:
        fixed: The largest number in what depends on weights alone, :data:`NO_BOUND` left out.
        sizes: Which part of a size a value may be that is computed of shapes: 8 for an eighth.
        bound: The largest number that a size is compared with.
    """

    fixed: dict[str, float] = field(default_factory=dict[str, float])
    sizes: dict[str, float] = field(default_factory=dict[str, float])
    bound: float = 0.0

    def walk(self, graph: Graph) -> None:
        """Follow the nodes of a graph; graphs nest as deep as the reader allows."""
        self.fixed |= {name: _largest(data) for name, data in graph.initializers.items()}
        for node in graph.nodes:
            inner = [value for value in node.attrs.values() if isinstance(value, Graph)]
            for body in inner:
                part = self._part_of(node.inputs)
                if part:
                    self.sizes.update(dict.fromkeys((info.name for info in body.inputs), part))
                self.walk(body)
            results = [info.name for body in inner for info in body.outputs]
            self._follow(node, [*filter(None, node.inputs), *results])

    def _follow(self, node: Node, operands: list[str]) -> None:
        self._note_bounds(node)
        fixed = [self.fixed[name] for name in operands if name in self.fixed]
        part = 1.0 if node.op_type in _SHAPES else self._part_of(operands)
        known = node.op_type in _SHAPES or len(fixed) == len(operands)
        if part and node.op_type not in _SHAPES:
            known = all(name in self.fixed or name in self.sizes for name in operands)
            if node.op_type in _COMPARING:
                self.bound = max(self.bound, (max(fixed) + 1) * part) if fixed else self.bound
            part *= _divisor(node.op_type, fixed)
        if not known:
            return
        if part:
            self.sizes.update(dict.fromkeys(node.outputs, part))
        else:
            value = _result(node, fixed)
            self.fixed.update(dict.fromkeys(node.outputs, value))

    def _note_bounds(self, node: Node) -> None:
        """Note what bounds a dimension of the node's first operand."""
        names = (node.inputs[at] for at in _BOUNDS.get(node.op_type, ()) if at < len(node.inputs))
        bounds = [self.fixed.get(name, 0.0) for name in names]
        attributes = _BOUND_ATTRIBUTES.get(node.op_type, ())
        bounds += [_number(node.attrs[name]) for name in attributes if name in node.attrs]
        self.bound = max(self.bound, *bounds, 0.0)

    def _part_of(self, names: Iterable[str]) -> float:
        """Return the smallest part of a size that is among values; 0 if none is."""
        return max((self.sizes[name] for name in names if name in self.sizes), default=0.0)


def _divisor(operator: str, fixed: list[float]) -> float:
    """Return by what an operator divides a size."""
    if operator == "Div":
        return max([1.0, *fixed])
    if operator == "Mul":
        return max([1.0, *(1 / number for number in fixed if 0 < number < 1)])
    return 1.0


def _result(node: Node, fixed: list[float]) -> float:
    """Return what the largest number of a node's results may be, given those of its operands."""
    if node.op_type == "Constant":
        return max(map(_number, node.attrs.values()), default=0.0)
    found = prod(fixed) if node.op_type == "Mul" else sum(fixed)
    return min(found, NO_BOUND)


def _number(value: Attribute) -> float:
    """Return the largest number in an attribute."""
    if isinstance(value, int | float | tuple):
        numbers = value if isinstance(value, tuple) else (value,)
        return _largest(np.array([item for item in numbers if not isinstance(item, str)]))
    return _largest(value) if isinstance(value, np.ndarray) else 0.0


def _largest(data: np.ndarray) -> float:
    """Return the largest magnitude that is a bound; 0 for bytes, and for weights at large."""
    is_integer = data.dtype.kind in "iu" and data.dtype.itemsize > 1
    if not is_integer and (data.dtype.kind != "f" or data.size > _MOST_FLOATS):
        return 0.0
    numbers = np.abs(data.astype(np.float64))
    return float(numbers.max(initial=0.0, where=numbers < NO_BOUND))
