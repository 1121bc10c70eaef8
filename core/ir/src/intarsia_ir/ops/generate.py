# SPDX-License-Identifier: Apache-2.0
"""Operators whose elements depend on their own position: fills, ranges, triangles."""

from __future__ import annotations

import math
import typing
from typing import TYPE_CHECKING

import numpy as np

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError
from intarsia_runtime.size import Dim, maximum

from ..graph.guards import require_at_most
from ..graph.op import Op, OpAttrs, OpKind, operator
from ..graph.types import TensorType, Type
from ..tir.expr import PrimExpr, cast, const, equal, select
from ..tir.tensor import Tensor, compute, extents
from .arrays import Array, numpy_dtype
from .derivative import DERIVATIVES, derivative
from .integer_forms import INTEGER_FORMS
from .run_sizes import check_sizes
from .type_rules import is_number, operands, shape_text

if TYPE_CHECKING:
    from .terms import Contributions, DerivativeStep


@operator("full", OpKind.INJECTIVE)
class Full(Op):
    """A tensor of one value."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """Shape, value and element type."""

        shape: tuple[int, ...]
        value: float
        dtype: DType

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type that the attributes give."""
        check_sizes(cls.name, *operands(cls.name, types, 0, len(types)))
        why = f"{cls.name}: a size must not be negative"
        if not all(require_at_most(0, size, why) for size in attrs.shape):
            raise TypeRuleError(f"{cls.name}: shape {shape_text(attrs.shape)} has a negative size")
        return TensorType(attrs.shape, attrs.dtype)

    @staticmethod
    def reference(attrs: Attrs, *_sizes: Array) -> Array:
        """NumPy's full."""
        return np.full(attrs.shape, attrs.value, numpy_dtype(attrs.dtype))

    @staticmethod
    def compute(attrs: Attrs, *_sizes: Tensor) -> Tensor:
        """The value everywhere."""

        def element(*indices: PrimExpr) -> PrimExpr:
            return const(attrs.value, attrs.dtype)

        return compute(attrs.shape, element, name="full")


@operator("arange", OpKind.INJECTIVE)
class Arange(Op):
    """``start, start + step, ...`` before ``stop``."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """The range and its element type."""

        start: float
        stop: float
        step: float
        dtype: DType

        @property
        def count(self) -> int:
            """How many numbers there are."""
            length = typing.cast("float | Dim", self.stop - self.start)
            if isinstance(length, Dim):
                step = int(self.step)
                return extents([maximum((length + (step - 1)) // step, 0)])[0]
            return max(0, math.ceil(length / self.step))

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """A vector."""
        check_sizes(cls.name, *operands(cls.name, types, 0, len(types)))
        limits = [x for x in (attrs.start, attrs.stop, attrs.step) if not isinstance(x, Dim)]
        if attrs.step == 0 or not all(math.isfinite(limit) for limit in limits):
            raise TypeRuleError(
                f"{cls.name}: {attrs.start}:{attrs.stop}:{attrs.step} is no range of numbers"
            )
        if not is_number(attrs.dtype):
            raise TypeRuleError(f"{cls.name}: needs a number type, not {attrs.dtype}")
        return TensorType((attrs.count,), attrs.dtype)

    @staticmethod
    def reference(attrs: Attrs, *_sizes: Array) -> Array:
        """Multiples of the step, computed in float64 or int64."""
        numbers = np.arange(attrs.count)
        if attrs.dtype.is_integer:
            values = numbers * int(attrs.step) + int(attrs.start)
        else:
            values = numbers * float(attrs.step) + float(attrs.start)
        return values.astype(numpy_dtype(attrs.dtype))

    @staticmethod
    def compute(attrs: Attrs, *_sizes: Tensor) -> Tensor:
        """A multiple of the step, computed in float64 or int64."""

        def element(index: PrimExpr) -> PrimExpr:
            if attrs.dtype.is_integer:
                start = attrs.start if isinstance(attrs.start, Dim) else int(attrs.start)
                return cast(index * int(attrs.step) + start, attrs.dtype)
            number = cast(index, DType.FLOAT64)
            return cast(number * float(attrs.step) + float(attrs.start), attrs.dtype)

        return compute((attrs.count,), element, name="arange")


@operator("sizes", OpKind.INJECTIVE)
class Sizes(Op):
    """A vector of sizes that only the run knows: what ``Shape`` gives, where it is data."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``sizes``: numbers, and expressions over the sizes of the model's inputs."""

        sizes: tuple[int, ...]

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """A vector of int64."""
        check_sizes(cls.name, *operands(cls.name, types, 0, len(types)))
        return TensorType((len(attrs.sizes),), DType.INT64)

    @staticmethod
    def reference(attrs: Attrs, *_sizes: Array) -> Array:
        """The numbers."""
        return np.array(attrs.sizes, np.int64)

    @staticmethod
    def compute(attrs: Attrs, *_sizes: Tensor) -> Tensor:
        """Choose by the position."""

        def element(index: PrimExpr) -> PrimExpr:
            value = const(attrs.sizes[-1] if attrs.sizes else 0, DType.INT64)
            for number, size in reversed(tuple(enumerate(attrs.sizes[:-1]))):
                value = select(equal(index, number), const(size, DType.INT64), value)
            return value

        return compute((len(attrs.sizes),), element, name="sizes")


@operator("triangular", OpKind.INJECTIVE)
class Triangular(Op):
    """The upper or lower triangle of the last two dimensions, and 0 elsewhere."""

    class Attrs(OpAttrs, frozen=True, kw_only=True):
        """``upper``: keep what is above the diagonal; ``diagonal``: which, 0 is the main one."""

        upper: bool
        diagonal: int = 0

    @classmethod
    def type_rule(cls, attrs: Attrs, *types: Type) -> TensorType:
        """The type of the operand."""
        (x,) = operands(cls.name, types, 1)
        if x.rank < 2:
            raise TypeRuleError(f"{cls.name}: needs rank 2 or more, got {shape_text(x.shape)}")
        return x

    @staticmethod
    def reference(attrs: Attrs, x: Array) -> Array:
        """Choose by the position."""
        rows, columns = np.arange(int(x.shape[-2])), np.arange(int(x.shape[-1]))
        distance = columns - rows[:, np.newaxis] - attrs.diagonal
        kept = distance >= 0 if attrs.upper else distance <= 0
        return np.where(kept, x, np.zeros((), x.dtype))

    @staticmethod
    def compute(attrs: Attrs, x: Tensor) -> Tensor:
        """Choose by the position."""

        def element(*indices: PrimExpr) -> PrimExpr:
            row, column = indices[-2] + attrs.diagonal, indices[-1]
            kept = column >= row if attrs.upper else column <= row
            return select(kept, x[indices], const(0, x.dtype))

        return compute(x.shape, element, name="triangular")


@derivative(Triangular)
def _triangular_derivative(step: DerivativeStep, attrs: Triangular.Attrs) -> Contributions:
    """The same triangle."""
    return [step.adjoint.apply(Triangular, attrs=attrs)]


DERIVATIVES.refuse("it has no operand", Sizes)
DERIVATIVES.refuse("it has no operand of floating-point numbers that it is computed from", Full)
DERIVATIVES.refuse("its steps count elements, which changes by jumps", Arange)
INTEGER_FORMS.refuse("it has no operand that could be quantized", Full, Arange, Sizes)
INTEGER_FORMS.refuse("the zeros that it writes need not be stored as 0", Triangular)
