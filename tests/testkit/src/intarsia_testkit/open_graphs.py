# SPDX-License-Identifier: Apache-2.0
"""Graphs whose sizes only the run knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, constant, make_tuple
from intarsia_ir.graph.types import Size, TensorType, variable
from intarsia_ir.ops import OPERATORS
from intarsia_runtime.dtype import DType

N, S, H, W = (variable(name) for name in ("N", "S", "H", "W"))


def tokens() -> tuple[Function, list[tuple[int, ...]]]:
    """Products, softmax, normalization and element-wise work over sequences; shapes to run."""
    given = _input("tokens", N, S, 16)
    q, k, v = (_made("matmul", given, _weight(16, 16, seed=seed)) for seed in range(3))
    scores = _made("nn.softmax", _made("matmul", q, k, transpose_b=True), axis=2)
    summed = _made("add", given, _made("matmul", scores, v))
    normed = _made("nn.layer_norm", summed, _weight(16), _weight(16, seed=1), axis=2)
    grown = _made("nn.relu", _made("add", _made("matmul", normed, _weight(16, 24)), _weight(24)))
    body = make_tuple((grown, _made("mean", grown, axes=(1,))))
    sizes = ((1, 1), (2, 3), (1, 37), (3, 8), (2, 3), (1, 64))
    return Function((given,), body, ("grown", "means")), [(n, s, 16) for n, s in sizes]


def images() -> tuple[Function, list[tuple[int, ...]]]:
    """Convolutions, a pool and a mean over images of any height and width; shapes to run."""
    image = _input("image", N, 3, H, W)
    window = {"padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    data: Expr = image
    for outputs, inputs, stride in ((8, 3, 1), (12, 8, 2)):
        weights = (_weight(outputs, inputs, 3, 3), _weight(outputs))
        data = _made("nn.conv", data, *weights, strides=(stride, stride), **window)
        data = _made("nn.relu", data)
    pooled = _made("nn.max_pool", data, kernel=(3, 3), strides=(2, 2), **window)
    body = make_tuple((pooled, _made("mean", pooled, axes=(2, 3))))
    sizes = ((1, 8, 8), (2, 9, 13), (1, 31, 7), (2, 9, 13), (1, 1, 1))
    return Function((image,), body, ("pooled", "means")), [(n, 3, h, w) for n, h, w in sizes]


GRAPHS: Mapping[str, Callable[[], tuple[Function, list[tuple[int, ...]]]]] = MappingProxyType(
    {"tokens": tokens, "images": images}
)


def _input(name: str, *shape: Size) -> Var:
    return Var(name, TensorType(shape, DType.FLOAT32))


def _weight(*shape: int, seed: int = 0) -> Expr:
    rng = np.random.default_rng((*shape, seed))
    return constant((rng.random(shape, np.float32) - 0.5) / 2)


def _made(name: str, *args: Expr, **attrs: object) -> Call:
    operator = OPERATORS[name]
    return call(operator, *args, attrs=operator.Attrs(**attrs))
