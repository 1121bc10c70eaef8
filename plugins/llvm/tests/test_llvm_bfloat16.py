# SPDX-License-Identifier: Apache-2.0
"""``-fpmath-mode=bf16``: float32 products by instructions that multiply bfloat16."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Expr, Var, tensor_type
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_llvm.target import LlvmOptions, canonicalize, machine
from intarsia_runtime.cpu import this_machine
from intarsia_runtime.dtype import DType
from intarsia_runtime.size import Size
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

LINUX = {"mtriple": "x86_64-unknown-linux-gnu"}
FEATURES = this_machine().cpu_features or frozenset[str]()
needs_bf16 = pytest.mark.skipif(
    not FEATURES & {"amx_bf16", "avx512_bf16"}, reason="this processor does not multiply bfloat16"
)


def conv(data: Expr, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> Expr:
    channels = tensor_type(data).shape[1]
    assert isinstance(channels, int)
    inner = channels // groups
    around, steps = (kernel // 2, kernel // 2), (stride, stride)
    given = {"strides": steps, "padding": (around, around), "dilation": (1, 1), "groups": groups}
    return apply("nn.conv", data, weight(outputs, inner, kernel, kernel), **given)


def open_var(*shape: Size) -> Var:
    """Return the input, of float32."""
    return Var("x", TensorType(shape, DType.FLOAT32))


def net() -> Expr:
    """Colours, a pool, windows within channels, and a value that is read twice."""
    first = apply("nn.relu", conv(var("x", 1, 3, 33, 35), 32, 7, 2))
    around, twos = ((1, 1), (1, 1)), (2, 2)
    pooled = apply(
        "nn.max_pool", first, kernel=(3, 3), strides=twos, padding=around, dilation=(1, 1)
    )
    second = apply("nn.relu", conv(conv(pooled, 32, 3, groups=32), 32, 1))
    return conv(apply("nn.relu", apply("add", conv(second, 32, 3), second)), 24, 1)


def line(data: Expr) -> Expr:
    """Convolutions of sound, one of them in groups."""
    given = {"strides": (2,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    first = apply("nn.gelu", apply("nn.conv", data, weight(48, 32, 3), **given))
    return apply("nn.conv", first, weight(40, 24, 5), **given | {"groups": 2, "strides": (1,)})


def tall(data: Expr) -> Expr:
    """Convolutions of images of one column, whose rows are neighbours."""
    given = {"strides": (2, 1), "padding": ((1, 1), (0, 0)), "dilation": (1, 1), "groups": 1}
    first = apply("nn.gelu", apply("nn.conv", data, weight(48, 32, 3, 1), **given))
    steps = given | {"groups": 2, "strides": (1, 2), "padding": ((0, 0), (0, 0))}
    return apply("nn.conv", first, weight(40, 24, 5, 1), **steps | {"dilation": (2, 1)})


@pytest.mark.parametrize(
    ("mcpu", "mode", "mattr", "unit", "dot"),
    [
        ("sapphirerapids", "bf16", (), True, False),
        ("sapphirerapids", "strict", (), False, False),
        ("sapphirerapids", "bf16", ("-amx-bf16",), False, True),
        ("znver5", "bf16", (), False, True),
        ("znver4", "strict", (), False, False),
        ("znver4", "bf16", ("-avx512bf16",), False, False),
        ("haswell", "bf16", (), False, False),
    ],
)
def test_the_unit_is_used_where_it_may_be_or_vectors(
    mcpu: str, mode: str, mattr: tuple[str, ...], *, unit: bool, dot: bool
) -> None:
    options = LlvmOptions(**LINUX, mcpu=mcpu, mattr=mattr, fpmath_mode=mode)
    model = machine(canonicalize(options))
    assert (model.amx_bf16, model.bf16_dot, model.bfloat) == (unit, dot, unit or dot)


@pytest.mark.parametrize(
    ("mcpu", "mode", "mattr", "uses"),
    [
        ("neoverse-n2", "bf16", (), True),
        ("neoverse-n2", "strict", (), False),
        ("cortex-a76", "bf16", (), False),
        ("cortex-a76", "bf16", ("+bf16",), True),
    ],
)
def test_instructions_of_neon_are_used_where_they_may_be(
    mcpu: str, mode: str, mattr: tuple[str, ...], *, uses: bool
) -> None:
    options = LlvmOptions(mtriple="aarch64-linux-gnu", mcpu=mcpu, mattr=mattr, fpmath_mode=mode)
    model = machine(canonicalize(options))
    assert (model.bf16_matrix, model.bfloat) == (uses, uses)


@needs_bf16
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "body",
    [
        net(),
        apply("matmul", var("x", 1, 64), weight(64, 40)),
        apply("matmul", var("x", 197, 768), weight(768, 100)),
        apply("matmul", var("x", 2, 7, 1024), weight(48, 1024), transpose_b=True),
        line(var("x", 2, 32, 61)),
        tall(var("x", 2, 32, 61, 1)),
    ],
    ids=["net", "row", "product", "transposed", "line", "tall"],
)
def test_results_are_those_of_rounded_operands(runner, body: Expr, threads: int) -> None:
    function = function_of(body)
    x = fresh(*tensor_type(function.params[0]).static_shape)
    (want,) = expected(function, [x])
    (got,), _, _ = runner(function, x, fpmath_mode="bf16", num_threads=threads)
    assert 0 < np.abs(got - want).max() <= 0.02 * np.abs(want).max()


B, H, W, S = (variable(name) for name in "BHWS")


@needs_bf16
@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        (
            conv(apply("nn.relu", conv(open_var(B, 16, H, W), 32, 3, 2)), 24, 1),
            [(1, 16, 33, 35), (2, 16, 1, 8), (3, 16, 20, 64), (1, 16, 40, 1), (2, 16, 30, 7)],
        ),
        (line(open_var(B, 32, S)), [(1, 32, 61), (2, 32, 9), (1, 32, 200)]),
        (
            apply("matmul", apply("nn.gelu", apply("matmul", open_var(B, S, 64), weight(64, 96))),
                  weight(96, 40)),
            [(1, 1, 64), (2, 7, 64), (3, 50, 64), (1, 5, 64)],
        ),
    ],
    ids=["image", "line", "rows"],
)  # fmt: skip
def test_open_sizes_have_the_same_results(body: Expr, sizes: list[tuple[int, ...]]) -> None:
    function = function_of(body)
    with intarsia.build(IRModule.from_function(function), "llvm -fpmath-mode=bf16").load() as net:
        for size in sizes:
            x = fresh(*size)
            (want,) = expected(function, [x])
            (got,) = (np.asarray(value) for value in net.run({"x": x}).values())
            assert got.shape == want.shape
            assert 1e-5 <= np.abs(got - want).max() <= 0.02 * np.abs(want).max()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            "llvm -mcpu=haswell -fpmath-mode=bf16",
            "'-fpmath-mode=bf16' changes nothing for 'haswell':"
            " it needs AMX, AVX512-BF16 or BFMMLA",
        ),
        (
            "llvm -mcpu=znver4 -fpmath-mode=fp16",
            "'-fpmath-mode=fp16' changes nothing for 'znver4':"
            " it needs AArch64 with float16 arithmetic",
        ),
        ("llvm -mcpu=haswell", None),
        ("llvm -mcpu=znver4 -fpmath-mode=bf16", None),
    ],
)
def test_a_mode_that_changes_nothing_is_said(target: str, said: str | None) -> None:
    model = IRModule.from_function(function_of(apply("matmul", var("x", 3, 8), weight(8, 4))))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        intarsia.build(model, target)
    assert [str(warning.message) for warning in caught] == [said] * (said is not None)
