# SPDX-License-Identifier: Apache-2.0
"""Operators that ONNX Runtime's optimizer fuses, against ONNX Runtime itself."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from intarsia_onnx import from_onnx
from intarsia_runtime.errors import IntarsiaError, ModelError, UnsupportedError

from .contributed_cases import DOMAIN, Case, Const, check, expected

RNG = np.random.default_rng(4)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def case(op: str, *operands, outputs=(0,), domain: str = DOMAIN, open=None, **attrs) -> Case:
    return Case(op, operands, attrs, outputs, domain, open or {})


SHAPES = [(5,), (2, 6), (2, 3, 8), (1, 4, 2, 7), (3, 1), (1, 1, 16)]
BATCH = {0: "B", 1: "S"}


def elementwise():
    for shape in SHAPES:
        rows = {0: {0: "B"}} if len(shape) > 1 else None
        x, bias = floats(*shape) * 3, floats(shape[-1])
        yield case("Gelu", x, open=rows)
        yield case("BiasGelu", x, Const(bias), open=rows)
        yield case("BiasGelu", x, bias)
        yield case("FastGelu", x, open=rows)
        yield case("FastGelu", x, Const(bias), open=rows)
        yield case("QuickGelu", x, open=rows)
        for alpha in (1.0, -0.5, 3.0):
            yield case("QuickGelu", x, alpha=alpha)
    for scale in (0.0, 1e-3, 1e3):
        x = floats(4, 4) * np.float32(scale)
        yield from (case(op, x) for op in ("Gelu", "FastGelu", "QuickGelu"))
        yield case("BiasGelu", x, np.float32([0, 1, -1, 1000]))


def triangles():
    for shape, upper, k in product(((4, 4), (2, 3, 5), (5, 3)), (0, 1), (None, -2, 0, 1)):
        diagonal = None if k is None else Const(np.array(k, np.int64))
        yield case("Trilu", floats(*shape), diagonal, upper=upper)
    yield case("Trilu", floats(4, 4), np.array(1, np.int64), upper=1)


def products():
    shapes = [((4, 5), (5, 3)), ((2, 4, 5), (5, 3)), ((2, 1, 4, 5), (3, 5, 2))]
    for (a, b), ta, tb, alpha in product(shapes, (0, 1), (0, 1), (1.0, 0.25)):
        left = (*a[:-2], a[-1], a[-2]) if ta else a
        right = (*b[:-2], b[-1], b[-2]) if tb else b
        attrs = {"transA": ta, "transB": tb, "alpha": alpha}
        opened = {0: {0: "B"}} if len(a) == 3 else None
        yield case("FusedMatMul", floats(*left), floats(*right), open=opened, **attrs)
        yield case("TransposeMatMul", floats(*left), Const(floats(*right)), **attrs)
    for flags in product((0, 1), repeat=4):
        ta, tb, ba, bb = flags
        a, b = [2, 4, 5], [2, 5, 3]
        a = [a[0], a[2], a[1]] if ta else a
        b = [b[0], b[2], b[1]] if tb else b
        a = [a[1], a[0], a[2]] if ba else a
        b = [b[1], b[0], b[2]] if bb else b
        attrs = dict(zip(("transA", "transB", "transBatchA", "transBatchB"), flags, strict=True))
        yield case("FusedMatMul", floats(*a), floats(*b), **attrs)
    yield case("FusedMatMul", floats(5), floats(5, 3), transA=1)
    yield case("FusedMatMul", floats(4, 5), floats(5), transB=1, alpha=2.0)


ACTIVATIONS = [
    ("Relu", None),
    ("Tanh", None),
    ("Sigmoid", None),
    ("LeakyRelu", [0.2]),
    ("Clip", [-0.5, 0.75]),
    ("HardSigmoid", [0.3, 0.4]),
]


def fused():
    x, w, b = floats(2, 4, 7, 6), Const(floats(6, 4, 3, 3)), Const(floats(6))
    for (name, params), bias, residual in product(ACTIVATIONS, (None, b), (False, True)):
        attrs = {"activation": name} | ({"activation_params": params} if params else {})
        z = floats(2, 6, 7, 6) if residual else None
        pads = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
        operands = (x, w, bias, z) if residual else (x, w, bias) if bias else (x, w)
        yield case("FusedConv", *operands, **pads, **attrs)
    opened = {0: {0: "N", 2: "H"}}
    yield case(
        "FusedConv", x, w, b, open=opened, activation="Relu", strides=[2, 1], pads=[1, 0, 1, 1]
    )
    yield case("FusedConv", x, w, b, activation="Relu", strides=[2, 1], auto_pad="SAME_UPPER")
    yield case(
        "FusedConv", x, Const(floats(6, 2, 3, 3)), b, group=2, dilations=[2, 2], activation="Relu"
    )
    yield case("FusedConv", floats(1, 3, 9), Const(floats(2, 3, 3)), activation="Tanh")
    yield case("FusedConv", x, w, b)
    for (name, params), ta, tb in product(
        [*ACTIVATIONS[:4], ("Elu", [0.7]), ("HardSigmoid", [0.3, 0.4]), ("Softsign", None)],
        (0, 1),
        (0, 1),
    ):
        attrs: dict[str, object] = {"activation": name, "transA": ta, "transB": tb}
        keys = ("activation_alpha", "activation_beta")
        attrs |= dict(zip(keys, params or [], strict=False))
        a, w2 = floats(*((5, 4) if ta else (4, 5))), floats(*((3, 5) if tb else (5, 3)))
        yield case("FusedGemm", a, Const(w2), Const(floats(3)), alpha=0.5, beta=2.0, **attrs)
    yield case("FusedGemm", floats(4, 5), floats(5, 3), activation="Relu")
    yield case("FusedGemm", floats(4, 5), floats(5, 3), open={0: {0: "M"}}, activation="Softplus")


def inverses():
    for shape in ((2, 2), (3, 4, 4), (2, 1, 1)):
        x = floats(*shape) + 3 * np.eye(shape[-1], dtype=np.float32)
        yield case("Inverse", x, open={0: {0: "B"}} if len(shape) > 2 else None)


def skips():
    for shape, eps in product(((2, 3, 8), (1, 5, 12), (4, 1, 3)), (None, 1e-3)):
        n, attrs = shape[-1], {} if eps is None else {"epsilon": eps}
        x, gamma, beta, bias = floats(*shape), Const(floats(n)), Const(floats(n)), Const(floats(n))
        sums = (0, 3)
        opened = {0: BATCH, 1: BATCH}
        for skip in (floats(*shape), floats(1, *shape[1:]), floats(*shape[1:])):
            same = opened if skip.shape == shape else None
            yield case("SkipLayerNormalization", x, skip, gamma, beta, open=same, **attrs)
            yield case("SkipLayerNormalization", x, skip, gamma, None, bias, outputs=sums, **attrs)
        skip = floats(*shape)
        name = "SkipSimplifiedLayerNormalization"
        yield case("SkipLayerNormalization", x, skip, gamma, beta, bias, outputs=sums, **attrs)
        yield case(name, x, skip, gamma, open=opened, **attrs)
        yield case(name, x, skip, gamma, bias, outputs=sums, open=opened, **attrs)
        yield case(name, x[0], skip[0], gamma, outputs=sums, **attrs)
        yield case(name, x[0], skip[0], gamma, bias, **attrs)


def simplified():
    for shape, axis, eps in product(((2, 3, 8), (4, 6)), (-1, 1), (None, 1e-3)):
        attrs: dict[str, object] = {"axis": axis} | ({} if eps is None else {"epsilon": eps})
        x, scale = floats(*shape), Const(floats(*shape[axis:]))
        for outputs in ((0,), (0, 1)):
            yield case(
                "SimplifiedLayerNormalization",
                *(x, scale),
                outputs=outputs,
                domain="",
                open={0: {0: "B"}},
                **attrs,
            )


def embeddings():
    words, positions, segments = floats(20, 8), floats(9, 8), floats(2, 8)
    gamma, beta = Const(floats(8)), Const(floats(8))
    for batch, length, kind in product((1, 3), (1, 5), ("int32",)):
        ids = RNG.integers(0, 20, (batch, length)).astype(kind)
        types = RNG.integers(0, 2, (batch, length)).astype(kind)
        mask = RNG.integers(0, 2, (batch, length)).astype(kind)
        places = RNG.integers(0, 9, (batch, length)).astype(kind)
        tables = [Const(words), Const(positions), Const(segments), gamma, beta]
        short = [Const(words), Const(positions), None, gamma, beta]
        opened = {0: BATCH, 1: BATCH, 7: BATCH, 8: BATCH}
        op = "EmbedLayerNormalization"
        yield case(op, ids, types, *tables, mask, outputs=(0, 1), open=opened, mask_index_type=1)
        yield case(op, ids, None, *short, mask, outputs=(0, 1), epsilon=1e-5, mask_index_type=1)
        yield case(op, ids, types, *tables, outputs=(0, 1), open=opened)
        yield case(op, ids, types, *tables, None, places, open=opened, mask_index_type=0)
        yield case(op, ids, types, *tables, None, places[:1], outputs=(0, 2), mask_index_type=0)
        yield case(op, ids, None, *short, mask, places, outputs=(0, 1, 2))


def pools():
    for kind, shape in product(("int8", "uint8"), ((1, 6, 5, 3), (2, 7, 7, 4))):
        x = RNG.integers(*((-128, 128) if kind == "int8" else (0, 256)), shape).astype(kind)
        yield case("NhwcMaxPool", x, kernel_shape=[2, 2])
        yield case("NhwcMaxPool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
        yield case("NhwcMaxPool", x, kernel_shape=[2, 2], dilations=[2, 1])
        yield case("NhwcMaxPool", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")
        yield case("NhwcMaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)


GROUPS = [elementwise, inverses, triangles, products, fused, skips, simplified, embeddings, pools]


@pytest.mark.parametrize("cases", GROUPS, ids=lambda cases: cases.__name__)
def test_results_are_those_of_onnx_runtime(cases):
    for number, one in enumerate(cases()):
        try:
            check(one, expected(one), rtol=2e-5, atol=1e-5)
        except (AssertionError, IntarsiaError) as error:
            raise AssertionError(f"case {number}: {one.op} {one.attrs}") from error


HALF = [
    case("SkipLayerNormalization", *(floats(2, 3, 8, dtype="float16") for _ in range(2)),
         *(Const(floats(8, dtype="float16")) for _ in range(3)), outputs=(0, 3)),
    case("SkipSimplifiedLayerNormalization", *(floats(2, 3, 8, dtype="float16") for _ in range(2)),
         *(Const(floats(8, dtype="float16")) for _ in range(2)), outputs=(0, 3)),
    case("SimplifiedLayerNormalization", floats(2, 8, dtype="float16"),
         Const(floats(8, dtype="float16")), domain=""),
    case("FastGelu", floats(2, 8, dtype="float16"), Const(floats(8, dtype="float16"))),
]  # fmt: skip


@pytest.mark.parametrize("one", HALF, ids=lambda one: one.op)
def test_half_precision_is_within_a_rounding(one):
    check(one, expected(one), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("activation", "params"), ACTIVATIONS)
@pytest.mark.parametrize("residual", [False, True])
def test_convolutions_with_channels_last_are_those_with_channels_first(
    activation, params, residual
):
    """ONNX Runtime has NhwcFusedConv for some processors alone."""
    x, w, b, z = floats(2, 4, 7, 6), Const(floats(6, 4, 3, 3)), Const(floats(6)), floats(2, 6, 5, 4)
    attrs = {"activation": activation} | ({"activation_params": params} if params else {})
    operands = (x, w, b, z) if residual else (x, w, b)
    (wanted,) = expected(case("FusedConv", *operands, **attrs))
    last = [np.ascontiguousarray(np.moveaxis(value, 1, -1)) for value in (x, z, wanted)]
    operands = (last[0], w, b, last[1]) if residual else (last[0], w, b)
    check(case("NhwcFusedConv", *operands, **attrs), [last[2]], rtol=2e-5, atol=1e-5)


def gelu(x: np.ndarray) -> np.ndarray:
    from math import erf

    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)).astype(x.dtype))


@pytest.mark.parametrize("shape", [(1, 2, 8), (2, 5, 4), (3, 1, 2)])
def test_operators_without_a_kernel_for_processors(shape):
    """BiasAdd and BiasSplitGelu, by their formulas: ONNX Runtime runs them on GPUs alone."""
    x, bias, skip = floats(*shape), Const(floats(shape[-1])), floats(*shape)
    check(case("BiasAdd", x, bias, skip, open={0: BATCH, 2: BATCH}), [x + bias.data + skip])
    left, right = np.split(x + bias.data, 2, -1)
    check(case("BiasSplitGelu", x, bias, open={0: BATCH}), [left * gelu(right)])


def normal(x: np.ndarray, groups: int, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """GroupNormalization of channels that lie first."""
    flat = x.reshape(x.shape[0], groups, -1).astype(np.float64)
    flat = (flat - flat.mean(-1, keepdims=True)) / np.sqrt(flat.var(-1, keepdims=True) + 1e-5)
    each = (1, -1, *[1] * (x.ndim - 2))
    return flat.reshape(x.shape) * scale.reshape(each) + bias.reshape(each)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("skip", ["", "whole", "column", "row"])
def test_group_normalizations(last, activation, skip):
    """By their formulas: ONNX Runtime has no kernel of them for processors."""
    groups, channels = 2, 6
    x, residual = floats(2, channels, 4, 5), floats(2, channels, 4, 5)
    scale, bias, more = floats(channels), floats(channels), floats(channels)
    if skip in ("column", "row"):
        residual = residual[:, :, :1, :1]
    total = x + residual + more.reshape(1, -1, 1, 1) if skip else x
    wanted = normal(total, groups, scale, bias)
    wanted = wanted / (1 + np.exp(-wanted)) if activation else wanted

    def laid(value: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(value, 1, -1) if last else value)

    operands = [laid(x), Const(scale), Const(bias)]
    attrs = {"activation": activation, "groups": groups, "channels_last": last}
    results = [laid(wanted).astype(np.float32)]
    if not skip:
        check(case("GroupNorm", *operands, **attrs), results)
        return
    operands += [residual[:, :, 0, 0] if skip == "row" else laid(residual), Const(more)]
    check(case("SkipGroupNorm", *operands, outputs=(0, 1), **attrs), [*results, laid(total)])


X = floats(1, 2, 3)
REFUSALS = [
    (case("SkipLayerNormalization", X, X, Const(X[0, 0]), outputs=(0, 1)), "output 'mean'"),
    (
        case("SkipSimplifiedLayerNormalization", X, X, Const(X[0, 0]), outputs=(0, 2)),
        "output 'inv_std_var'",
    ),
    (case("GroupNorm", X, Const(X[0, 0]), Const(X[0, 0]), activation=2, groups=1), "activation=2"),
    (case("FusedGemm", X[0], X[0].T, activation="Selu"), "activation 'Selu' of FusedGemm"),
    (case("ConvTransposeWithDynamicPads", X, X), "its padding"),
    (
        case("ReorderInput", floats(1, 8, 4, 4), domain="com.microsoft.nchwc"),
        "domain 'com.microsoft.nchwc'",
    ),
    (case("Conv", X, X, domain="com.microsoft.nchwc"), "optimization level below 'all'"),
]


@pytest.mark.parametrize(("one", "words"), REFUSALS)
def test_what_is_not_supported_is_refused_in_words(one, words):
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(one.model())
    assert words in f"{caught.value} {caught.value.hint}"


WRONG = [
    (case("BiasSplitGelu", X, Const(X[0, 0])), "must be an even number"),
    (
        case(
            "EmbedLayerNormalization",
            np.zeros(3, np.int32),
            None,
            X[0],
            X[0],
            None,
            X[0, 0],
            X[0, 0],
        ),
        "input_ids must be a matrix",
    ),
]


@pytest.mark.parametrize(("one", "words"), WRONG)
def test_what_breaks_the_rules_is_a_fault_of_the_model(one, words):
    with pytest.raises(ModelError, match=words):
        from_onnx(one.model())
