# SPDX-License-Identifier: Apache-2.0
"""Sizes that a model computes: an element of a tensor becomes a size variable.

``size_of`` defines a variable, ``name#k`` by convention. Whatever has the variable in its type or
its attributes depends on that call: through its operands, or, where these do not, through
``with_sizes``. Operators without operands take the sizes that they depend on as operands.
"""

from __future__ import annotations

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import Dim, TensorType, Type
from ..tir.tensor import Tensor
from .arrays import Array
from .derivative import DERIVATIVES
from .integer_forms import INTEGER_FORMS
from .type_rules import operands


@operator("size_of", OpKind.OPAQUE)
class SizeOf(Op):
    """The operand, an integer, whose value a size variable has from here on; never negative."""

    defines_size = True

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``size``: the variable."""

        size: int

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        if x.dtype is not DType.INT64 or any(size != 1 for size in x.shape):
            raise TypeRuleError(f"{cls.name}: takes one element of int64, got {x}")
        size: object = attrs.size
        if not isinstance(size, Dim) or not size.is_variable:
            raise TypeRuleError(f"{cls.name}: {size} is no size variable")
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """The operand."""
        return x

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """The operand; plans read it in its place."""
        return x


@operator("with_sizes", OpKind.OPAQUE)
class WithSizes(Op):
    """The first operand, behind the sizes that the others define."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> TensorType:
        """The type of the first operand."""
        x, *sizes = operands(cls.name, types, 2, max(2, len(types)))
        check_sizes(cls.name, *sizes)
        return x

    @staticmethod
    def reference(attrs: OpAttrs, x: Array, *_sizes: Array) -> Array:
        """The first operand."""
        return x

    @staticmethod
    def compute(attrs: OpAttrs, x: Tensor, *_sizes: Tensor) -> Tensor:
        """The first operand; plans read it in its place."""
        return x


def check_sizes(name: str, *types: TensorType) -> None:
    """Check operands that are there for the size variables that they define.

    Raises:
        TypeRuleError: One is no result of ``size_of``.
    """
    for type_ in types:
        if type_.dtype is not DType.INT64 or any(size != 1 for size in type_.shape):
            raise TypeRuleError(f"{name}: {type_} is no size")


DERIVATIVES.refuse("a size has no slope", SizeOf, WithSizes)
INTEGER_FORMS.refuse("sizes are no quantized numbers", SizeOf, WithSizes)
