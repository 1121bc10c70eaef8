# SPDX-License-Identifier: Apache-2.0
"""Costs that were measured: what they are known by, and what they do to a placement."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from intarsia_ir.graph.expr import Call, Function, Var, call, constant, get_item
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.pattern import op
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.ops.shape import Split
from intarsia_ir.ops.softmax import Softmax
from intarsia_ir.partition.annotate import ClaimedMatch, annotate
from intarsia_ir.partition.cost import CostSource, Prices
from intarsia_ir.partition.measured import MeasuredSeconds, function_of_calls, signature_of_calls
from intarsia_ir.partition.partition import partition
from intarsia_ir.performance import Performance
from intarsia_ir.regions.support import Support, SupportRow, SupportTable
from intarsia_runtime.dtype import DType

SPEED = Performance(flops=1e9, bandwidth=1e9, launch=1e-5, copy_bandwidth=1e9, copy_latency=1e-6)


def product(*, rows: int = 64, name: str = "x", seed: int = 0, kind: DType = DType.FLOAT32) -> Call:
    x = Var(name, TensorType((rows, 32), kind))
    data = np.random.default_rng(seed).random((32, 16)).astype(kind.value)
    operator = OPERATORS["matmul"]
    return call(operator, x, constant(data, name=f"w{seed}"), attrs=operator.Attrs())


def relu(arg: Call) -> Call:
    return call(OPERATORS["nn.relu"], arg)


def claimed(support: Support, inner: Call) -> ClaimedMatch:
    """The match of a product with a ReLU behind it."""
    table = SupportTable([SupportRow("fused", op("nn.relu", op("matmul")), lambda _: support)])
    outer = relu(inner)
    main = Function((inner.args[0],), outer)  # type: ignore[arg-type]
    return annotate(main, [("npu", table)]).claimed[outer]


def test_names_and_weights_do_not_count() -> None:
    one = signature_of_calls([product()])
    assert one == signature_of_calls([product(name="other", seed=3)])
    assert one == "matmul(x0: Tensor[(64, 32), float32], w1: Tensor[(32, 16), float32]) " + str(
        OPERATORS["matmul"].Attrs()
    )


def test_types_attributes_and_connections_count() -> None:
    first = product()
    x = Var("x", TensorType((4,), DType.FLOAT32))
    twice, once = Var("a", x.type), Var("b", x.type)
    add = OPERATORS["add"]
    inner = relu(first)
    every = [
        [first],
        [product(rows=65)],
        [product(kind=DType.FLOAT64)],
        [first, inner],
        [first, relu(inner)],
        [call(add, twice, twice)],
        [call(add, twice, once)],
        [call(Softmax, first, attrs=Softmax.Attrs(axis=0))],
        [call(Softmax, first, attrs=Softmax.Attrs(axis=1))],
    ]
    texts = [signature_of_calls(calls) for calls in every]
    assert len(set(texts)) == len(texts)


def test_calls_alone_compute_what_they_compute_in_the_model() -> None:
    x = Var("x", TensorType((64, 32), DType.FLOAT32))
    before = call(OPERATORS["negative"], x)
    operator = OPERATORS["matmul"]
    weight = constant(np.arange(512, dtype=np.float32).reshape(32, 16))
    inner = call(operator, before, weight, attrs=operator.Attrs())
    outer = relu(inner)
    alone = function_of_calls([inner, outer])
    assert alone is not None
    assert [param.type for param in alone.params] == [before.type]
    data = np.random.default_rng(1).random((64, 32), np.float32)
    (whole,) = evaluate(Function((x,), outer), {"x": -data}, IRModule({}))
    (found,) = evaluate(alone, {alone.params[0].name: data}, IRModule({}))
    np.testing.assert_array_equal(whole, found)


def test_tuples_and_open_sizes_do_not_stand_alone() -> None:
    x = Var("x", TensorType((4, 8), DType.FLOAT32))
    split = call(Split, x, attrs=Split.Attrs(sections=(4, 4), axis=1))
    assert function_of_calls([split]) is None
    assert function_of_calls([split, call(OPERATORS["nn.relu"], get_item(split, 0))]) is None
    opened = Var("y", TensorType((variable("n"), 8), DType.FLOAT32))
    assert function_of_calls([call(OPERATORS["nn.relu"], opened)]) is None


@pytest.mark.parametrize(
    ("support", "source", "seconds"),
    [
        (Support.yes(seconds=3e-3), CostSource.STATED, 3e-3),
        (Support.yes(flops=2e6), CostSource.MEASURED, None),
        (Support.yes(), CostSource.MEASURED, None),
    ],
)
def test_a_statement_in_seconds_holds_before_what_was_measured(
    support: Support, source: CostSource, seconds: float | None
) -> None:
    match = claimed(support, product())
    signature = signature_of_calls(match.match.calls)
    prices = Prices(SPEED, {"npu": SPEED}, MeasuredSeconds({("npu", signature): 1e-3}, {}))
    border = sum(prices.crossing("npu", size) for size in (64 * 32 * 4, 64 * 16 * 4))
    assert prices.source(match) is source
    whole = prices.claim(match) + (0 if seconds else prices.launch("npu") + border)
    assert whole == round((seconds or 1e-3) * 1e12)


def test_without_a_measurement_the_model_holds() -> None:
    prices = Prices(SPEED, {"npu": SPEED}, MeasuredSeconds({("npu", "other"): 1.0}, {"other": 1.0}))
    match = claimed(Support.yes(), product())
    assert prices.source(match) is CostSource.ESTIMATED
    assert prices.source(claimed(Support.yes(flops=1.0), product())) is CostSource.STATED
    plain = Prices(SPEED, {"npu": SPEED})
    assert prices.claim(match) == plain.claim(match)
    assert prices.own(product()) == plain.own(product())


def test_what_is_faster_than_its_borders_costs_nothing() -> None:
    match = claimed(Support.yes(), product())
    key = "npu", signature_of_calls(match.match.calls)
    assert Prices(SPEED, {"npu": SPEED}, MeasuredSeconds({key: 1e-9}, {})).claim(match) == 0


def test_a_measurement_decides_and_is_reported() -> None:
    inner = product(rows=512)
    module = IRModule.from_function(Function((inner.args[0],), relu(inner), ("y",)))  # type: ignore[arg-type]
    table = SupportTable([SupportRow("matmul", op("matmul"), lambda _: Support.yes())])
    fast = Prices(
        SPEED, {"npu": dataclasses.replace(SPEED, flops=1e12, bandwidth=1e12, copy_bandwidth=None)}
    )
    key = signature_of_calls([inner])
    for seconds, offloaded in ((1e-5, 1), (9.0, 0)):
        measured = MeasuredSeconds({("npu", key): seconds}, {key: 1e-2})
        found = partition(
            module, [("npu", table)], prices=replace(fast, measured=measured)
        ).placement
        assert found.offloaded == offloaded
        assert found.cost is not None
        assert found.cost.fallback == pytest.approx(1e-2)
        assert found.cost.sources == {"measured": 1}
        assert "; matches: 1 measured" in str(found.cost)
        (row,) = (v for v in found.verdicts if v.op == "matmul")
        assert row.cost is not None
        assert row.to_json()["cost"] == {**row.cost.to_json(), "source": "measured"}
    estimated = partition(module, [("npu", table)], prices=fast).placement
    assert estimated.offloaded == 1
    assert "matches" not in str(estimated.cost)
