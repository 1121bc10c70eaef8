# SPDX-License-Identifier: Apache-2.0
"""Kernels and plans of open sizes: one lowering, right at every size, on the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, Expr, Function, Var, call, constant, get_item
from intarsia_ir.graph.op import Op, OpAttrs, OpKind, operator
from intarsia_ir.graph.types import TensorType, Type, variable
from intarsia_ir.tir.evaluate import numpy_dtype
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.module import Lowered
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.operators import Dense
from intarsia_loops.cpu.softmax import softmax_kernel
from intarsia_loops.cpu.table import Schedules
from intarsia_loops.typical import TYPICAL, typical
from intarsia_runtime.artifact.plan_json import plan_from_json, plan_to_json
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.size import Size, value_of

from .conftest import apply, carry_out, lower, make_target, reference
from .test_products import tiling_of

N, M = variable("N"), variable("M")
SCHEDULES = {
    "matmul": Schedules(tiling_of).matmul,
    "cpu__dense": Schedules(tiling_of).dense,
    "nn__softmax": lambda group, target: softmax_kernel(group, 4),
}
SIZES = [{"N": 1, "M": 1}, {"N": 2, "M": 3}, {"N": 5, "M": 4}, {"N": 3, "M": 9}, {"N": 17, "M": 6}]


def x(name: str, *shape: Size, dtype: DType = DType.FLOAT32) -> Var:
    """A parameter of an open size."""
    return Var(name, TensorType(shape, dtype))


def places(name: str, *shape: Size) -> Var:
    """A parameter that holds indices."""
    return x(name, *shape, dtype=DType.INT64)


def weight(*shape: int) -> Expr:
    """A constant of small whole numbers: sums in any order are equal."""
    return constant(np.random.default_rng(7).integers(-4, 5, shape).astype(np.float32))


def lowered(body: Expr, *params: Var) -> tuple[Function, Lowered]:
    """Lower a graph with schedules for tiny registers."""
    function = Function(params, body)
    changed = use_channels_last(function, tiling_of(make_target(), DType.FLOAT32))
    return function, lower(changed, (), target=make_target(**SCHEDULES))


@operator("test.needs_numbers", OpKind.OPAQUE)
class _NeedsNumbers(Op):
    """An operator whose loops are written for numbers."""

    @classmethod
    def type_rule(cls, attrs: OpAttrs, *types: Type) -> Type:
        return types[0]

    @staticmethod
    def loops(attrs: OpAttrs, x: TensorType) -> PrimFunc:
        raise AssertionError(x.static_shape)


def check(function: Function, made: Lowered, sizes: Mapping[str, int]) -> None:
    """Compare with the definitions of the operators at one choice of sizes."""
    rng = np.random.default_rng(sum(sizes.values()))
    shapes = [[value_of(size, sizes) for size in param.type.shape] for param in function.params]
    dtypes = [numpy_dtype(param.type.dtype) for param in function.params]
    drawn = zip(shapes, dtypes, strict=True)
    arrays = [rng.integers(-4, 5, shape).astype(dtype) for shape, dtype in drawn]
    got = carry_out(made, arrays, compiled=True, sizes=sizes)
    for mine, theirs in zip(got, reference(function, arrays), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


GRAPHS: dict[str, Callable[[], tuple[Expr, ...]]] = {
    "element-wise": lambda: (apply("add", a := x("a", N, 8), b := x("b", N, 8)), a, b),
    "broadcast": lambda: (apply("multiply", a := x("a", N, M), b := x("b", M)), a, b),
    "sum over rows": lambda: (apply("sum", a := x("a", N, M), axes=(0,)), a),
    "sum along rows": lambda: (apply("sum", a := x("a", N, M), axes=(1,)), a),
    "mean": lambda: (apply("mean", a := x("a", N, 3, M), axes=(2,)), a),
    "transpose": lambda: (apply("transpose", a := x("a", N, 3, M), axes=(2, 0, 1)), a),
    "concatenate": lambda: (
        apply("concatenate", a := x("a", N, M), b := x("b", N, 3), axis=1), a, b,
    ),
    "pad": lambda: (apply("nn.pad", a := x("a", N, M), widths=((1, 2), (0, 3))), a),
    "argmax": lambda: (apply("argmax", a := x("a", N, M), axis=1), a),
    "dense": lambda: (apply("matmul", a := x("a", N, M, 6), weight(6, 11)), a),
    "dense, then relu": lambda: (
        apply("nn.relu", apply("add", apply("matmul", a := x("a", N, 6), weight(6, 8)), weight(8))),
        a,
    ),
    "scores": lambda: (
        apply("matmul", a := x("a", 2, N, 4), b := x("b", 2, M, 4), transpose_b=True), a, b,
    ),
    "values": lambda: (apply("matmul", a := x("a", 2, N, M), b := x("b", 2, M, 8)), a, b),
    "softmax": lambda: (apply("nn.softmax", a := x("a", 2, N, M), axis=2), a),
    "softmax of another axis": lambda: (apply("nn.softmax", a := x("a", N, M), axis=0), a),
    "running sum": lambda: (apply("cumsum", a := x("a", N, M), axis=1), a),
    "running sum over rows": lambda: (apply("cumsum", a := x("a", N, M), axis=0), a),
    "scatter elements": lambda: (
        apply("scatter_elements", a := x("a", N, 6), i := places("i", M, 5), b := x("b", M, 5),
              axis=0, reduction="add"), a, i, b,
    ),
    "scatter slices": lambda: (
        apply("scatter_nd", a := x("a", N, M), i := places("i", N * 2, 1), b := x("b", N * 2, M)),
        a, i, b,
    ),
    "the best of each row": lambda: (
        get_item(apply("top_k", a := x("a", N, M), count=1, axis=1), 1), a,
    ),
    "boxes that do not overlap": lambda: (
        get_item(
            apply("nn.non_max_suppression", a := x("a", 1, 4, M), b := x("b", 1, N, M), count=2,
                  overlap=0.5), 0,
        ), a, b,
    ),
    "regions of images": lambda: (
        apply("nn.roi_align", a := x("a", 1, 3, M, M + 2), b := x("b", N, 4), i := places("i", N),
              size=(2, 3), samples=2), a, b, i,
    ),
    "two steps": lambda: (
        apply("nn.softmax", apply("matmul", a := x("a", N, 4), b := x("b", 4, M)), axis=1), a, b,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_one_lowering_is_right_at_every_size(name: str) -> None:
    body, *params = GRAPHS[name]()
    function, made = lowered(body, *(p for p in params if isinstance(p, Var)))
    assert plan_from_json(plan_to_json(made.module.plan)) == made.module.plan
    for sizes in SIZES:
        check(function, made, sizes)


_PRODUCT = lowered(
    apply("matmul", a := x("a", N, M, 5), b := x("b", N, M * 2, 5), transpose_b=True), a, b
)


@pytest.mark.parametrize(("pixels", "few"), [(8, True), (2, False)])
def test_a_small_product_of_samples_has_tiles_for_few_rows(pixels: int, few: bool) -> None:
    images = x("x", variable("N"), pixels, 8)
    features = apply("mean", apply("matmul", images, weight(8, 32)), axes=(1,), keepdims=False)
    function, made = lowered(apply("matmul", features, weight(32, 4)), images)
    head = use_channels_last(function, tiling_of(make_target(), DType.FLOAT32)).body
    assert isinstance(head, Call)
    assert head.attrs == Dense.Attrs(outputs=4, few=few)
    for sizes in ({"N": 1}, {"N": 2}, {"N": 5}, {"N": 9}):
        check(function, made, sizes)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.integers(1, 4), st.integers(1, 14))
def test_products_at_drawn_sizes(n: int, m: int) -> None:
    check(*_PRODUCT, {"N": n, "M": m})


def test_temporaries_that_are_alive_together_lie_one_behind_the_other() -> None:
    a = x("a", N, 4)
    long = apply("matmul", apply("matmul", a, weight(4, 32)), weight(32, 8))
    short = apply("matmul", apply("matmul", long, weight(8, 16)), weight(16, 4))
    _, made = lowered(short, a)
    opened = made.module.plan.open
    assert opened is not None
    assert [str(size) for size in opened.slots] == ["128*N", "64*N", "32*N"]
    assert opened.behind == ((), (), (0, 1))  # the first two are never alive together
    assert [(source.name, source.input, source.axis) for source in opened.variables] == [
        ("N", 0, 0)
    ]


def test_a_size_of_no_input_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="the size 'N' is that of no input"):
        lowered(apply("nn.relu", a := x("a", N * 2)), a)


def test_an_operator_that_needs_numbers_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="is not known at compile time"):
        lowered(call(_NeedsNumbers, a := x("a", N)), a)


def test_typical_sizes() -> None:
    assert typical(3) == 3
    assert typical(N * 2) == 2 * TYPICAL
    assert typical(N - 100) == 0
