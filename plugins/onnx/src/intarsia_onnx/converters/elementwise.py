# SPDX-License-Identifier: Apache-2.0
"""Operators that map elements to elements, with NumPy's broadcasting."""

from __future__ import annotations

from functools import reduce
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Expr
from intarsia_ir.ops import activation, binary, compare, unary
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.dtype import DType

from ..builder import dtype_of, rank_of, sizes_of
from ..context import NodeContext
from .random import dropped

_EXACT = 1 << 53  # integers up to here are floats

_UNARY = MappingProxyType(
    {
        "Abs": unary.Abs,
        "Acos": unary.Acos,
        "Acosh": unary.Acosh,
        "Asin": unary.Asin,
        "Asinh": unary.Asinh,
        "Atan": unary.Atan,
        "Atanh": unary.Atanh,
        "Ceil": unary.Ceil,
        "Cos": unary.Cos,
        "Cosh": unary.Cosh,
        "Erf": unary.Erf,
        "Exp": unary.Exp,
        "Floor": unary.Floor,
        "HardSwish": activation.HardSwish,
        "IsNaN": unary.Isnan,
        "Log": unary.Log,
        "Mish": activation.Mish,
        "Neg": unary.Negative,
        "Not": unary.LogicalNot,
        "Reciprocal": unary.Reciprocal,
        "Relu": activation.Relu,
        "Round": unary.Round,
        "Sigmoid": unary.Sigmoid,
        "Sign": unary.Sign,
        "Sin": unary.Sin,
        "Sinh": unary.Sinh,
        "Softplus": activation.Softplus,
        "Softsign": activation.Softsign,
        "Sqrt": unary.Sqrt,
        "Tan": unary.Tan,
        "Tanh": unary.Tanh,
    }
)
_BINARY = MappingProxyType(
    {
        "Add": binary.Add,
        "And": binary.LogicalAnd,
        "BitwiseAnd": binary.BitwiseAnd,
        "BitwiseOr": binary.BitwiseOr,
        "BitwiseXor": binary.BitwiseXor,
        "Div": binary.Divide,
        "Equal": compare.Equal,
        "Greater": compare.Greater,
        "GreaterOrEqual": compare.GreaterEqual,
        "Less": compare.Less,
        "LessOrEqual": compare.LessEqual,
        "Mul": binary.Multiply,
        "Or": binary.LogicalOr,
        "Sub": binary.Subtract,
        "Xor": binary.LogicalXor,
    }
)
_VARIADIC = MappingProxyType(
    {"Max": binary.Maximum, "Min": binary.Minimum, "Sum": binary.Add, "Mean": binary.Add}
)


def prelu(node: NodeContext) -> Expr:
    """Convert PRelu; before opset 7 a vector of slopes, one a channel, is not broadcast."""
    x, slope = node.input(0), node.input(1)
    sizes, rank = sizes_of(slope), rank_of(x)
    if len(sizes) == 1 and rank > 2 and sizes[0] == sizes_of(x)[1] != sizes_of(x)[-1]:
        slope = node.along(slope, 1, rank)
    return node.call(activation.Prelu, x, slope)


def map_unary(node: NodeContext) -> Expr:
    """Convert an operator of one operand that has the same meaning here."""
    return node.call(_UNARY[node.op_type], node.input(0))


def map_binary(node: NodeContext) -> Expr:
    """Convert an operator of two operands that has the same meaning here."""
    return node.call(_BINARY[node.op_type], node.input(0), node.input(1))


def map_variadic(node: NodeContext) -> Expr:
    """Convert Max, Min and Sum of any number of operands."""
    op = _VARIADIC[node.op_type]
    return reduce(lambda a, b: node.call(op, a, b), node.variadic())


def mean(node: NodeContext) -> Expr:
    """Convert Mean of any number of operands."""
    values = node.variadic()
    total = map_variadic(node)
    if len(values) == 1:
        return total
    return node.call(binary.Divide, total, node.scalar(len(values), dtype_of(total)))


def power(node: NodeContext) -> Expr:
    """Convert Pow; the exponent may have another type, the result has the base's."""
    base, exponent = node.input(0), node.input(1)
    wanted, other = dtype_of(base), dtype_of(exponent)
    if wanted is other:
        return node.call(binary.Power, base, exponent)
    if other.is_float and not wanted.is_float:
        raised = node.call(binary.Power, node.cast(base, other), exponent)
        return node.cast(raised, wanted)
    return node.call(binary.Power, base, node.cast(exponent, wanted))


def modulo(node: NodeContext) -> Expr:
    """Convert Mod: sign of the divisor, or of the dividend with ``fmod``."""
    op = binary.TruncMod if node.integer("fmod", 0) else binary.FloorMod
    return node.call(op, node.input(0), node.input(1))


def bitwise_not(node: NodeContext) -> Expr:
    """Convert BitwiseNot as exclusive or with all ones."""
    x = node.input(0)
    ones = np.iinfo(numpy_dtype(dtype_of(x))).max if dtype_of(x).is_unsigned else -1
    return node.call(binary.BitwiseXor, x, node.scalar(ones, dtype_of(x)))


def bit_shift(node: NodeContext) -> Expr:
    """Convert BitShift."""
    op = binary.LeftShift if node.string("direction") == "LEFT" else binary.RightShift
    return node.call(op, node.input(0), node.input(1))


def clip(node: NodeContext) -> Expr:
    """Convert Clip; the limits are attributes before opset 11 and operands since."""
    x = node.input(0)
    if node.opset < 11:
        low = node.number("min", -np.inf)
        high = node.number("max", np.inf)
        return node.call(unary.Clip, x, attrs=unary.Clip.Attrs(min=low, max=high))
    low_limit, high_limit = _limit(node, 1), _limit(node, 2)
    if low_limit is not None and high_limit is not None:
        return node.call(unary.Clip, x, attrs=unary.Clip.Attrs(min=low_limit[0], max=high_limit[0]))
    if node.optional(1) is not None:
        x = node.call(binary.Maximum, x, node.input(1))
    return x if node.optional(2) is None else node.call(binary.Minimum, x, node.input(2))


def _limit(node: NodeContext, index: int) -> tuple[float] | None:
    """Return a limit that a float holds exactly, infinity for one left out, else ``None``."""
    if node.optional(index) is None:
        return (-np.inf if index == 1 else np.inf,)
    value = node.constant_value(index)
    if value is None or value.size != 1:
        return None
    number = float(value.reshape(()).astype(np.float64))
    if value.dtype.kind in "iu" and abs(number) >= _EXACT:
        return None
    return (number,)


def where(node: NodeContext) -> Expr:
    """Convert Where."""
    return node.call(compare.Where, node.input(0), node.input(1), node.input(2))


def is_infinite(node: NodeContext) -> Expr:
    """Convert IsInf, which may look for one sign only."""
    x = node.input(0)
    positive, negative = node.integer("detect_positive", 1), node.integer("detect_negative", 1)
    infinite = node.call(unary.Isinf, x)
    if positive and negative:
        return infinite
    zero = node.scalar(0, dtype_of(x))
    if not positive and not negative:
        return node.call(binary.LogicalXor, infinite, infinite)
    side = node.call(compare.Greater if positive else compare.Less, x, zero)
    return node.call(binary.LogicalAnd, infinite, side)


def leaky_relu(node: NodeContext) -> Expr:
    """Convert LeakyRelu."""
    attrs = activation.LeakyRelu.Attrs(alpha=node.number("alpha", 0.01))
    return node.call(activation.LeakyRelu, node.input(0), attrs=attrs)


def elu(node: NodeContext) -> Expr:
    """Convert Elu."""
    attrs = activation.Elu.Attrs(alpha=node.number("alpha", 1.0))
    return node.call(activation.Elu, node.input(0), attrs=attrs)


def celu(node: NodeContext) -> Expr:
    """Convert Celu."""
    attrs = activation.Celu.Attrs(alpha=node.number("alpha", 1.0))
    return node.call(activation.Celu, node.input(0), attrs=attrs)


def selu(node: NodeContext) -> Expr:
    """Convert Selu; the defaults are the constants of the paper as float32."""
    attrs = activation.Selu.Attrs(
        alpha=node.number("alpha", 1.67326319217681884765625),
        gamma=node.number("gamma", 1.05070102214813232421875),
    )
    return node.call(activation.Selu, node.input(0), attrs=attrs)


def hard_sigmoid(node: NodeContext) -> Expr:
    """Convert HardSigmoid."""
    attrs = activation.HardSigmoid.Attrs(
        alpha=node.number("alpha", 0.2), beta=node.number("beta", 0.5)
    )
    return node.call(activation.HardSigmoid, node.input(0), attrs=attrs)


def thresholded_relu(node: NodeContext) -> Expr:
    """Convert ThresholdedRelu."""
    attrs = activation.ThresholdedRelu.Attrs(alpha=node.number("alpha", 1.0))
    return node.call(activation.ThresholdedRelu, node.input(0), attrs=attrs)


def gelu(node: NodeContext) -> Expr:
    """Convert Gelu, exact or by the tanh formula."""
    how = node.string("approximate", "none")
    if how not in ("none", "tanh"):
        raise node.model_error(f"approximate='{how}' is neither 'none' nor 'tanh'")
    attrs = activation.Gelu.Attrs(approximate=how == "tanh")
    return node.call(activation.Gelu, node.input(0), attrs=attrs)


def swish(node: NodeContext) -> Expr:
    """Convert Swish; alpha 1 is SiLU."""
    x, alpha = node.input(0), node.number("alpha", 1.0)
    if alpha == 1.0:
        return node.call(activation.Silu, x)
    scaled = node.call(binary.Multiply, x, node.scalar(alpha, dtype_of(x)))
    return node.call(binary.Multiply, x, node.call(unary.Sigmoid, scaled))


def shrink(node: NodeContext) -> Expr:
    """Convert Shrink: zero near zero, moved towards zero elsewhere; in float for integers."""
    x = node.input(0)
    if not dtype_of(x).is_float:
        return node.cast(_shrunk(node, node.cast(x, DType.FLOAT64)), dtype_of(x))
    return _shrunk(node, x)


def _shrunk(node: NodeContext, x: Expr) -> Expr:
    attrs = activation.Shrink.Attrs(
        threshold=node.number("lambd", 0.5), bias=node.number("bias", 0.0)
    )
    return node.call(activation.Shrink, x, attrs=attrs)


def identity(node: NodeContext) -> Expr:
    """Convert Identity: the operand itself."""
    return node.input(0)


def dropout(node: NodeContext) -> tuple[Expr, ...]:
    """Convert Dropout: at inference the operand itself, and a mask that drops nothing.

    Where the run says which it is, it drops a part of 0 at inference.
    """
    x = node.input(0)
    is_known = node.is_fixed(2)
    if not is_known or (node.optional(2) is not None and node.required_scalar(2, "training_mode")):
        ratio = node.scalar(0.5, DType.FLOAT32) if node.optional(1) is None else node.input(1)
        if not is_known:
            nothing = node.scalar(0.0, dtype_of(ratio))
            ratio = node.call(compare.Where, node.input(2), ratio, nothing)
        return dropped(node, x, ratio)
    if not node.wants(1):
        return (x,)
    if rank_of(x) and not node.type_of(0).is_static:
        raise node.unsupported("the mask of a tensor of unknown shape is used")
    mask_type = DType.BOOL if node.opset >= 10 else dtype_of(x)
    return x, node.full(node.static_shape(0), 1, mask_type)


CONVERTERS = MappingProxyType(
    {
        **dict.fromkeys(_UNARY, map_unary),
        **dict.fromkeys(_BINARY, map_binary),
        **dict.fromkeys(_VARIADIC, map_variadic),
        "BitShift": bit_shift,
        "PRelu": prelu,
        "BitwiseNot": bitwise_not,
        "Celu": celu,
        "Clip": clip,
        "Dropout": dropout,
        "Elu": elu,
        "Gelu": gelu,
        "HardSigmoid": hard_sigmoid,
        "Identity": identity,
        "IsInf": is_infinite,
        "LeakyRelu": leaky_relu,
        "Mean": mean,
        "Mod": modulo,
        "Pow": power,
        "Selu": selu,
        "Shrink": shrink,
        "Swish": swish,
        "ThresholdedRelu": thresholded_relu,
        "Where": where,
    }
)
