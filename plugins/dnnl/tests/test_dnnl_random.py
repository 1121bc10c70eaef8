# SPDX-License-Identifier: Apache-2.0
"""Random graphs: layouts, views, fusions and in-place sums must not change what is computed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from intarsia_ir.graph.expr import Call, Expr, make_tuple
from intarsia_testkit.expressions import apply, number, var, weight

from .regions import check, verdicts

Shape = tuple[int, ...]


def shape_of(x: Expr) -> Shape:
    return x.type.static_shape


def conv(r: random.Random, x: Expr) -> Call:
    shape = shape_of(x)
    groups = shape[1] if r.random() < 0.3 else 1
    outputs = shape[1] if groups > 1 else r.choice([4, 16, 17])
    kernel = r.choice([1, 3])
    weights = weight(outputs, shape[1] // groups, *(kernel,) * (len(shape) - 2), seed=r.random())
    rank = len(shape) - 2
    pads = ((kernel // 2, kernel // 2),) * rank
    attrs = {"strides": (1,) * rank, "padding": pads, "dilation": (1,) * rank, "groups": groups}
    # Kept small, so that long chains stay comparable.
    y = apply("nn.conv", x, weights, **attrs)
    return apply("multiply", y, number(1 / (kernel * kernel * shape[1] ** 0.5)))


def matmul(r: random.Random, x: Expr) -> Call:
    size = r.choice([4, 8, 17])
    y = apply("matmul", x, weight(shape_of(x)[-1], size, seed=r.random()))
    return apply("divide", y, number(shape_of(x)[-1] ** 0.5))


def attend(r: random.Random, x: Expr) -> Call:
    scores = apply("matmul", x, x, transpose_b=True)
    return apply("matmul", apply("nn.softmax", scores, axis=len(shape_of(x)) - 1), x)


def unary(r: random.Random, x: Expr) -> Call:
    return apply(r.choice(["nn.relu", "tanh", "sigmoid", "abs", "nn.gelu", "nn.silu"]), x)


def binary(r: random.Random, x: Expr) -> Call:
    shape = shape_of(x)
    forms: list[Shape] = [shape, (1,), shape[-1:], (1, *shape[1:])]
    if len(shape) > 2:
        forms.append((shape[1], *(1,) * (len(shape) - 2)))
        forms.append((shape[0], *(1,) * (len(shape) - 2), shape[-1]))
    other = weight(*r.choice(forms), seed=r.random())
    return apply(r.choice(["add", "subtract", "multiply"]), x, other)


def transpose(r: random.Random, x: Expr) -> Call:
    axes = list(range(len(shape_of(x))))
    r.shuffle(axes)
    return apply("transpose", x, axes=tuple(axes))


def reshape(r: random.Random, x: Expr) -> Call:
    shape = list(shape_of(x))
    place = r.randrange(len(shape) - 1)
    merged = (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])
    return apply("reshape", x, shape=merged if len(shape) > 3 else (1, *shape))


def part(r: random.Random, x: Expr) -> Call:
    shape = shape_of(x)
    begin = tuple(r.randrange(2) if size > 2 else 0 for size in shape)
    return apply("strided_slice", x, begin=begin, end=shape, strides=(1,) * len(shape))


def concat(r: random.Random, x: Expr) -> Call:
    axis = r.randrange(len(shape_of(x)))
    return apply("concatenate", x, apply("negative", x), axis=axis)


def reduction(r: random.Random, x: Expr) -> Call:
    axes = tuple(sorted(r.sample(range(len(shape_of(x))), r.randrange(1, 3))))
    return apply(r.choice(["mean", "max"]), x, axes=axes, keepdims=True)


def normalize(r: random.Random, x: Expr) -> Call:
    shape = shape_of(x)
    if r.random() < 0.5:
        return apply("nn.softmax", x, axis=r.randrange(len(shape)))
    last = len(shape) - 1
    scale, bias = weight(shape[last]), weight(shape[last], seed=2)
    return apply("nn.layer_norm", x, scale, bias, axis=last, epsilon=1e-2)


def pool(r: random.Random, x: Expr) -> Call:
    rank = len(shape_of(x)) - 2
    kernel = (2,) * rank
    pads = ((0, 1),) * rank
    attrs = {"kernel": kernel, "strides": (1,) * rank, "padding": pads, "dilation": (1,) * rank}
    return apply(r.choice(["nn.max_pool", "nn.avg_pool"]), x, **attrs)


def resize(r: random.Random, x: Expr) -> Call:
    shape = shape_of(x)
    rule = r.choice(
        [("nearest", "asymmetric"), ("nearest", "half_pixel"), ("linear", "half_pixel")]
    )
    attrs = {"mode": rule[0], "coordinate_mode": rule[1], "nearest_mode": "floor"}
    if rule == ("nearest", "half_pixel"):
        attrs["nearest_mode"] = "round_prefer_floor"
    return apply("nn.resize", x, sizes=(*shape[:2], *(2 * size for size in shape[2:])), **attrs)


STEPS: list[Callable[[random.Random, Expr], Call]] = [
    *(conv, conv, matmul, matmul, attend, unary, unary, binary, binary, binary),
    *(transpose, reshape, part, concat, reduction, normalize, pool, resize),
]


def random_graph(seed: int) -> Expr:
    r = random.Random(seed)
    values: list[Expr] = [var("x", *r.choice([(2, 4, 6, 5), (1, 16, 5, 5), (2, 6, 8)]))]
    for _ in range(14):
        x = values[-1] if r.random() < 0.8 else r.choice(values)
        step = r.choice(STEPS)
        images = len(shape_of(x)) in (3, 4)
        if step in (conv, pool, resize) and not images:
            continue
        same = [v for v in values if v is not x and shape_of(v) == shape_of(x)]
        y = apply("add", x, r.choice(same)) if same and r.random() < 0.5 else step(r, x)
        elements = 1
        for size in shape_of(y):
            elements *= size
        if all(verdicts(y).values()) and elements < 20000:
            values.append(y)
    outputs = [values[-1], *(v for v in values[1:-1] if r.random() < 0.1)]
    return make_tuple(outputs)


@pytest.mark.parametrize("seed", range(int(os.environ.get("DNNL_SEEDS", "60"))))
def test_random_graph(seed: int) -> None:
    check(random_graph(seed), tolerance=5e-4)


@pytest.mark.parametrize("isa", ["SSE41", "AVX2"])
def test_random_graphs_on_older_processors(isa: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(
        [*command, "-k", "test_random_graph and not older"],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa, "DNNL_SEEDS": "25"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
