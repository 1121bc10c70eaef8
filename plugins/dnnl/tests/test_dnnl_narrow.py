# SPDX-License-Identifier: Apache-2.0
"""Products in bfloat16: what stays narrow, and how far results are from fp32."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_dnnl import isa, narrow, profitable, region
from intarsia_dnnl.names import BF16, DTYPES
from intarsia_dnnl.narrow import multiplies_narrow, narrow_values
from intarsia_dnnl.program import PrimitiveNode, PrimitiveProgram
from intarsia_dnnl.tall import with_tall_windows
from intarsia_ir.graph.expr import Expr
from intarsia_runtime.cpu import this_machine
from intarsia_testkit.expressions import apply, fresh, function_of, var, weight

from .regions import Made, lacks_avx512, make, region_of
from .test_dnnl_fusion import attention, conv, dense
from .test_dnnl_plugin import kept_of, target
from .test_dnnl_random import random_graph


def program_of(
    *nodes: PrimitiveNode, outputs: tuple[int, ...], mode: str = "bf16"
) -> PrimitiveProgram:
    """Return a program of value 0, an input, constants 1 and 2, and the results of ``nodes``."""
    count = 3 + len(nodes)
    return PrimitiveProgram(
        shapes=((4, 4),) * count,
        dtypes=("float32",) * count,
        inputs=(0,),
        outputs=outputs,
        constants={1: "a", 2: "b"},
        nodes=nodes,
        fpmath_mode=mode,
    )


def test_values_between_products_are_narrow_and_those_at_the_border_are_not() -> None:
    nodes = (
        PrimitiveNode("transpose", (1,), 3, {"axes": (1, 0)}),  # of a constant: constant
        PrimitiveNode("matmul", (0, 3), 4),
        PrimitiveNode("reshape", (4,), 5),
        PrimitiveNode("matmul", (5, 2), 6),
        PrimitiveNode("eltwise", (6,), 7),
    )
    assert narrow_values(program_of(*nodes, outputs=(7,))) == {4, 5}


def test_what_works_on_fp32_only_makes_views_of_its_operand_wide() -> None:
    nodes = (
        PrimitiveNode("matmul", (0, 1), 3),
        PrimitiveNode("reshape", (3,), 4),
        PrimitiveNode("softmax", (4,), 5, {"axis": 1}),
        PrimitiveNode("matmul", (5, 2), 6),
        PrimitiveNode("matmul", (6, 2), 7),
    )
    assert narrow_values(program_of(*nodes, outputs=(7,))) == {6}


@pytest.mark.parametrize(
    ("mode", "features", "expected"),
    [
        ("bf16", {"avx512_bf16"}, True),
        ("any", {"amx_bf16"}, True),
        ("tf32", {"avx512_bf16"}, False),
        ("strict", {"avx512_bf16"}, False),
        ("bf16", {"avx2"}, False),
    ],
)
def test_it_takes_the_users_word_and_the_processors(
    monkeypatch: pytest.MonkeyPatch, mode: str, features: set[str], expected: bool
) -> None:
    machine = replace(this_machine(), cpu_features=frozenset(features))
    monkeypatch.setattr(isa, "this_machine", lambda: machine)
    assert multiplies_narrow(program_of(outputs=(0,), mode=mode)) is expected


@pytest.mark.parametrize("hidden", [False, True])
def test_vectors_instead_of_a_matrix_unit_that_hides_gain_nothing(
    monkeypatch: pytest.MonkeyPatch, hidden: bool
) -> None:
    monkeypatch.setattr(narrow, "hides_tiles", lambda: hidden)
    monkeypatch.setattr(narrow, "usable_features", lambda: frozenset({"avx512_bf16"}))
    assert multiplies_narrow(program_of(outputs=(0,), mode="bf16")) is not hidden


needs_bfloat16 = pytest.mark.skipif(
    lacks_avx512(), reason="the library multiplies bfloat16 on x86 with AVX-512 only"
)


def asked(program: PrimitiveProgram) -> bool:
    """Narrow products on any processor."""
    return program.fpmath_mode == "bf16"


def deviation(found: Made, wanted: Made) -> float:
    """Return how far results are from others, by the middle of their sizes."""
    arrays = [fresh(*spec.shape, seed=i) for i, spec in enumerate(found.request.inputs)]
    pairs = list(zip(found.outputs(arrays), wanted.outputs(arrays), strict=True))
    return max(
        float(np.median(np.abs(a - b)) / max(float(np.median(np.abs(b))), 1e-6)) for a, b in pairs
    )


def network() -> Expr:
    x = apply("nn.relu", conv(var("x", 1, 16, 8, 8), outputs=32))
    x = apply("nn.relu", apply("add", conv(conv(x, outputs=32), outputs=32), x))
    pool = {"kernel": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}
    return dense(apply("reshape", apply("nn.max_pool", x, **pool), shape=(1, 512)), 10)


@needs_bfloat16
@pytest.mark.parametrize("kind", ["convolutions", "attention"])
def test_a_network_in_bfloat16_is_near_that_in_fp32(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # AVX-512 without bfloat16 instructions: the library emulates them.
    monkeypatch.setattr(region, "multiplies_narrow", asked)
    masked = attention(var("y", 2, 16, 64), var("mask", 2, 1, 1, 16), 4)
    body = network() if kind == "convolutions" else dense(masked, 8)
    made = make(body, fpmath_mode="bf16")
    assert 1e-5 < deviation(made, make(body)) < 0.02


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_in_bfloat16(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(region, "multiplies_narrow", asked)
    body = random_graph(seed)
    assert deviation(make(body, fpmath_mode="bf16"), make(body)) < 0.05


@needs_bfloat16
@pytest.mark.parametrize(("rows", "reads_columns"), [(1, True), (2, False)])
def test_a_product_of_one_row_reads_its_weights_by_columns(
    monkeypatch: pytest.MonkeyPatch, rows: int, reads_columns: bool
) -> None:
    monkeypatch.setattr(region, "multiplies_narrow", asked)
    hidden = apply("nn.relu", dense(var("x", rows, 96), 80))
    last = dense(apply("multiply", hidden, var("scale", rows, 80)), 48)
    body = apply("add", last, weight(48, seed=2))
    made = make(body, fpmath_mode="bf16")
    assert ("gemm:jit" in " ".join(made.region.implementations)) is reads_columns
    assert 1e-5 < deviation(made, make(body)) < 0.02


def line(x: Expr, outputs: int) -> Expr:
    weights = weight(outputs, x.type.static_shape[1], 3)
    attrs = {"strides": (2,), "padding": ((1, 0),), "dilation": (1,)}
    return apply("nn.conv", x, weights, weight(outputs, seed=3), **attrs)


def test_a_window_of_a_line_is_one_of_an_image_of_width_1() -> None:
    x, y = var("x", 1, 16, 20), var("y", 1, 24, 10)
    made = make(apply("nn.relu", apply("add", line(x, 24), y)), fpmath_mode="bf16")
    tall = with_tall_windows(made.program)
    (node,) = [n for n in tall.nodes if n.kind == "conv"]
    shapes = [tall.shapes[value] for value in (*node.reads, node.result)]
    image = (1, 24, 10, 1)
    assert shapes == [(1, 16, 20, 1), (24, 16, 3, 1), (24,), image, image]
    numbers = {key: node.attrs[key] for key in ("strides", "padding_low", "padding_high")}
    assert numbers == {"strides": (2, 1), "padding_low": (1, 0), "padding_high": (0, 0)}
    assert tall.outputs == made.program.outputs


@pytest.mark.parametrize(
    "body", [conv(var("x", 1, 16, 8, 8), outputs=16), line(var("x", 1, 8, 20), 16)]
)
def test_images_and_lines_of_few_channels_stay(body: Expr) -> None:
    program = make(body, fpmath_mode="bf16").program
    assert with_tall_windows(program) == program


@needs_bfloat16
@pytest.mark.parametrize("unit", [True, False])
def test_lines_in_bfloat16_are_near_those_in_fp32(
    monkeypatch: pytest.MonkeyPatch, unit: bool
) -> None:
    monkeypatch.setattr(region, "multiplies_narrow", asked)
    monkeypatch.setattr(region, "has_matrix_unit", lambda: unit)
    x = line(apply("nn.relu", line(var("x", 1, 16, 40), 32)), 24)
    body = apply("add", x, var("y", 1, 24, 10))
    assert 1e-5 < deviation(make(body, fpmath_mode="bf16"), make(body)) < 0.02


def test_a_region_that_the_library_cannot_narrow_runs_in_fp32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = network()
    monkeypatch.setattr(region, "multiplies_narrow", lambda _: False)
    wide = make(body, fpmath_mode="bf16")  # in which matrix units may compute in bfloat16 still
    monkeypatch.setattr(region, "multiplies_narrow", asked)
    # An integer type stands for one that the library has no kernels for.
    monkeypatch.setattr("intarsia_dnnl.assembly.BF16", DTYPES["int32"])
    assert deviation(make(body, fpmath_mode="bf16"), wide) == 0.0
    assert BF16 not in DTYPES.values()


@pytest.mark.usefixtures("shown_tiles")
def test_narrow_convolutions_pay_for_reorders_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    pads = ((1, 1), (1, 1))
    attrs = {"strides": (2, 2), "padding": pads, "dilation": (1, 1), "groups": 1}
    body = apply("nn.conv", var("x", 1, 64, 56, 56), weight(64, 64, 3, 3), **attrs)
    region = region_of(function_of(body))
    assert kept_of([region], target()) == ()
    monkeypatch.setattr(profitable, "lead", lambda *_, **__: 1.9)
    assert kept_of([region], target(fpmath_mode="bf16")) == (region,)
