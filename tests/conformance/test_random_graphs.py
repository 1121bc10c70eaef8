# SPDX-License-Identifier: Apache-2.0
"""Random graphs on every target equal the reference executor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Expr

from .targets import TARGETS
from .test_fusion import PADDED, Graph

SMOOTH = ("tanh", "sigmoid", "nn.relu", "nn.gelu", "nn.silu", "abs", "sin", "nn.hard_swish", "erf")
PAIRED = ("add", "subtract", "multiply", "maximum", "minimum")
STATISTICS = ("sum", "mean", "max", "min")
SIZES = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16, 17, 33])


def grow(data: st.DataObject, g: Graph, values: list[Expr]) -> Expr:
    """One more call on some of the values."""
    x = data.draw(st.sampled_from(values))
    shape = x.type.shape
    moves = ["smooth", "pair", "broadcast", "reduce", "transpose", "flat", "product", "concatenate"]
    moves += ["pad", "cut"]
    moves += ["convolve", "depthwise", "pool"] if len(shape) == 4 else []
    moves += ["softmax", "normalize"] if shape else []
    match data.draw(st.sampled_from(moves)):
        case "smooth":
            return g.apply(data.draw(st.sampled_from(SMOOTH)), x)
        case "pair":
            alike = [value for value in values if value.type == x.type]
            return g.apply(data.draw(st.sampled_from(PAIRED)), x, data.draw(st.sampled_from(alike)))
        case "broadcast":
            kept = [size if data.draw(st.booleans()) else 1 for size in shape]
            other = g.weight(*kept) if data.draw(st.booleans()) else g.var(*kept)
            return g.apply(data.draw(st.sampled_from(PAIRED)), x, other)
        case "reduce":
            axes = tuple(axis for axis in range(len(shape)) if data.draw(st.booleans()))
            keep = data.draw(st.booleans())
            name = data.draw(st.sampled_from(STATISTICS))
            return g.apply(name, x, axes=axes, keepdims=keep)
        case "transpose":
            axes = tuple(data.draw(st.permutations(range(len(shape)))))
            return g.apply("transpose", x, axes=axes)
        case "flat":
            return g.apply("reshape", x, shape=(-1,) if len(shape) != 1 else (1, 1, *shape, 1))
        case "product":
            depth = shape[-1] if len(shape) > 1 else 1
            rows = x if len(shape) > 1 else g.apply("reshape", x, shape=(-1, 1))
            return g.apply("matmul", rows, g.weight(depth, data.draw(SIZES)))
        case "concatenate":
            if not shape:
                return g.apply("tanh", x)
            axis = data.draw(st.integers(0, len(shape) - 1))
            return g.apply("concatenate", x, g.apply("nn.relu", x), axis=axis)
        case "pad":
            widths = tuple((data.draw(st.integers(0, 2)), 0) for _ in shape)
            return g.apply("nn.pad", x, widths=widths, value=0.5)
        case "cut":
            begin = tuple(data.draw(st.integers(0, size - 1)) for size in shape)
            return g.apply("strided_slice", x, begin=begin, end=shape, strides=(1,) * len(shape))
        case "convolve":
            return g.apply("nn.conv", x, g.weight(data.draw(SIZES), shape[1], 3, 3), **PADDED)
        case "depthwise":
            weight = g.weight(shape[1], 1, 3, 3)
            return g.apply("nn.conv", x, weight, g.weight(shape[1]), groups=shape[1], **PADDED)
        case "pool":
            return g.apply("nn.max_pool", x, kernel=(3, 3), **PADDED)
        case "softmax":
            return g.apply("nn.softmax", x, axis=data.draw(st.integers(0, len(shape) - 1)))
        case _:
            scaled = g.apply("tanh", x)
            return g.apply("nn.rms_norm", scaled, g.weight(shape[-1]), axis=len(shape) - 1)


@pytest.mark.parametrize("target", TARGETS)
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_graph(target: str, data: st.DataObject) -> None:
    g = Graph(np.random.default_rng(data.draw(st.integers(0, 1000))))
    values: list[Expr] = []
    for _ in range(data.draw(st.integers(1, 2))):
        shape = data.draw(st.lists(SIZES, min_size=0, max_size=3).map(tuple))
        values.append(g.var(*shape))
    values.append(g.var(data.draw(st.integers(1, 2)), data.draw(SIZES), 5, 6))
    for _ in range(data.draw(st.integers(3, 12))):
        made = grow(data, g, values)
        if made.type.elements <= 20_000:
            # Values stay near 1, so that errors stay comparable.
            values.append(g.apply("clip", made, min=-9.0, max=9.0))
    count = data.draw(st.integers(1, 3))
    g.check(target, values[-count:])
