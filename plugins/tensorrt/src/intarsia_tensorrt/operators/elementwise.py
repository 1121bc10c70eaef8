# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators: unary, binary, comparisons, selection, casts and limits."""

from __future__ import annotations

import math
from types import MappingProxyType

from msgspec import Struct

from intarsia.plugin.accelerator import (
    Call,
    Code,
    DType,
    Support,
    operator_row,
    tensor_type,
)

from ..draft import NetworkDraft, Tensor
from .row import FLOATS, MOVED, NUMBERS, WHOLE, NetworkRow

_BOOLS = (DType.BOOL,)


class Unary(Struct, frozen=True):
    """One ``UnaryOperation`` after the other.

    Attributes:
        operations: Their names.
        sensitive: Whether float16 would be too coarse.
    """

    operations: tuple[str, ...]
    sensitive: bool = False

    def lower(self, draft: NetworkDraft, call: Call) -> Tensor:
        """Apply them."""
        value = draft.exact(call.args[0]) if self.sensitive else draft.value(call.args[0])
        for operation in self.operations:
            value = draft.unary(value, operation)
        return value


_SENSITIVE = MappingProxyType(
    {
        **{name: (name.upper(),) for name in ("exp", "log", "sqrt", "sin", "cos", "tan")},
        **{name: (name.upper(),) for name in ("sinh", "cosh", "asin", "acos", "atan", "asinh")},
        "acosh": ("ACOSH",),
        "atanh": ("ATANH",),
        "erf": ("ERF",),
        "rsqrt": ("SQRT", "RECIP"),
        "reciprocal": ("RECIP",),
    }
)
_PLAIN = MappingProxyType(
    {"floor": "FLOOR", "ceil": "CEIL", "round": "ROUND", "isnan": "ISNAN", "isinf": "ISINF"}
)
_SIGNED = MappingProxyType({"abs": "ABS", "negative": "NEG", "sign": "SIGN"})


class ElementwiseLayer(Struct, frozen=True):
    """One ``ElementWiseOperation`` of both operands.

    Attributes:
        operation: Its name.
        sensitive: Whether float16 would be too coarse.
    """

    operation: str
    sensitive: bool = False

    def lower(self, draft: NetworkDraft, call: Call) -> Tensor:
        """Apply it."""
        a, b = (draft.exact(x) if self.sensitive else draft.value(x) for x in call.args)
        return draft.binary(a, b, self.operation)


_ARITHMETIC = MappingProxyType(
    {"add": "SUM", "subtract": "SUB", "multiply": "PROD", "maximum": "MAX", "minimum": "MIN"}
)
_LOGICAL = MappingProxyType({"logical_and": "AND", "logical_or": "OR", "logical_xor": "XOR"})


class Comparison(Struct, frozen=True):
    """Operations of both operands, any of which may hold; negated if ``negate``.

    Comparisons of float32 are exact, whatever is computed in float16 around them.
    """

    operations: tuple[str, ...]
    negate: bool = False

    def lower(self, draft: NetworkDraft, call: Call) -> Tensor:
        """Apply them."""
        a, b = (draft.exact(x) for x in call.args)
        found = [draft.binary(a, b, operation) for operation in self.operations]
        result = found[0]
        for other in found[1:]:
            result = draft.binary(result, other, "OR")
        return draft.unary(result, "NOT") if self.negate else result


_COMPARISONS = MappingProxyType(
    {
        "equal": Comparison(("EQUAL",)),
        "not_equal": Comparison(("EQUAL",), negate=True),
        "less": Comparison(("LESS",)),
        "less_equal": Comparison(("LESS", "EQUAL")),
        "greater": Comparison(("GREATER",)),
        "greater_equal": Comparison(("GREATER", "EQUAL")),
    }
)


def _supports_where(call: Call) -> Support:
    dtype = tensor_type(call).dtype
    if dtype is DType.BOOL:
        return Support.no(Code.UNSUPPORTED_DTYPE, "a choice between bools")
    return Support.yes()


def _lower_where(draft: NetworkDraft, call: Call) -> Tensor:
    return draft.select(*(draft.value(arg) for arg in call.args))


_CAST_FROM = (*MOVED, DType.UINT8, DType.INT8)


def _supports_cast(call: Call) -> Support:
    source, result = tensor_type(call.args[0]).dtype, tensor_type(call).dtype
    if result in (DType.INT8, DType.UINT8):
        return Support.no(Code.UNSUPPORTED_DTYPE, f"{source} to {result} does not saturate")
    if source in (DType.INT8, DType.UINT8) and result not in FLOATS:
        return Support.no(Code.UNSUPPORTED_DTYPE, f"{source} to {result}, only to a float")
    if source is DType.INT64 and result is DType.INT32:
        return Support.yes()
    if source in FLOATS and result in WHOLE:
        return Support.no(
            Code.UNSUPPORTED_DTYPE, f"{source} to {result} is undefined for large numbers and NaN"
        )
    return Support.yes()


def _lower_cast(draft: NetworkDraft, call: Call) -> Tensor:
    source, result = tensor_type(call.args[0]).dtype, tensor_type(call).dtype
    if source is not DType.UINT8:
        return draft.cast(draft.exact(call.args[0]), result)
    levels = draft.cast(draft.value(call.args[0]), DType.FLOAT32)
    levels = draft.binary(levels, draft.number(128, levels), "SUM")
    return levels if result is DType.FLOAT32 else draft.cast(levels, result)


def clip(draft: NetworkDraft, value: Tensor, low: float, high: float) -> Tensor:
    """Return floating-point numbers within limits, either of which may be infinite."""
    if low == 0.0 and high == math.inf:
        return draft.activation(value, "RELU")
    if math.isfinite(low) and math.isfinite(high) and low <= high:
        return draft.activation(value, "CLIP", low, high)
    if low != -math.inf:
        value = draft.binary(value, draft.number(low, value), "MAX")
    if high != math.inf:
        value = draft.binary(value, draft.number(high, value), "MIN")
    return value


_INTEGER_DIVISION = "integers: the library leaves a division by zero open"

ROWS = (
    *(operator_row(name, Unary(names, sensitive=True).lower) for name, names in _SENSITIVE.items()),
    *(
        operator_row(name, Unary((operation,)).lower, others=_BOOLS)
        for name, operation in _PLAIN.items()
    ),
    *(
        operator_row(name, Unary((operation,)).lower, dtypes=NUMBERS)
        for name, operation in _SIGNED.items()
    ),
    operator_row("logical_not", Unary(("NOT",)).lower, dtypes=_BOOLS),
    *(
        operator_row(name, ElementwiseLayer(operation).lower, dtypes=NUMBERS)
        for name, operation in _ARITHMETIC.items()
    ),
    operator_row("divide", ElementwiseLayer("DIV").lower, doc=f"no {_INTEGER_DIVISION}"),
    operator_row("power", ElementwiseLayer("POW", sensitive=True).lower, doc="no integers"),
    *(
        operator_row(name, ElementwiseLayer(operation).lower, dtypes=_BOOLS)
        for name, operation in _LOGICAL.items()
    ),
    *(
        operator_row(name, compare.lower, others=_BOOLS, dtypes=NUMBERS)
        for name, compare in _COMPARISONS.items()
    ),
    operator_row(
        "where",
        _lower_where,
        _supports_where,
        others=NUMBERS,
        dtypes=_BOOLS,
        doc="no choice of bools",
    ),
    operator_row(
        "cast",
        _lower_cast,
        _supports_cast,
        dtypes=_CAST_FROM,
        doc="no float to integer, nothing to 8 bits; 8 bits to floats only",
    ),
    NetworkRow.refused("floor_mod", "the library has no remainder"),
    NetworkRow.refused("trunc_mod", "the library has no remainder"),
    NetworkRow.refused("bitwise_and", "the library has no operation on bits"),
    NetworkRow.refused("bitwise_or", "the library has no operation on bits"),
    NetworkRow.refused("bitwise_xor", "the library has no operation on bits"),
)
