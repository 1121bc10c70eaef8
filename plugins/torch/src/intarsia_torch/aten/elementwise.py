# SPDX-License-Identifier: Apache-2.0
"""Operators that map elements to elements, with PyTorch's broadcasting and promotion of types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import binary, compare, near_zero, unary
from intarsia_runtime.dtype import DType

from .context import AtenContext, Converter, dtype_of

_UNARY: Mapping[str, str] = MappingProxyType(
    {
        "abs": "Abs",
        "acos": "Acos",
        "acosh": "Acosh",
        "asin": "Asin",
        "asinh": "Asinh",
        "atan": "Atan",
        "atanh": "Atanh",
        "cos": "Cos",
        "cosh": "Cosh",
        "erf": "Erf",
        "exp": "Exp",
        "hardswish": "HardSwish",
        "log": "Log",
        "mish": "Mish",
        "neg": "Neg",
        "reciprocal": "Reciprocal",
        "relu": "Relu",
        "sigmoid": "Sigmoid",
        "sign": "Sign",
        "sin": "Sin",
        "sinh": "Sinh",
        "sqrt": "Sqrt",
        "tan": "Tan",
        "tanh": "Tanh",
    }
)
_ROUNDING: Mapping[str, str] = MappingProxyType(
    {"ceil": "Ceil", "floor": "Floor", "round": "Round"}
)
_ARITHMETIC: Mapping[str, str] = MappingProxyType(
    {
        "bitwise_and": "BitwiseAnd",
        "bitwise_or": "BitwiseOr",
        "bitwise_xor": "BitwiseXor",
        "maximum": "Max",
        "minimum": "Min",
        "mul": "Mul",
    }
)
_LOGICAL_FORM: Mapping[str, str] = MappingProxyType(
    {"BitwiseAnd": "And", "BitwiseOr": "Or", "BitwiseXor": "Xor", "Mul": "And"}
)
_COMPARISONS = MappingProxyType(
    {
        "eq": compare.Equal,
        "ge": compare.GreaterEqual,
        "gt": compare.Greater,
        "le": compare.LessEqual,
        "lt": compare.Less,
        "ne": compare.NotEqual,
    }
)
_ORDER = (
    *(DType.BOOL, DType.UINT8, DType.INT8, DType.INT16, DType.INT32, DType.INT64),
    *(DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64),
)


def _unary(node: AtenContext) -> Expr:
    return node.onnx(_UNARY[node.name], node.cast(node.tensor("self"), node.dtype))


def _rounded(node: AtenContext) -> Expr:
    x = node.tensor("self")
    if node.overload == "decimals" and node.integer("decimals"):
        node.unsupported("decimals")
    return node.onnx(_ROUNDING[node.name], x) if dtype_of(x).is_float else x


def _truncated(node: AtenContext) -> Expr:
    return truncate(node, node.tensor("self"))


def truncate(node: AtenContext, x: Expr) -> Expr:
    """Round towards zero."""
    if not dtype_of(x).is_float:
        return x
    size = node.call(unary.Floor, node.call(unary.Abs, x))
    return node.call(binary.Multiply, node.call(unary.Sign, x), size)


def _arithmetic(node: AtenContext) -> Expr:
    op = _ARITHMETIC[node.name]
    if node.dtype is DType.BOOL:
        if op not in _LOGICAL_FORM:
            op = "Or" if op == "Max" else "And"
        op = _LOGICAL_FORM.get(op, op)
    return node.onnx(op, node.value("self", node.dtype), node.value("other", node.dtype))


def _sum(node: AtenContext) -> Expr:
    """``add``, ``sub`` and ``rsub``, with ``alpha``."""
    left, right = node.value("self", node.dtype), node.value("other", node.dtype)
    if node.name == "rsub":
        left, right = right, left
    alpha = node.args.get("alpha", 1)
    if alpha != 1:
        if node.name == "rsub":
            node.unsupported(f"alpha={alpha}")
        right = node.call(binary.Multiply, right, node.as_tensor(alpha, node.dtype))
    if node.dtype is DType.BOOL:
        return node.call(binary.LogicalOr, left, right)
    return node.call(binary.Add if node.name == "add" else binary.Subtract, left, right)


def _divided(node: AtenContext) -> Expr:
    mode = node.args.get("rounding_mode")
    mode = "floor" if node.name == "floor_divide" else mode
    left, right = node.value("self", node.dtype), node.value("other", node.dtype)
    if mode is None or node.dtype.is_float:
        quotient = node.call(binary.Divide, left, right)
        if mode == "floor":
            return node.call(unary.Floor, quotient)
        return truncate(node, quotient) if mode == "trunc" else quotient
    if mode == "trunc":
        return node.call(binary.Divide, left, right)  # C's division of integers
    rest = node.call(binary.FloorMod, left, right)
    return node.call(binary.Divide, node.call(binary.Subtract, left, rest), right)


def _remainder(node: AtenContext) -> Expr:
    left, right = node.value("self", node.dtype), node.value("other", node.dtype)
    op = binary.FloorMod if node.name == "remainder" else binary.TruncMod
    return node.call(op, left, right)


def _compared(node: AtenContext) -> Expr:
    kind = common_type(node, "self", "other")
    op = _COMPARISONS[node.name]
    return node.call(op, node.value("self", kind), node.value("other", kind))


def common_type(node: AtenContext, *names: str) -> DType:
    """Return the type in which arguments are compared, where numbers yield to tensors."""
    tensors = [dtype_of(x) for x in map(node.optional, names) if x is not None]
    found = max(tensors, key=_ORDER.index) if tensors else DType.INT64
    if {DType.FLOAT16, DType.BFLOAT16} <= set(tensors):
        found = DType.FLOAT32
    numbers = [node.args.get(name) for name in names if node.optional(name) is None]
    if any(isinstance(number, float) for number in numbers) and not found.is_float:
        return DType.FLOAT32
    if found is DType.BOOL and any(not isinstance(number, bool) for number in numbers):
        return DType.INT64
    return found


def _logical(node: AtenContext) -> Expr:
    op = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}[node.name]
    return node.onnx(op, truth(node, node.tensor("self")), truth(node, node.tensor("other")))


def truth(node: AtenContext, x: Expr) -> Expr:
    """Return where elements are not zero."""
    if dtype_of(x) is DType.BOOL:
        return x
    return node.call(compare.NotEqual, x, node.scalar(0, dtype_of(x)))


def _logical_not(node: AtenContext) -> Expr:
    return node.call(unary.LogicalNot, truth(node, node.tensor("self")))


def _bitwise_not(node: AtenContext) -> Expr:
    x = node.tensor("self")
    return node.onnx("Not" if node.dtype is DType.BOOL else "BitwiseNot", x)


def _tested(node: AtenContext) -> Expr:
    x = node.tensor("self")
    if not dtype_of(x).is_float:
        return node.full(node.sizes, 0, DType.BOOL)
    return node.call({"isnan": unary.Isnan, "isinf": unary.Isinf}[node.name], x)


def _power(node: AtenContext) -> Expr:
    exponent = node.args.get("exponent")
    base = node.value("self", node.dtype)
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        if exponent == 2:
            return node.call(binary.Multiply, base, base)
        if exponent == 1:
            return base
        if exponent == 0.5 and node.dtype.is_float:
            return node.call(unary.Sqrt, base)
        if exponent == -0.5 and node.dtype.is_float:
            return node.call(unary.Rsqrt, base)
    return node.call(binary.Power, base, node.value("exponent", node.dtype))


def _clamped(node: AtenContext) -> Expr:
    x = node.value("self", node.dtype)
    for name, op in (("min", binary.Maximum), ("max", binary.Minimum)):
        if node.args.get(name) is not None:
            x = node.call(op, x, node.value(name, node.dtype))
    return x


def _where(node: AtenContext) -> Expr:
    condition = truth(node, node.tensor("condition"))
    return node.call(
        compare.Where, condition, node.value("self", node.dtype), node.value("other", node.dtype)
    )


def _masked_fill(node: AtenContext) -> Expr:
    mask = truth(node, node.tensor("mask"))
    return node.call(compare.Where, mask, node.value("value", node.dtype), node.tensor("self"))


def _added_product(node: AtenContext) -> Expr:
    op = binary.Multiply if node.name == "addcmul" else binary.Divide
    made = node.call(op, node.value("tensor1", node.dtype), node.value("tensor2", node.dtype))
    if node.args.get("value", 1) != 1:
        made = node.call(binary.Multiply, made, node.value("value", node.dtype))
    return node.call(binary.Add, node.value("self", node.dtype), made)


def _interpolated(node: AtenContext) -> Expr:
    start, end = node.tensor("self"), node.tensor("end")
    change = node.call(binary.Subtract, end, start)
    change = node.call(binary.Multiply, change, node.value("weight", node.dtype))
    return node.call(binary.Add, start, change)


def _scaled_log(node: AtenContext) -> Expr:
    base = {"log2": math.log(2), "log10": math.log(10)}[node.name]
    found = node.call(unary.Log, node.cast(node.tensor("self"), node.dtype))
    return node.call(binary.Multiply, found, node.scalar(1 / base, node.dtype))


def _near_zero(node: AtenContext) -> Expr:
    op = {"expm1": near_zero.Expm1, "log1p": near_zero.Log1p}[node.name]
    return node.call(op, node.cast(node.tensor("self"), node.dtype))


def _rsqrt(node: AtenContext) -> Expr:
    return node.call(unary.Rsqrt, node.cast(node.tensor("self"), node.dtype))


def _square(node: AtenContext) -> Expr:
    return node.call(binary.Multiply, node.tensor("self"), node.tensor("self"))


CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **dict.fromkeys(_UNARY, _unary),
        **dict.fromkeys(_ROUNDING, _rounded),
        **dict.fromkeys(_ARITHMETIC, _arithmetic),
        **dict.fromkeys(_COMPARISONS, _compared),
        **dict.fromkeys(("add", "sub", "rsub"), _sum),
        **dict.fromkeys(("div", "floor_divide"), _divided),
        **dict.fromkeys(("fmod", "remainder"), _remainder),
        **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), _logical),
        **dict.fromkeys(("isnan", "isinf"), _tested),
        **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), _clamped),
        **dict.fromkeys(("addcmul", "addcdiv"), _added_product),
        **dict.fromkeys(("log2", "log10"), _scaled_log),
        **dict.fromkeys(("expm1", "log1p"), _near_zero),
        "bitwise_not": _bitwise_not,
        "lerp": _interpolated,
        "logical_not": _logical_not,
        "masked_fill": _masked_fill,
        "pow": _power,
        "rsqrt": _rsqrt,
        "square": _square,
        "trunc": _truncated,
        "where": _where,
    }
)

__all__ = ["CONVERTERS", "common_type", "truncate", "truth"]
