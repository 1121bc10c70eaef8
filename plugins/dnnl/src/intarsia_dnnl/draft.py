# SPDX-License-Identifier: Apache-2.0
"""A region's program while it is written: values, nodes and constants under numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from intarsia.plugin import accelerator

from .program import AttrValue, PostOp, PrimitiveNode
from .views import ValueTypes


class DnnlDraft(accelerator.Draft[int], ValueTypes):
    """Collects nodes; values are numbers.

    Attributes:
        nodes: In the order they run.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        ValueTypes.__init__(self)
        self.nodes: list[PrimitiveNode] = []

    def constant(self, data: np.ndarray) -> int:
        """Return the value of an array that is known at compile time."""
        # The library knows no tensors of rank 0.
        return self.keep(self.new_value(data.shape or (1,), data.dtype.name), data)

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
        self.nodes.append(PrimitiveNode(kind, args, result, dict(attrs or {}), (), label))
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
