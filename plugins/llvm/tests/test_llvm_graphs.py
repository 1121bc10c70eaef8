# SPDX-License-Identifier: Apache-2.0
"""Small graphs compiled and run, against the NumPy definition of every operator."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Function, Var, call, constant, get_item, make_tuple
from intarsia_ir.graph.types import TensorType
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.activation import Gelu, Relu
from intarsia_ir.ops.binary import Add, Multiply
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.ops.nn import Conv, Matmul
from intarsia_ir.ops.normalization import LayerNorm
from intarsia_ir.ops.pooling import AvgPool, MaxPool, PoolAttrs
from intarsia_ir.ops.reduce import Max as MaxOver
from intarsia_ir.ops.reduce import Mean
from intarsia_ir.ops.shape import Concatenate, Reshape, Split, Transpose
from intarsia_ir.ops.slicing import Pad, StridedSlice
from intarsia_ir.ops.softmax import Softmax
from intarsia_ir.ops.unary import Sigmoid, Tanh
from intarsia_runtime.artifact.plan import KernelStep
from intarsia_runtime.dtype import DType

RNG = np.random.default_rng(7)
MACHINES = ("native", "haswell", "x86-64")


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def weights(*shape):
    return constant(normal(*shape))


def image(*shape, name="x"):
    return Var(name, TensorType(shape, DType.FLOAT32))


def conv(x, weight, *bias, strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), groups=1):
    attrs = Conv.Attrs(strides=strides, padding=padding, dilation=dilation, groups=groups)
    return call(Conv, x, weight, *bias, attrs=attrs)


def same(n=1):
    return ((n, n), (n, n))


def agree(runner, body, *params, tolerance=2e-5, **options):
    """Compile ``body`` and compare with its definition; return the rewritten function."""
    function = Function(params, body)
    inputs = [normal(*p.type.shape) for p in params]
    want = evaluate(function, {p.name: a for p, a in zip(params, inputs, strict=True)})
    got, changed, lowered = runner(function, *inputs, **options)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1, np.abs(b).max()))
    return changed, lowered


def names(function):
    return [node.name for node in calls(function)]


CONVS = {
    "3x3": lambda: (image(1, 32, 14, 14), (64, 32, 3, 3), {"padding": same()}),
    "point": lambda: (image(1, 48, 9, 9), (70, 48, 1, 1), {}),
    "point-batch": lambda: (image(3, 8, 5, 7), (33, 8, 1, 1), {}),
    "few-outputs": lambda: (image(1, 5, 12, 11), (3, 5, 3, 3), {"padding": same()}),
    "7x7-stride-2": lambda: (
        image(1, 3, 31, 31),
        (16, 3, 7, 7),
        {"padding": same(3), "strides": (2, 2)},
    ),
    "point-stride": lambda: (image(2, 16, 13, 13), (40, 16, 1, 1), {"strides": (2, 2)}),
    "dilated": lambda: (
        image(1, 6, 15, 15),
        (20, 6, 3, 3),
        {"padding": same(2), "dilation": (2, 2)},
    ),
    "groups": lambda: (image(2, 12, 9, 9), (24, 4, 3, 3), {"padding": same(), "groups": 3}),
    "lopsided": lambda: (
        image(1, 7, 10, 6),
        (9, 7, 2, 5),
        {"padding": ((0, 1), (3, 1)), "strides": (1, 3)},
    ),
    "no-padding": lambda: (image(1, 4, 8, 8), (8, 4, 3, 3), {}),
    "power-of-two": lambda: (image(1, 512, 7, 7), (96, 512, 1, 1), {}),
    "depthwise": lambda: (
        image(2, 20, 11, 9),
        (20, 1, 3, 3),
        {"padding": same(), "groups": 20},
    ),
    "depthwise-stride": lambda: (
        image(1, 48, 13, 13),
        (48, 1, 5, 5),
        {"padding": same(2), "groups": 48, "strides": (2, 2)},
    ),
    "depthwise-dilated": lambda: (
        image(1, 16, 9, 9),
        (16, 1, 3, 3),
        {"padding": same(3), "groups": 16, "dilation": (3, 3)},
    ),
    "multiplier": lambda: (image(1, 6, 7, 7), (12, 1, 3, 3), {"padding": same(), "groups": 6}),
}


EVERYWHERE = ("3x3", "groups", "depthwise")


@pytest.mark.parametrize(
    ("case", "machine"),
    [(case, "native") for case in CONVS]
    + [(case, machine) for case in EVERYWHERE for machine in MACHINES[1:]],
)
def test_convolution(runner, case, machine):
    x, shape, attrs = CONVS[case]()
    product = conv(x, weights(*shape), weights(shape[0]), **attrs)
    body = call(Relu, call(Add, product, weights(shape[0], 1, 1)))
    changed, _ = agree(runner, body, x, mcpu=machine, num_threads=1)
    assert "nn.conv" not in names(changed)


def test_convolution_with_everything_behind_it(runner):
    """A residual, which is the convolution's own input, and a gate of one number a channel."""
    x, gate = image(1, 32, 8, 8), image(1, 32, 1, 1, name="gate")
    product = conv(x, weights(32, 32, 3, 3), padding=same())
    body = call(Tanh, call(Multiply, call(Add, product, x), call(Sigmoid, gate)))
    agree(runner, body, x, gate)


def test_line_convolution(runner):
    x = image(2, 6, 20)
    attrs = Conv.Attrs(strides=(2,), padding=((1, 2),), dilation=(1,), groups=1)
    body = call(Conv, x, weights(10, 6, 5), weights(10), attrs=attrs)
    changed, _ = agree(runner, body, x)
    assert "cpu.conv" in names(changed)


POOLS = {
    "max": (MaxPool, PoolAttrs, (3, 3), (2, 2), same(), {}),
    "max-ceil": (MaxPool, PoolAttrs, (3, 3), (2, 2), same(0), {"ceil_mode": True}),
    "average": (AvgPool, AvgPool.Attrs, (2, 3), (1, 2), same(), {}),
    "average-padded": (AvgPool, AvgPool.Attrs, (3, 3), (2, 2), same(), {"count_include_pad": True}),
    "average-ceil": (
        AvgPool,
        AvgPool.Attrs,
        (3, 3),
        (2, 2),
        same(),
        {"count_include_pad": True, "ceil_mode": True},
    ),
}


@pytest.mark.parametrize("case", POOLS)
def test_pools(runner, case):
    op, attrs, kernel, strides, padding, more = POOLS[case]
    x = image(2, 3, 10, 13)
    inside = conv(x, weights(20, 3, 1, 1))
    pooled = call(
        op,
        inside,
        attrs=attrs(kernel=kernel, strides=strides, padding=padding, dilation=(1, 1), **more),
    )
    changed, _ = agree(runner, call(Relu, pooled), x)
    assert any(name in ("cpu.max_pool", "cpu.avg_pool") for name in names(changed))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("a", "b", "flags"),
    [
        ((7, 33), (33, 70), {}),
        ((1, 64), (64, 10), {}),
        ((2, 3, 40), (40, 16), {}),
        ((50, 1024), (1024, 64), {}),
        ((787, 33), (33, 70), {}),  # some rows are in two panels
        ((5, 9), (12, 9), {"transpose_b": True}),
    ],
)
def test_product_with_constant(runner, a, b, flags, machine):
    x = image(*a)
    product = call(Matmul, x, weights(*b), attrs=Matmul.Attrs(**flags))
    biased = call(Add, product, weights(product.type.shape[-1]))
    body = call(Gelu, biased, attrs=Gelu.Attrs())
    changed, _ = agree(runner, body, x, mcpu=machine, num_threads=1)
    assert "cpu.dense" in names(changed)


@pytest.mark.parametrize(
    ("a", "b", "flags"),
    [
        ((2, 3, 17, 24), (2, 3, 24, 40), {}),
        ((2, 3, 17, 24), (3, 40, 24), {"transpose_b": True}),
        ((4, 24, 17), (1, 24, 32), {"transpose_a": True}),
        ((5, 6), (2, 6, 7), {}),
        ((3, 3), (3, 3), {"transpose_a": True, "transpose_b": True}),
        ((2, 20, 70), (2, 51, 70), {"transpose_b": True}),
        ((19, 33), (16, 33), {"transpose_b": True}),
        ((3, 1, 70), (3, 70, 150), {}),
        ((3, 1, 70), (3, 45, 70), {"transpose_b": True}),
        ((2, 40, 70), (70, 1), {}),
    ],
)
def test_product_of_two_inputs(runner, a, b, flags):
    x, y = image(*a), image(*b, name="y")
    body = call(Relu, call(Matmul, x, y, attrs=Matmul.Attrs(**flags)))
    agree(runner, body, x, y, num_threads=2)


def test_only_borders_transpose(runner):
    x = image(1, 3, 16, 16)
    a = call(Relu, conv(x, weights(16, 3, 3, 3), padding=same()))
    b = conv(a, weights(16, 16, 1, 1))
    joined = call(Concatenate, a, b, attrs=Concatenate.Attrs(axis=1))
    parts = call(Split, joined, attrs=Split.Attrs(sections=(8, 24), axis=1))
    added = call(Multiply, get_item(parts, 1), weights(1, 24, 1, 1))
    padded = call(Pad, added, attrs=Pad.Attrs(widths=((0, 0), (0, 0), (1, 0), (0, 2))))
    cut = call(
        StridedSlice,
        padded,
        attrs=StridedSlice.Attrs(begin=(0, 1, 2, 3), end=(1, 21, 17, 18), strides=(1, 2, 1, 3)),
    )
    top = call(MaxOver, cut, attrs=MaxOver.Attrs(axes=(1,), keepdims=True))
    mean = call(Mean, call(Add, cut, top), attrs=Mean.Attrs(axes=(2, 3)))
    changed, _ = agree(runner, mean, x)
    assert names(changed).count("transpose") == 1


def test_both_forms_of_a_value(runner):
    """Results in the model's layout, a tuple of them, and transposes that are already done."""
    x = image(1, 4, 5, 6)
    a = conv(x, weights(8, 4, 1, 1))
    last = call(Transpose, a, attrs=Transpose.Attrs(axes=(0, 2, 3, 1)))
    soft = call(Softmax, last, attrs=Softmax.Attrs(axis=3))
    back = call(Transpose, soft, attrs=Transpose.Attrs(axes=(0, 3, 1, 2)))
    flat = call(Reshape, conv(back, weights(8, 8, 3, 3)), attrs=Reshape.Attrs(shape=(1, -1)))
    body = make_tuple((a, last, flat))
    agree(runner, body, x)


def test_rows(runner):
    """Softmax and normalization, whose sums run along a row."""
    x = image(3, 5, 40)
    normed = call(LayerNorm, x, weights(40), weights(40), attrs=LayerNorm.Attrs(axis=2))
    agree(runner, call(Softmax, normed, attrs=Softmax.Attrs(axis=2)), x)


def test_equal_kernels_are_compiled_once(runner):
    x = image(1, 32, 8, 8)
    body = x
    for _ in range(3):
        body = call(Relu, conv(body, weights(32, 32, 3, 3), padding=same()))
    _, lowered = agree(runner, body, x)
    steps = [s for s in lowered.module.plan.steps if isinstance(s, KernelStep)]
    convs = [s.function for s in steps if "winograd" in s.label]
    assert len(convs) == 3
    assert len(set(convs)) == 1


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 40, 7, 7), (0, 2, 3, 1)),
        ((2, 16, 16), (0, 2, 1)),
        ((3, 5, 17, 33), (0, 1, 3, 2)),
        ((20, 64, 8), (1, 0, 2)),
        ((3, 100), (1, 0)),
        ((16, 3, 16), (2, 1, 0)),
        ((2, 30, 21, 3), (0, 3, 1, 2)),
        ((1, 61, 7), (0, 2, 1)),
        ((2, 21, 1024), (0, 2, 1)),  # rows in one set of a cache
        ((1, 1100, 24), (0, 2, 1)),
        ((1, 1100, 8), (0, 2, 1)),
    ],
)
def test_transposes(runner, shape, axes):
    x = image(*shape)
    agree(runner, call(Transpose, x, attrs=Transpose.Attrs(axes=axes)), x)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1000), (1, 40), (13, 72), (7, 100)])
def test_equal_rows_and_columns_have_equal_results(runner, rows, columns):
    """Sums are added up in one order wherever a result is: a softmax of large ones shows it."""
    x = image(rows, 512)
    weight = constant(np.full((512, columns), 0.37, np.float32))
    row = normal(1, 512) * 1000
    (product,), _, _ = runner(
        Function((x,), call(Matmul, x, weight, attrs=Matmul.Attrs())), np.repeat(row, rows, 0)
    )
    assert np.unique(product).size == 1
