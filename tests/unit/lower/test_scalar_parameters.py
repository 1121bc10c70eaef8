# SPDX-License-Identifier: Apache-2.0
"""Groups that differ in scalar constants alone are one kernel, which is given them."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Constant, Expr, Function, constant
from intarsia_ir.graph.types import variable
from intarsia_loops.fuse import KernelCall, fuse
from intarsia_loops.scalar_parameters import with_scalar_parameters
from intarsia_runtime.artifact.plan import KernelStep

from .conftest import apply, lower, make_target
from .test_open_sizes import check, weight, x

N = variable("N")


def layer(data: Expr, scale: float, *, shift: float = 0.5) -> Expr:
    """A product whose results are scaled and shifted."""
    scaled = apply("multiply", apply("matmul", data, weight(6, 6)), scalar(scale))
    return apply("add", scaled, scalar(shift))


def scalar(value: float) -> Constant:
    return constant(np.array(value, np.float32))


def test_layers_of_open_sizes_share_a_kernel() -> None:
    data = x("data", N, 6)
    function = Function((data,), layer(layer(data, 0.25), 3.0))
    made = lower(function, (), target=make_target(), forwards=True)
    steps = [step for step in made.module.plan.steps if isinstance(step, KernelStep)]
    assert len(steps) == 2
    assert len({step.function for step in steps}) == 1
    for rows in (1, 5):
        check(function, made, {"N": rows})


def test_scalars_that_differ_are_parameters() -> None:
    data = x("data", N, 6)
    (fusion,) = with_scalar_parameters([fuse(Function((data,), layer(layer(data, 0.25), 3.0)))])
    first, second = (item for item in fusion.items if isinstance(item, KernelCall))
    assert [param.name for param in first.group.function.params] == ["p0", "p1", "s0"]
    given = [item.args[2].node for item in (first, second)]
    assert [float(node.data) for node in given if isinstance(node, Constant)] == [0.25, 3.0]


def test_scalars_that_are_equal_stay_numbers() -> None:
    data = x("data", N, 6)
    whole = fuse(Function((data,), layer(layer(data, 0.25), 0.25)))
    (fusion,) = with_scalar_parameters([whole])
    assert fusion.items == whole.items


@pytest.mark.parametrize("other", [0.0, -0.0, 1e-20, 1e20, float("inf"), float("nan")])
def test_very_large_and_very_small_scalars_stay_numbers(other: float) -> None:
    data = x("data", N, 6)
    whole = fuse(Function((data,), layer(layer(data, 2.0, shift=0.5), 2.0, shift=other)))
    (fusion,) = with_scalar_parameters([whole])
    assert fusion.items == whole.items


def stored(data: Expr, zero: int) -> Expr:
    """A product whose results go through bytes with a zero point."""
    parameters = scalar(0.5), constant(np.array(zero, np.uint8))
    made = apply("qnn.quantize", apply("matmul", data, weight(6, 6)), *parameters)
    return apply("qnn.dequantize", made, *parameters)


def test_zero_points_that_differ_are_parameters() -> None:
    data = x("data", 4, 6)
    (fusion,) = with_scalar_parameters([fuse(Function((data,), stored(stored(data, 3), 5)))])
    first, second = (item for item in fusion.items if isinstance(item, KernelCall))
    given = [[arg.node for arg in item.args[2:]] for item in (first, second)]
    values = [[int(n.data) for n in nodes if isinstance(n, Constant)] for nodes in given]
    assert values == [[3], [5]]  # of quantize and of dequantize


def test_zero_points_of_0_cost_nothing_and_stay() -> None:
    data = x("data", 4, 6)
    whole = fuse(Function((data,), stored(stored(data, 0), 5)))
    (fusion,) = with_scalar_parameters([whole])
    assert fusion.items == whole.items


def test_layers_of_fixed_sizes_share_a_kernel() -> None:
    data = x("data", 4, 6)
    function = Function((data,), stored(stored(layer(layer(data, 0.25), 3.0), 3), 5))
    made = lower(function, (), target=make_target(), forwards=True)
    steps = [step for step in made.module.plan.steps if isinstance(step, KernelStep)]
    assert len(steps) == 4
    assert len({step.function for step in steps}) == 2
    check(function, made, {})


def test_scalars_of_the_run_have_a_kernel_of_their_own() -> None:
    data, scale = x("data", 4, 6), x("scale")
    body = layer(layer(data, 0.25), 3.0)
    scaled = apply("multiply", apply("matmul", body, weight(6, 6)), scale)
    function = Function((data, scale), apply("add", scaled, scalar(0.5)))
    made = lower(function, (), target=make_target(), forwards=True)
    names = [step.function for step in made.module.plan.steps if isinstance(step, KernelStep)]
    assert [name == names[0] for name in names] == [True, True, False]
    check(function, made, {})


def test_other_operators_are_other_groups() -> None:
    data = x("data", N, 6)
    body = apply("nn.relu", layer(layer(data, 0.25), 3.0))
    whole = fuse(Function((data,), body))
    (fusion,) = with_scalar_parameters([whole])
    assert fusion.items == whole.items
