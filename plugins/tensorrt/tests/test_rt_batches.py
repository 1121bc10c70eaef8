# SPDX-License-Identifier: Apache-2.0
"""Engines for several sizes of the first dimension: profiles, numbers at other sizes, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Expr, Function, make_tuple
from intarsia_ir.regions.region import Region
from intarsia_runtime.errors import TargetError
from intarsia_tensorrt import cache
from intarsia_tensorrt.codegen import common_batch, compile_region, write_network
from intarsia_tensorrt.plan import build_plan
from intarsia_tensorrt.signature import FILE, parse_signature
from intarsia_tensorrt.target import TensorrtOptions, canonicalize
from intarsia_testkit.expressions import apply, expected, function_of, var, weight

from .readback import evaluate
from .regions import inputs_of, library, region_of

OPTIONS = TensorrtOptions(dynamic_batch=(1, 2, 5))
ONES = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}


def images(batch: int) -> Expr:
    """Windows, views, slices and a product: each keeps the batch."""
    x = apply("nn.conv", var("x", batch, 4, 6, 6), weight(8, 4, 3, 3), weight(8), **ONES)
    x = apply("nn.pad", x, widths=((0, 0), (0, 0), (1, 0), (0, 1)), value=0.5)
    left, right = (
        apply("strided_slice", x, begin=(0, n, 0, 0), end=(batch, n + 4, 7, 7), strides=(1,) * 4)
        for n in (0, 4)
    )
    x = apply("concatenate", apply("nn.relu", left), right, axis=1)
    x = apply("nn.resize", x, sizes=(batch, 8, 14, 14), mode="linear")
    x = apply("nn.space_to_depth", x, block=2)
    x = apply("nn.group_norm", x, weight(32), weight(32, seed=2), groups=4)
    x = apply("mean", x, axes=(2, 3))
    x = apply("matmul", apply("reshape", x, shape=(batch, 4, 8)), weight(8, 3))
    return apply("nn.softmax", apply("reshape", x, shape=(batch, 12)), axis=1)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_one_network_computes_every_size(batch: int) -> None:
    draft = write_network(region_of(function_of(images(2))), library(), batch=2)
    assert build_plan(draft, OPTIONS)
    function = function_of(images(batch))
    arrays = inputs_of(function)
    (found,), (wanted,) = evaluate(draft.trt, draft.network, arrays), expected(function, arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_the_unit_runs_at_the_size_of_the_model(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(cache, "plan_folder", lambda: tmp_path)
    region = region_of(function_of(apply("nn.relu", var("x", 2, 3))))
    plain = compile_region(region, TensorrtOptions(library=library().edition))
    unit = compile_region(
        region, TensorrtOptions(library=library().edition, dynamic_batch=(1, 2, 5))
    )
    assert parse_signature(unit.files[FILE]).inputs[0].shape == (2, 3)
    assert unit.files["engine.plan"] != plain.files["engine.plan"]


MIXED: tuple[Expr, ...] = (
    apply("nn.softmax", var("x", 2, 3), axis=0),
    apply("sum", var("x", 2, 3), axes=(0,), keepdims=True),
    apply("flip", var("x", 2, 3), axes=(0, 1)),
    apply("transpose", var("x", 2, 3), axes=(1, 0)),
    apply("reshape", var("x", 2, 6), shape=(3, 4)),
    apply("reshape", var("x", 2, 3, 2), shape=(6, 2)),
    apply("concatenate", var("x", 2, 3), var("y", 2, 3), axis=0),
    apply("strided_slice", var("x", 2, 3), begin=(1, 0), end=(2, 3), strides=(1, 1)),
    apply("matmul", var("x", 2, 3), var("y", 2, 3), transpose_b=True),
    apply("nn.pad", var("x", 2, 3), widths=((1, 0), (0, 0))),
)


@pytest.mark.parametrize("body", MIXED)
def test_a_node_that_mixes_the_batch_is_refused(body: Expr) -> None:
    with pytest.raises(TargetError, match="does not keep the first dimension") as caught:
        write_network(region_of(function_of(body)), library(), batch=2)
    assert "leave the option away" in caught.value.hint


def test_inputs_need_a_size_in_common_that_the_profile_holds() -> None:
    a, b, number = var("a", 2, 3), var("b", 3), var("n")

    def region(*params: Expr) -> Region:
        return Region("tensorrt_0", "tensorrt", Function(params, make_tuple(params)), {}, ())

    assert common_batch(region(a, a), (1, 2, 5)) == 2
    assert common_batch(region(a, b), ()) is None
    for params in ((a, b), (number,)):
        with pytest.raises(TargetError, match="no first dimension in common"):
            common_batch(region(*params), (1, 2, 5))
    with pytest.raises(TargetError, match="does not hold the model's own size 2"):
        common_batch(region(a), (4, 8, 16))


def test_a_profile_is_three_sizes_in_order() -> None:
    assert canonicalize(OPTIONS) == OPTIONS
    for sizes in ((1,), (1, 2), (4, 2, 8), (1, 2, 3, 4)):
        with pytest.raises(TargetError, match="least, the usual and the largest"):
            canonicalize(TensorrtOptions(dynamic_batch=sizes))
