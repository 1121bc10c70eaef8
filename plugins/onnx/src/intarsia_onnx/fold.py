# SPDX-License-Identifier: Apache-2.0
"""Values of pure subexpressions that are known while a model is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intarsia_ir.budget import budget
from intarsia_ir.graph.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from intarsia_ir.graph.op import OpKind
from intarsia_ir.graph.types import TensorType, Type
from intarsia_ir.graph.walk import children
from intarsia_runtime.errors import IntarsiaError, ResourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUE_BUDGET = 16 << 20  # bytes of one folded value
TOTAL_BUDGET = 256 << 20  # bytes of all folded values of a model
WORK_BUDGET = 1 << 28  # multiply-adds a folded contraction may cost


class ConstantFolder:
    """Evaluates expressions of constants on demand, each once, within a budget of bytes."""

    def __init__(self, value_budget: int = VALUE_BUDGET, total_budget: int = TOTAL_BUDGET) -> None:
        self._value_budget = value_budget
        self._left = total_budget
        self._values: dict[Expr, np.ndarray | tuple[np.ndarray, ...] | None] = {}

    def value(self, expr: Expr) -> np.ndarray | None:
        """Return the value of ``expr``, or ``None`` if it depends on an input or costs too much."""
        if isinstance(expr, Constant):
            return expr.data
        if isinstance(expr, Var):
            return None
        stack: list[tuple[Expr, bool]] = [(expr, False)]
        while stack:
            node, ready = stack.pop()
            if node in self._values:
                continue
            if ready:
                self._values[node] = self._evaluate(node)
                continue
            if isinstance(node, Constant):
                self._values[node] = node.data
                continue
            if not self._affordable(node.type):
                self._values[node] = None
                continue
            stack.append((node, True))
            stack.extend((child, False) for child in children(node) if child not in self._values)
        found = self._values[expr]
        return found if isinstance(found, np.ndarray) else None

    def _affordable(self, type_: Type) -> bool:
        fields = (type_,) if isinstance(type_, TensorType) else type_.fields
        size = 0
        for field in fields:
            if not isinstance(field, TensorType) or not field.is_static:
                return False
            size += field.bytes
        return size <= min(self._value_budget, self._left)

    def _evaluate(self, node: Expr) -> np.ndarray | tuple[np.ndarray, ...] | None:
        match node:
            case Constant():
                return node.data
            case Call():
                operands: list[np.ndarray] = []
                for arg in node.args:
                    operand = self._values[arg]
                    if not isinstance(operand, np.ndarray):
                        return None
                    operands.append(operand)
                if not _cheap(node, operands):
                    return None
                return self._run(node, operands)
            case TupleGetItem():
                fields = self._values[node.tuple]
                return fields[node.index] if isinstance(fields, tuple) else None
            case Tuple():
                values = [self._values[field] for field in node.fields]
                arrays = tuple(value for value in values if isinstance(value, np.ndarray))
                return arrays if len(arrays) == len(values) else None
            case _:
                return None

    def _run(
        self, node: Call, operands: Sequence[np.ndarray]
    ) -> np.ndarray | tuple[np.ndarray, ...] | None:
        if not self._affordable(node.type):
            return None
        try:
            with np.errstate(all="ignore"), budget().folding("folding constants") as limits:
                limits.check(node.span)
                result = node.op.reference(node.attrs, *operands)
        except ResourceError:
            raise
        except (IntarsiaError, ArithmeticError, ValueError, IndexError):
            return None  # the error belongs to whoever runs the model
        results = result if isinstance(result, tuple) else (result,)
        self._left -= sum(array.nbytes for array in results)
        return result if isinstance(result, tuple) else np.asarray(result)


def _cheap(node: Call, operands: Sequence[np.ndarray]) -> bool:
    """Whether a contraction of constants is small enough to carry out while reading."""
    if node.op.kind is not OpKind.ANCHOR:
        return True
    outputs = node.type.elements if isinstance(node.type, TensorType) else 0
    return outputs * max(array.size for array in operands[1:]) <= WORK_BUDGET
