# SPDX-License-Identifier: Apache-2.0
"""Placing models of open sizes: verdicts with a remedy, typical costs, sizes of a region's call."""

from __future__ import annotations

import pytest

from intarsia_ir.capabilities import WINOGRAD
from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, constant, make_tuple
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.pattern import Match, op
from intarsia_ir.graph.types import Size, TensorType, TupleType, variable
from intarsia_ir.graph.typical import (
    BATCH,
    PIXELS,
    TYPICAL,
    fitting_values,
    typical_type,
    typical_values,
)
from intarsia_ir.graph.walk import size_variables
from intarsia_ir.ops import OPERATORS
from intarsia_ir.partition.cost import Plan, Prices
from intarsia_ir.partition.partition import PartitionResult, partition
from intarsia_ir.reduced import is_reduced
from intarsia_ir.regions.support import Support, SupportRow, SupportTable
from intarsia_ir.regions.table import AcceleratorTable, Limits, Row
from intarsia_ir.regions.work import count_bytes, count_flops, count_products
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, weight

N, S, H, W = (variable(name) for name in "NSHW")


def x(name: str, *shape: Size) -> Var:
    return Var(name, TensorType(shape, DType.FLOAT32))


def relu(value: Expr) -> Call:
    return call(OPERATORS["nn.relu"], value)


def parted(function: Function, symbolic: bool, plan: Plan = Plan.GREEDY) -> PartitionResult:
    rows = tuple(Row(name, op(name), symbolic=symbolic) for name in ("nn.relu", "matmul", "add"))
    table = AcceleratorTable(rows, Limits()).support()
    return partition(IRModule.from_function(function), [("npu", table)], plan=plan)


def details(made: PartitionResult) -> list[str]:
    return [verdict.detail for verdict in made.placement.verdicts]


def test_a_verdict_says_which_shape_would_help() -> None:
    tokens = x("tokens", N, S, 8)
    made = parted(Function((tokens,), relu(tokens)), symbolic=False)
    (said,) = details(made)
    assert said == (
        "axis 0 of Tensor[(N, S, 8), float32] has the open size N, and needs a number; "
        f"e.g. --shape tokens:{BATCH},{TYPICAL},8 gives one"
    )


def test_a_size_of_several_inputs_names_each() -> None:
    one, two = x("one", N), x("two", S)
    both = call(OPERATORS["concatenate"], one, two, attrs=OPERATORS["concatenate"].Attrs(axis=0))
    said = details(parted(Function((one, two), relu(both)), symbolic=False))[-1]
    assert said.endswith(f"e.g. --shape one:{TYPICAL} --shape two:{TYPICAL} gives one")


def test_a_size_that_no_input_has_is_told() -> None:
    def judge(_match: Match) -> Support:
        return Support.no_open_size(variable("found"), "a count of the run")

    table = SupportTable([SupportRow("nn.relu", op("nn.relu"), judge)])
    vector = x("x", N)
    module = IRModule.from_function(Function((vector,), relu(vector)))
    made = partition(module, [("npu", table)], plan=Plan.GREEDY)
    assert details(made) == ["a count of the run; no shape of an input gives it"]


def test_a_region_takes_the_sizes_of_its_types_and_attributes() -> None:
    tokens = x("tokens", N, S, 8)
    made = parted(Function((tokens,), relu(tokens)), symbolic=True)
    (region,) = made.regions
    assert region.sizes == ("N", "S")
    assert dict(region.typical) == {"N": BATCH}
    assert region.typical["S"] == TYPICAL
    sliced = apply("strided_slice", x("y", 9), begin=(S,), end=(S + 2,), strides=(1,))
    assert size_variables(Function((), make_tuple((sliced,)))) == ("S",)


def test_costs_are_those_of_typical_sizes() -> None:
    rows = x("rows", N, S, 8)
    product = apply("matmul", rows, weight(8, 16))
    flops = 2 * TYPICAL * 8 * 16
    values = typical_values((rows,))
    assert count_flops(product, values) == flops
    assert count_flops(product) == TYPICAL * flops
    assert count_products(product, {"N": 2, "S": 3}) == 2 * 3 * 8 * 16
    assert count_bytes(rows.type, values=values) == TYPICAL * 8 * 4
    made = parted(Function((rows,), product), symbolic=True, plan=Plan.COST)
    assert made.placement.cost is not None
    assert made.placement.cost.fallback > 0
    (row,) = made.placement.regions
    assert row.bytes_in == BATCH * TYPICAL * 8 * 4


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ((N, 3, H, W), {"N": BATCH, "H": PIXELS, "W": PIXELS}),
        ((N, S), {"N": BATCH}),
        ((N, 768), {}),
        ((1, S, 8), {}),
        ((2 * N, S, 8), {}),
    ],
)
def test_axes_tell_what_is_typical(shape: tuple[Size, ...], values: dict[str, int]) -> None:
    assert dict(typical_values((x("x", *shape),))) == values


def test_layers_without_padding_have_as_many_samples_as_they_need() -> None:
    sound, taps = x("sound", 1, 1, S), constant(weight(4, 1, 400).data)
    window = {"strides": (5,), "padding": ((0, 0),), "dilation": (1,)}
    function = Function((sound,), apply("nn.conv", sound, taps, **window))
    assert typical_values(function.params)["S"] == TYPICAL
    assert fitting_values(function)["S"] == 16 * TYPICAL
    region = partition(
        IRModule.from_function(function),
        [("npu", SupportTable([SupportRow("conv", op("nn.conv"), lambda _: Support.yes())]))],
        plan=Plan.GREEDY,
    ).regions[0]
    assert region.typical["S"] == 16 * TYPICAL


def test_sizes_that_no_samples_fit_are_typical() -> None:
    function = Function((given := x("x", 10 - S),), relu(given))
    assert fitting_values(function)["S"] == TYPICAL


def test_types_at_typical_sizes() -> None:
    kind = TensorType((N, 4), DType.FLOAT32)
    assert typical_type(TupleType((kind,)), {"N": 7}) == TupleType((kind.with_shape((7, 4)),))
    fixed = TensorType((3,), DType.INT64)
    assert typical_type(fixed) is fixed
    pair = Var("pair", TupleType((kind, fixed)))
    assert dict(typical_values((pair,))) == {}
    assert Prices.presumed(("npu",)).typical["N"] == TYPICAL


def test_convolutions_of_open_sizes_are_reduced_as_well() -> None:
    window = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    weights = constant(weight(64, 64, 3, 3).data)
    fixed, opened = (
        apply("nn.conv", x("x", 1, 64, size, size), weights, **window) for size in (32, H)
    )
    assert is_reduced(fixed, WINOGRAD)
    assert is_reduced(opened, WINOGRAD)
