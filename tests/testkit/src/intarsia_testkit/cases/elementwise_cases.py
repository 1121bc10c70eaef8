# SPDX-License-Identifier: Apache-2.0
"""Calls of operators that take one element of every operand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.arrays import numpy_dtype
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

from .case import Case, random_array

SHAPES = ((), (1,), (17,), (3, 33), (2, 1, 3, 5), (0, 3), (1000,))
PAIRS = (
    ((17,), (17,)),
    ((3, 33), (33,)),
    ((3, 33), (3, 1)),
    ((), (2, 3)),
    ((4, 1, 7), (2, 1)),
    ((2, 5, 1, 1), (2, 5, 3, 3)),
    ((0, 3), (1, 3)),
)
INTERVALS: Mapping[str, tuple[float, float]] = {
    "log": (0.01, 30),
    "sqrt": (0, 30),
    "rsqrt": (0.01, 30),
    "tan": (-1.4, 1.4),
    "asin": (-1, 1),
    "acos": (-1, 1),
    "acosh": (1.01, 30),
    "atanh": (-0.98, 0.98),
    "reciprocal": (0.1, 9),
    "exp": (-20, 20),
    "expm1": (-3, 3),
    "log1p": (-0.9, 9),
    "tanh": (-6, 6),
}
ATTRS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "clip": ({"min": -1.5, "max": 2.0}, {"min": 0.0}, {"max": -1.0}, {"min": 2.0, "max": 1.0}),
    "nn.leaky_relu": ({}, {"alpha": 0.3}),
    "nn.elu": ({"alpha": 1.5},),
    "nn.celu": ({"alpha": 2.0}, {"alpha": -1.5}),
    "nn.hard_sigmoid": ({}, {"alpha": 0.5, "beta": 0.6}),
    "nn.gelu": ({}, {"approximate": True}),
    "nn.thresholded_relu": ({"alpha": 0.7},),
    "nn.shrink": ({}, {"threshold": 0.7, "bias": 0.7}),
}
UNARY = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf"),
    *(
        "exp",
        "expm1",
        "floor",
        "isinf",
        "isnan",
        "log",
        "log1p",
        "logical_not",
        "negative",
        "reciprocal",
        "round",
    ),
    *("rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "clip", "nn.relu"),
    *("nn.leaky_relu", "nn.elu", "nn.selu", "nn.celu", "nn.hard_sigmoid", "nn.hard_swish"),
    *("nn.softplus", "nn.softsign", "nn.gelu", "nn.silu", "nn.mish", "nn.thresholded_relu"),
    "nn.shrink",
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "floor_mod"),
    *("trunc_mod", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or"),
    *(
        "left_shift",
        "right_shift",
        "bitwise_xor",
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    ),
)
ANGLES = {"sin", "cos", "tan"}


def accepts(name: str, *operands: np.ndarray, **attrs: Any) -> bool:
    """Whether the type rule of an operator takes these operands."""
    op = OPERATORS[name]
    types = (TensorType(x.shape, DType(x.dtype.name)) for x in operands)
    try:
        op.type_rule(op.Attrs(**attrs), *types)
    except TypeRuleError:
        return False
    return True


def edge_values(dtype: str) -> np.ndarray:
    """Values at which rules change: zeros, ones, limits; for floats infinities and NaN."""
    kind = DType(dtype)
    if kind is DType.BOOL:
        return np.array([False, True])
    if kind.is_integer:
        limits = np.iinfo(dtype)
        near = {-2, -1, 0, 1, 2, 3, 7, limits.min, limits.min + 1, limits.max - 1, limits.max}
        return np.array(sorted(v for v in near if limits.min <= v <= limits.max), dtype)
    limits = {"float16": (6e-8, 6e4), "bfloat16": (1e-40, 3e38), "float32": (1e-40, 3e38)}
    tiny, huge = limits.get(dtype, (5e-324, 1e308))
    large = {"float16": 2e4, "bfloat16": 1e9}.get(dtype, 3e9)
    positive = [0.0, tiny, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 88.0, 89.5, 1000.0, large, huge]
    values = [*positive, np.inf]
    return np.array([*values, *(-v for v in values), np.nan]).astype(numpy_dtype(kind))


def unary_cases() -> Iterator[Case]:
    """Every operator of one operand, every element type it takes."""
    rng = np.random.default_rng(1)
    for name in UNARY:
        low, high = INTERVALS.get(name, (-4.0, 4.0))
        for attrs in ATTRS.get(name, ({},)):
            for kind in DType:
                dtype = kind.value
                edges = edge_values(dtype)
                if not accepts(name, edges, **attrs):
                    continue
                shapes = SHAPES if dtype == "float32" else SHAPES[3:4]
                for shape in shapes:
                    yield Case(name, (random_array(rng, shape, dtype, low, high),), attrs)
                yield Case(name, (_meaningful(name, edges),), attrs)


def _meaningful(name: str, edges: np.ndarray) -> np.ndarray:
    """Leave out angles of which no digit is right."""
    if name not in ANGLES:
        return edges
    with np.errstate(invalid="ignore"):
        return edges[(np.abs(edges.astype(np.float64)) < 100) | ~np.isfinite(edges)]


def binary_cases() -> Iterator[Case]:
    """Every operator of two operands, every element type it takes, every way to broadcast."""
    rng = np.random.default_rng(2)
    for name in BINARY:
        for kind in DType:
            dtype = kind.value
            edges = edge_values(dtype)
            if not accepts(name, edges, edges):
                continue
            pairs = PAIRS if dtype in ("float32", "int32", "bool") else PAIRS[1:2]
            for left, right in pairs:
                least = 0.5 if name == "power" and kind.is_float else -4.0
                a = random_array(rng, left, dtype, least)
                b = random_array(rng, right, dtype, -4.0)
                yield Case(name, (a, b))
            first, second = np.meshgrid(edges, edges)
            yield Case(name, _comparable(name, first.ravel(), second.ravel()))


def _comparable(name: str, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave out pairs whose remainder has no right digit, as the quotient is too long."""
    if name not in ("floor_mod", "trunc_mod") or a.dtype.kind in "iub":
        return a, b
    with np.errstate(all="ignore"):
        quotient = np.abs(a.astype(np.float64) / b.astype(np.float64))
    kept = ~(quotient > 1e3) | ~np.isfinite(quotient)
    return a[kept], b[kept]


def other_cases() -> Iterator[Case]:
    """``where``, ``cast``, ``bitcast``, ``nn.prelu`` and ``nn.batch_norm``."""
    rng = np.random.default_rng(3)
    for kind in DType:
        dtype = kind.value
        for condition, left, right in (((5, 1), (17,), (5, 17)), ((), (33,), (1,))):
            truth = random_array(rng, condition, "bool")
            a, b = random_array(rng, left, dtype), random_array(rng, right, dtype)
            yield Case("where", (truth, a, b))
        for wanted in DType:
            yield Case("cast", (edge_values(dtype),), {"dtype": wanted})
            if accepts("bitcast", edge_values(dtype), dtype=wanted):
                yield Case("bitcast", (edge_values(dtype),), {"dtype": wanted})
        yield Case("cast", (random_array(rng, (3, 33), dtype),), {"dtype": DType.FLOAT32})
        if kind is not DType.BOOL:
            x, slope = random_array(rng, (2, 3, 17), dtype), random_array(rng, (3, 1), dtype)
            yield Case("nn.prelu", (x, slope))
            yield Case("nn.prelu", (x, random_array(rng, (1,), dtype)))
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for shape in ((2, 3), (2, 5, 7), (1, 17, 3, 5), (2, 16, 4, 4), (1, 3, 2, 3, 2)):
            x = random_array(rng, shape, dtype)
            vectors = [random_array(rng, shape[1:2], dtype, -1, 1) for _ in range(3)]
            variance = random_array(rng, shape[1:2], dtype, 0.3, 2)
            yield Case("nn.batch_norm", (x, *vectors, variance), {"epsilon": 0.01})
