# SPDX-License-Identifier: Apache-2.0
"""Comparisons of elements, and the choice between elements by a condition."""

from __future__ import annotations

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir import expr as tir
from ..tir.expr import BinaryOp
from ..tir.tensor import Tensor
from .arrays import Array, widen
from .binary import MachineOp
from .elements import map_elements
from .type_rules import broadcast, operands, same_dtype


class ComparisonOp(MachineOp):
    """A comparison of numbers that broadcast; with NaN it is false, but for ``!=``."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """Bool in the broadcast shape."""
        return super().type_rule(attrs, *types).with_dtype(DType.BOOL)

    @classmethod
    def reference(cls, attrs: OpAttrs, a: Array, b: Array) -> Array:
        """The comparison of every pair."""
        return np.asarray(cls.function(widen(a), widen(b)))


def _anything(_dtype: DType) -> bool:
    return True


@operator("equal", OpKind.ELEMWISE)
class Equal(ComparisonOp):
    """Whether ``a == b``; bool operands too."""

    commutative = True
    accepts = staticmethod(_anything)
    function = staticmethod(np.equal)
    machine = BinaryOp.EQ


@operator("not_equal", OpKind.ELEMWISE)
class NotEqual(ComparisonOp):
    """Whether ``a != b``; bool operands too."""

    commutative = True
    accepts = staticmethod(_anything)
    function = staticmethod(np.not_equal)
    machine = BinaryOp.NE


@operator("less", OpKind.ELEMWISE)
class Less(ComparisonOp):
    """Whether ``a < b``."""

    function = staticmethod(np.less)
    machine = BinaryOp.LT


@operator("less_equal", OpKind.ELEMWISE)
class LessEqual(ComparisonOp):
    """Whether ``a <= b``."""

    function = staticmethod(np.less_equal)
    machine = BinaryOp.LE


@operator("greater", OpKind.ELEMWISE)
class Greater(ComparisonOp):
    """Whether ``a > b``."""

    function = staticmethod(np.greater)
    machine = BinaryOp.GT


@operator("greater_equal", OpKind.ELEMWISE)
class GreaterEqual(ComparisonOp):
    """Whether ``a >= b``."""

    function = staticmethod(np.greater_equal)
    machine = BinaryOp.GE


@operator("where", OpKind.ELEMWISE)
class Where(Op):
    """The element of ``a`` where the condition is true, else of ``b``; all three broadcast."""

    broadcasts = True

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The element type of ``a`` and ``b`` in the broadcast shape."""
        condition, a, b = operands(cls.name, types, 3)
        if condition.dtype is not DType.BOOL:
            raise TypeRuleError(f"{cls.name}: the condition must be bool, got {condition}")
        return TensorType(broadcast(cls.name, condition, a, b), same_dtype(cls.name, a, b))

    @staticmethod
    def reference(attrs: OpAttrs, condition: Array, a: Array, b: Array) -> Array:
        """Choose per element."""
        return np.where(condition, a, b)

    @staticmethod
    def compute(attrs: OpAttrs, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Choose per element."""
        return map_elements(tir.select, condition, a, b, name="where")
