# SPDX-License-Identifier: Apache-2.0
"""``-fpmath-mode=bf16``: float32 products by the matrix unit for bfloat16."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Expr, tensor_type
from intarsia_llvm.target import LlvmOptions, canonicalize, machine
from intarsia_runtime.cpu import this_machine
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

LINUX = {"mtriple": "x86_64-unknown-linux-gnu"}
needs_amx = pytest.mark.skipif(
    "amx_bf16" not in (this_machine().cpu_features or ()), reason="this processor has no AMX"
)


def conv(data: Expr, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> Expr:
    inner = tensor_type(data).static_shape[1] // groups
    around, steps = (kernel // 2, kernel // 2), (stride, stride)
    given = {"strides": steps, "padding": (around, around), "dilation": (1, 1), "groups": groups}
    return apply("nn.conv", data, weight(outputs, inner, kernel, kernel), **given)


def net() -> Expr:
    """Colours, a pool, windows within channels, and a value that is read twice."""
    first = apply("nn.relu", conv(var("x", 1, 3, 33, 35), 32, 7, 2))
    around, twos = ((1, 1), (1, 1)), (2, 2)
    pooled = apply(
        "nn.max_pool", first, kernel=(3, 3), strides=twos, padding=around, dilation=(1, 1)
    )
    second = apply("nn.relu", conv(conv(pooled, 32, 3, groups=32), 32, 1))
    return conv(apply("nn.relu", apply("add", conv(second, 32, 3), second)), 24, 1)


@pytest.mark.parametrize(
    ("mcpu", "mode", "mattr", "uses"),
    [
        ("sapphirerapids", "bf16", (), True),
        ("sapphirerapids", "strict", (), False),
        ("sapphirerapids", "bf16", ("-amx-bf16",), False),
        ("znver5", "bf16", (), False),
    ],
)
def test_the_unit_is_used_where_it_may_be(
    mcpu: str, mode: str, mattr: tuple[str, ...], *, uses: bool
) -> None:
    options = LlvmOptions(**LINUX, mcpu=mcpu, mattr=mattr, fpmath_mode=mode)
    assert machine(canonicalize(options)).amx_bf16 is uses


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


@needs_amx
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "body",
    [
        net(),
        apply("matmul", var("x", 1, 64), weight(64, 40)),
        apply("matmul", var("x", 197, 768), weight(768, 100)),
        apply("matmul", var("x", 2, 7, 1024), weight(48, 1024), transpose_b=True),
    ],
    ids=["net", "row", "product", "transposed"],
)
def test_results_are_those_of_rounded_operands(runner, body: Expr, threads: int) -> None:
    function = function_of(body)
    x = fresh(*tensor_type(function.params[0]).static_shape)
    (want,) = expected(function, [x])
    (got,), _, _ = runner(function, x, fpmath_mode="bf16", num_threads=threads)
    assert 0 < np.abs(got - want).max() <= 0.02 * np.abs(want).max()
