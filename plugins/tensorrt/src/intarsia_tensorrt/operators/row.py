# SPDX-License-Identifier: Apache-2.0
"""A row of the plugin's table: an operator, who says yes or no, and what it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct

from intarsia.dtype import DType
from intarsia.ir.expr import Call, Constant, Expr
from intarsia.ir.types import TensorType, TupleType, Type
from intarsia.partition.support import Code, Support

from ..draft import Draft, Tensor

Lower: TypeAlias = "Callable[[Draft, Call], Tensor | tuple[Tensor, ...]]"
Supports: TypeAlias = "Callable[[Call], Support]"

MAX_RANK = 8
"""Dimensions that the library's tensors may have."""

FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
WEIGHED = (DType.FLOAT32, DType.FLOAT16)
"""Types of layers that hold weights: NumPy has no bfloat16."""

WHOLE = (DType.INT32, DType.INT64)
NUMBERS = (*FLOATS, *WHOLE)
MOVED = (*NUMBERS, DType.BOOL)
BYTES = (DType.INT8, DType.UINT8)


def always(_call: Call) -> Support:
    """Take every call of tensors that the row accepts."""
    return Support.yes()


class Row(Struct, frozen=True):
    """One operator that the plugin knows.

    Attributes:
        op: Name of the operator.
        lower: Appends layers for a call, returns the tensor of its result; a tuple of several.
        supports: Whether a call is taken, beyond element types, shapes and constants.
        dtypes: Element types of the first operand.
        others: Element types that other operands and the result may have beside those.
        constant: Arguments that must be known at compile time.
        limits: What ``supports`` asks for, in words, for the README.
    """

    op: str
    lower: Lower
    supports: Supports = always
    dtypes: tuple[DType, ...] = FLOATS
    others: tuple[DType, ...] = ()
    constant: tuple[int, ...] = ()
    limits: str = ""

    def _is_stored(self, expr: Expr) -> bool:
        """Whether an operand is a constant of integers that stand for real numbers."""
        eight = isinstance(expr, Constant) and expr.data.dtype.name in ("int8", "uint8")
        return eight and not self.op.startswith("qnn.")

    def check(self, call: Call) -> Support:
        """Say whether the plugin takes a call; the support table's predicate asks this."""
        for number, type_ in enumerate((*(arg.type for arg in call.args), *fields_of(call))):
            if not isinstance(type_, TensorType):
                return Support.no(Code.UNSUPPORTED_OP, "tuples are not taken")
            taken = self.dtypes if number == 0 else (*self.dtypes, *self.others)
            verdict = check_tensor(type_, taken)
            if not verdict:
                return verdict
        if any(self._is_stored(arg) for arg in call.args):
            return Support.no(Code.UNSUPPORTED_DTYPE, "8-bit constants belong to qnn operators")
        for index in self.constant:
            if index < len(call.args) and not isinstance(call.args[index], Constant):
                return Support.no(
                    Code.UNSUPPORTED_ATTRIBUTE,
                    f"argument {index} of {call.name} must be known at compile time",
                )
        return self.supports(call)


def fields_of(call: Call) -> tuple[Type, ...]:
    """Return the types of a call's results."""
    return call.type.fields if isinstance(call.type, TupleType) else (call.type,)


def check_tensor(type_: TensorType, taken: tuple[DType, ...]) -> Support:
    """Refuse other element types, and symbolic, empty or high-rank shapes."""
    if type_.dtype not in taken:
        names = ", ".join(dtype.value for dtype in taken)
        return Support.no(Code.UNSUPPORTED_DTYPE, f"{type_.dtype} is not among {names}")
    if not type_.is_static:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"the shape of {type_} is not static")
    if 0 in type_.static_shape:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"{type_} has no elements")
    if type_.rank > MAX_RANK:
        return Support.no(Code.UNSUPPORTED_SHAPE, f"rank {type_.rank} is more than {MAX_RANK}")
    return Support.yes()


def attribute(detail: str) -> Support:
    """A no because of an attribute, or of what it does with these shapes."""
    return Support.no(Code.UNSUPPORTED_ATTRIBUTE, detail)


def shape(detail: str) -> Support:
    """A no because of a shape."""
    return Support.no(Code.UNSUPPORTED_SHAPE, detail)


class Never(Struct, frozen=True):
    """An operator that is not taken, and the reason."""

    reason: str

    def supports(self, _call: Call) -> Support:
        """Say no."""
        return Support.no(Code.UNSUPPORTED_OP, self.reason)

    def lower(self, draft: Draft, call: Call) -> Tensor:
        """Refuse a call that cannot have been accepted."""
        raise NotImplementedError(f"{call.name} is never taken: {self.reason}")


def never(op: str, reason: str) -> Row:
    """Return the row of an operator that is not taken."""
    refusal = Never(reason)
    return Row(op, refusal.lower, refusal.supports, tuple(DType), limits=f"never: {reason}")
