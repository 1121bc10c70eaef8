# SPDX-License-Identifier: Apache-2.0
"""The matrix of :mod:`matrix`, of 8-bit integers: operators, what follows, layouts, types."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia_ir.graph.expr import Constant, Expr, Var, constant
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, expected, function_of, number

from .matrix import LAYOUTS, Shape, in_layouts, sizes
from .regions import verdicts

Make = Callable[[Expr], Expr]

RNG = np.random.default_rng(5)


def given(name: str, shape: Shape, dtype: DType) -> Var:
    """A parameter."""
    return Var(name, TensorType(shape, dtype))


def kind_of(x: Expr) -> DType:
    """Return the element type of an expression."""
    assert isinstance(x.type, TensorType)
    return x.type.dtype


def zero(value: int, dtype: DType) -> Constant:
    """A zero point; the data's differ from 0."""
    return constant(np.asarray(value, dtype.value))


def _ints(low: int, high: int, shape: Shape, dtype: str) -> Constant:
    return constant(RNG.integers(low, high, shape).astype(dtype))


def _window(rank: int, size: int) -> dict[str, Any]:
    low = size // 2
    pads = ((low, size - 1 - low),) * rank
    return {"strides": (1,) * rank, "padding": pads, "dilation": (1,) * rank}


def _conv(outputs: int, size: int, x_zero: int, *, groups: bool = False) -> Make:
    def make(x: Expr) -> Expr:
        channels, rank = sizes(x)[1], len(sizes(x)) - 2
        many = channels if groups else outputs
        shape = (many, 1 if groups else channels, *(size,) * rank)
        scales = constant(RNG.uniform(0.001, 0.003, many).astype(np.float32))
        operands = [x, number(0.02), zero(x_zero, kind_of(x)), _ints(-127, 127, shape, "int8")]
        operands += [scales, zero(0, DType.INT8), number(0.05), zero(9, kind_of(x))]
        operands.append(_ints(-4000, 4000, (many,), "int32"))
        settings = {**_window(rank, size), "groups": channels if groups else 1}
        return apply("qnn.conv", *operands, **settings)

    return make


def _deconv(x: Expr) -> Expr:
    channels, rank = sizes(x)[1], len(sizes(x)) - 2
    operands = [x, number(0.02), zero(3, kind_of(x))]
    operands += [_ints(-127, 127, (channels, 8, *(3,) * rank), "int8"), number(0.002)]
    operands += [zero(0, DType.INT8), number(0.07), zero(9, kind_of(x))]
    return apply("qnn.conv_transpose", *operands, **_window(rank, 3))


def _matmul(x: Expr) -> Expr:
    operands = [x, number(0.02), zero(7, kind_of(x))]
    operands += [_ints(-127, 127, (sizes(x)[-1], 16), "int8"), number(0.002), zero(0, DType.INT8)]
    return apply("qnn.matmul", *operands, number(0.05), zero(30, kind_of(x)))


def _sum(name: str) -> Make:
    def make(x: Expr) -> Expr:
        y = given("y", sizes(x), kind_of(x))
        operands = [x, number(0.05), zero(9, kind_of(x)), y, number(0.03), zero(4, kind_of(x))]
        return apply(name, *operands, number(0.061), zero(30, kind_of(x)))

    return make


def _rescaled(name: str) -> Make:
    def make(x: Expr) -> Expr:
        kind, rank = kind_of(x), len(sizes(x)) - 2
        operands = [x, number(0.0505), zero(20, kind), number(0.03), zero(9, kind)]
        if name == "qnn.mean":
            return apply(name, *operands, axes=tuple(range(2, rank + 2)), keepdims=True)
        if name == "qnn.avg_pool":
            return apply(name, *operands, kernel=(3,) * rank, **_window(rank, 3))
        return apply(name, *operands)

    return make


def _max_pool(x: Expr) -> Expr:
    rank = len(sizes(x)) - 2
    return apply("nn.max_pool", x, kernel=(3,) * rank, **_window(rank, 3))


def _dequantize(x: Expr) -> Expr:
    return apply("qnn.dequantize", x, number(0.021), zero(11, kind_of(x)))


def _concat(x: Expr) -> Expr:
    return apply("concatenate", x, given("y", sizes(x), kind_of(x)), axis=1)


def _transpose(x: Expr) -> Expr:
    return apply("transpose", x, axes=(0, *range(2, len(sizes(x))), 1))


BASES: Mapping[str, Make] = {
    "conv1": _conv(16, 1, 0),
    "conv1 with zero": _conv(17, 1, 3),
    "conv3": _conv(16, 3, 3),
    "conv3 to 3": _conv(3, 3, 0),
    "depthwise": _conv(0, 3, 3, groups=True),
    "deconv": _deconv,
    "matmul": _matmul,
    "add": _sum("qnn.add"),
    "subtract": _sum("qnn.subtract"),
    "mean": _rescaled("qnn.mean"),
    "avg_pool": _rescaled("qnn.avg_pool"),
    "requantize": _rescaled("qnn.requantize"),
    "max_pool": _max_pool,
    "concat": _concat,
    "transpose": _transpose,
}
"""Name of an operator, with its size, to what makes it of bytes."""

AFTER: Mapping[str, Make] = {
    "": lambda y: y,
    "limits": lambda y: apply("clip", y, min=20.0, max=90.0),
    "add": lambda y: _sum("qnn.add")(y),
    "max_pool": _max_pool,
    "dequantize": _dequantize,
    "dequantize relu": lambda y: apply("nn.relu", _dequantize(y)),
    "requantize": _rescaled("qnn.requantize"),
    "conv1": _conv(8, 1, 5),
}
"""Name of what follows, to what makes it."""

SHAPES: tuple[Shape, ...] = (
    *((1, channels, 5, 7) for channels in (1, 3, 8, 16, 17, 32)),
    *((2, 16, 3, 4), (1, 24, 1, 1), (2, 17, 1, 1), (1, 64, 6, 6)),
    *((1, 3, 11), (2, 16, 9), (1, 17, 1), (1, 8, 2, 3, 4), (3, 40)),
)


@dataclass(frozen=True)
class Case:
    """A function of bytes, and the layouts of its inputs."""

    base: str
    after: str
    shape: Shape
    layouts: tuple[str, str]
    dtype: DType

    @property
    def id(self) -> str:
        """Name it in a report."""
        size = "x".join(map(str, self.shape))
        return f"{self.base}+{self.after}-{size}-{'-'.join(self.layouts)}-{self.dtype.value}"

    def body(self) -> Expr | None:
        """Return the function's body; ``None`` if there is none, or the plugin does not take it."""
        try:
            body = AFTER[self.after](BASES[self.base](given("x", self.shape, self.dtype)))
        except Exception:  # a type rule: no such operator on this shape
            return None
        return body if all(verdicts(body).values()) else None

    def wrong(self) -> str | None:
        """Say what is wrong, or nothing; ``None`` if the case is none."""
        body = self.body()
        if body is None:
            return None
        function = function_of(body)
        names = {"x": self.layouts[0], "y": self.layouts[1]}
        r = np.random.default_rng([*self.shape])
        arrays = [_bytes(r, sizes(param), kind_of(param)) for param in function.params]
        (wanted,) = expected(function, arrays)
        layouts = tuple(names[param.name] for param in function.params)
        kernels, found = in_layouts(function, layouts, arrays, wanted.dtype)
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        steps = sum(call.name.startswith("qnn.") for call in calls(function))
        quantum = 0.0211 if wanted.dtype == np.float32 else 1.0
        if apart.max(initial=0) <= steps * quantum and (apart > 1e-5).sum() <= max(
            3, 0.03 * steps * apart.size
        ):
            return ""
        return f"{self.id} ({', '.join(kernels)}): {apart.max()} apart, {(apart > 1e-5).sum()}"


def _bytes(r: np.random.Generator, shape: Shape, dtype: DType) -> np.ndarray:
    limits = np.iinfo(dtype.value)
    return r.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype.value)


def sampled(count: int, seed: int = 0) -> Iterator[Case]:
    """Draw cases, of every operator with what may follow as many."""
    for base, after in itertools.product(BASES, AFTER):
        r = random.Random(f"{seed} {base} {after}")
        for _ in range(count):
            shape = r.choice(SHAPES)
            layouts = LAYOUTS if len(shape) > 2 else ("plain", "swapped")
            dtype = r.choice([DType.UINT8, DType.INT8])
            yield Case(base, after, shape, (r.choice(layouts), r.choice(layouts)), dtype)
