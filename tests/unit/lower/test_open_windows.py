# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools of images of open sizes: one lowering, right at every size."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia_ir.capabilities import ReducedConvolution
from intarsia_ir.graph.expr import Expr, Function, Var, constant, tensor_type
from intarsia_ir.graph.types import variable
from intarsia_ir.tir.expr import Binary, BinaryOp, IntImm, TirVar
from intarsia_ir.tir.forward import procedures
from intarsia_ir.tir.module import Lowered
from intarsia_ir.tir.tensor import extents
from intarsia_loops import lower as lowering
from intarsia_loops.cpu import layout, open_winograd
from intarsia_loops.cpu.conv_transpose import expand_conv_transpose
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.loops import unflatten
from intarsia_loops.cpu.table import Schedules
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_runtime.dtype import DType

from .conftest import apply, lower, make_target
from .test_open_sizes import check, weight, x

pytestmark = pytest.mark.slow  # the interpreter carries out every product

N, H, W = variable("N"), variable("H"), variable("W")
SIZES = [(1, 1, 1), (2, 2, 1), (1, 3, 5), (2, 7, 7), (1, 5, 21)]


def small_strips(_target: object, _dtype: DType) -> CpuTiling:
    """A machine whose strips hold few rows, so that images have many."""
    return CpuTiling(lanes=4, rows=4, strip_bytes=1024)


_TABLE = Schedules(small_strips).table()
SCHEDULES = {
    name.replace(".", "__"): _TABLE[name]
    for name in (
        "cpu.conv",
        "cpu.dense",
        "cpu.depthwise",
        "cpu.max_pool",
        "cpu.avg_pool",
        "cpu.winograd",
        "matmul",
    )
}


def conv(data: Expr, taps: Expr, *bias: Expr, **attrs: object) -> Expr:
    """A convolution; what is not given is as plain as can be."""
    rank = tensor_type(taps).rank - 2
    plain = {
        "strides": (1,) * rank,
        "padding": ((0, 0),) * rank,
        "dilation": (1,) * rank,
        "groups": 1,
    }
    return apply("nn.conv", data, taps, *bias, **{**plain, **attrs})


def pool(name: str, data: Expr, kernel: int, stride: int, pad: int) -> Expr:
    """A pool with square windows."""
    both = ((pad, pad), (pad, pad))
    return apply(
        name, data, kernel=(kernel,) * 2, strides=(stride,) * 2, padding=both, dilation=(1, 1)
    )


def padded(low: int, high: int | None = None) -> dict[str, object]:
    """Padding of both sides of both dimensions."""
    return {"padding": ((low, low if high is None else high),) * 2}


def network(data: Expr) -> Expr:
    """A first layer, a depthwise one, a residual one, a pool, and the mean of all pixels."""
    first = apply("nn.relu", conv(data, weight(8, 8, 3, 3), weight(8), strides=(2, 2), **padded(1)))
    own = apply("nn.relu", conv(first, weight(8, 1, 3, 3), groups=8, **padded(1)))
    added = apply("add", conv(own, weight(8, 8, 1, 1)), first)
    pooled = pool("nn.max_pool", added, 3, 2, 1)
    both = apply("concatenate", pooled, apply("nn.relu", pooled), axis=1)
    return apply("mean", both, axes=(2, 3))


def larger(data: Expr, size: int, stride: int, low: int, more: int = 0) -> Expr:
    """A transposed convolution."""
    attrs = {
        "strides": (stride,) * 2, "padding": ((low, low),) * 2, "dilation": (1, 1), "groups": 1,
        "output_padding": (more, more),
    }  # fmt: skip
    return apply("nn.conv_transpose", data, weight(8, 5, size, size), weight(5), **attrs)


def between_convolutions(data: Expr, *sizes: int) -> Expr:
    """A transposed convolution whose data and whose result are channels last."""
    grown = apply("nn.relu", larger(conv(data, weight(8, 8, 1, 1)), *sizes))
    return conv(grown, weight(4, 5, 3, 3), **padded(1))


GRAPHS: dict[str, Callable[[Expr], Expr]] = {
    "point": lambda a: apply("nn.relu", conv(a, weight(11, 8, 1, 1), weight(11))),
    "point with steps": lambda a: conv(a, weight(11, 8, 1, 1), strides=(2, 3)),
    "point, padded at one end": lambda a: conv(a, weight(11, 8, 1, 1), **padded(0, 1)),
    "point with steps, padded at one end": lambda a: conv(
        a, weight(11, 8, 1, 1), strides=(2, 3), **padded(0, 2)
    ),
    "3x3": lambda a: apply("nn.relu", conv(a, weight(11, 8, 3, 3), weight(11), **padded(1))),
    "3x3 with steps": lambda a: conv(a, weight(5, 8, 3, 3), strides=(2, 2), **padded(1)),
    "padded at one end": lambda a: conv(a, weight(5, 8, 2, 2), strides=(2, 2), **padded(0, 1)),
    "groups": lambda a: conv(a, weight(8, 4, 3, 3), groups=2, **padded(1)),
    "dilated": lambda a: conv(a, weight(5, 8, 3, 3), dilation=(2, 2), **padded(2)),
    "depthwise": lambda a: conv(a, weight(8, 1, 3, 3), groups=8, **padded(1)),
    "depthwise with steps": lambda a: conv(
        a, weight(8, 1, 5, 5), groups=8, strides=(2, 2), **padded(2)
    ),
    "residual of one channel vector": lambda a: apply(
        "add", conv(a, weight(8, 8, 3, 3), **padded(1)), a
    ),
    "of pooled images": lambda a: conv(
        apply("mean", a, axes=(2, 3), keepdims=True), weight(11, 8, 1, 1)
    ),
    "max pool": lambda a: pool("nn.max_pool", a, 3, 2, 1),
    "average pool": lambda a: pool("nn.avg_pool", a, 3, 1, 1),
    "transposed, side by side": lambda a: larger(a, 2, 2, 0),
    "transposed, overlapping": lambda a: larger(a, 4, 2, 1),
    "transposed, uneven": lambda a: larger(a, 3, 2, 1, 1),
    "transposed, no steps": lambda a: larger(a, 3, 1, 1),
    "network": network,
    "transposed between convolutions": lambda a: between_convolutions(a, 2, 2, 0),
    "uneven between convolutions": lambda a: between_convolutions(a, 3, 2, 1, 1),
}


@cache
def lowered(name: str) -> tuple[Function, Lowered]:
    """Lower a graph with schedules for tiny registers."""
    data = x("data", N, 8, H, W)
    return _lowered(GRAPHS[name](data), data)


def _lowered(body: Expr, data: Var, *, winograd: bool = False) -> tuple[Function, Lowered]:
    function = Function((data,), body)
    target = make_target(**SCHEDULES)
    tiling = small_strips(target, DType.FLOAT32)
    changed = use_channels_last(expand_conv_transpose(function), tiling, winograd=winograd)
    return function, lower(changed, (), target=target)


def test_indices_of_one_open_image_join_with_arrays_of_none() -> None:
    number = TirVar("number")
    first, second, row, column = unflatten(number, [1, 1, H, W])  # pyright: ignore[reportArgumentType]
    assert isinstance(first, IntImm)
    assert isinstance(second, IntImm)
    assert isinstance(row, Binary)
    assert (first.value, second.value, row.op, row.a) == (0, 0, BinaryOp.FLOOR_DIV, number)
    assert isinstance(column, Binary)
    assert (column.op, column.a) == (BinaryOp.FLOOR_MOD, number)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("transposed between convolutions", 3),  # to channels last, the shuffle, and back
        ("uneven between convolutions", 3),
        ("transposed, side by side", 2),  # the shuffle gives the model's layout
        ("transposed, uneven", 3),
    ],
)
def test_pixels_are_shuffled_channels_last(name: str, count: int) -> None:
    _, made = lowered(name)
    kernels = [kernel.name for kernel in made.module.functions]
    assert sum("transpose" in name for name in kernels) == count, kernels


@pytest.mark.parametrize("name", ["3x3", "residual of one channel vector", "of pooled images"])
def test_one_image_of_open_sizes(name: str) -> None:
    data = x("data", 1, 8, H, W)
    function, made = _lowered(GRAPHS[name](data), data)
    for _, h, w in SIZES:
        check(function, made, {"H": h, "W": w})


@pytest.mark.parametrize("name", GRAPHS)
def test_one_lowering_is_right_at_every_size(name: str) -> None:
    for n, h, w in SIZES:
        check(*lowered(name), {"N": n, "H": h, "W": w})


@settings(deadline=None, max_examples=6)
@given(
    st.sampled_from(["3x3", "3x3 with steps", "depthwise", "max pool"]),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 20),
)
def test_windows_at_drawn_sizes(name: str, n: int, h: int, w: int) -> None:
    check(*lowered(name), {"N": n, "H": h, "W": w})


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_of_an_open_length(stride: int) -> None:
    data = x("data", N, 8, W)
    taps = weight(11, 8, 5)
    body = conv(data, taps, weight(11), strides=(stride,), padding=((2, 2),))
    made = _lowered(body, data)
    for length in (1, 2, 9, 70):
        check(*made, {"N": 2, "W": length})


def line_conv(data: Expr) -> Expr:
    return conv(data, weight(18, 18, 3), weight(18), padding=((1, 1),))


@pytest.mark.parametrize(
    ("name", "transposes"),
    [
        ("activations between", 2),
        ("a residual", 2),
        ("bias and scale of channels", 2),
        ("a transposed one between", 2),
        ("rows of a product", 1),
        ("a sum that no convolution takes", 2),
    ],
)
def test_lines_stay_channels_last_between_convolutions(name: str, transposes: int) -> None:
    data = x("data", N, 18, W)
    first = apply("nn.relu", line_conv(data))
    body = {
        "activations between": lambda: line_conv(apply("tanh", first)),
        "a residual": lambda: line_conv(apply("add", first, data)),
        "bias and scale of channels": lambda: line_conv(
            apply("multiply", apply("add", first, weight(1, 18, 1)), weight(18, 1))
        ),
        "a transposed one between": lambda: apply(
            "nn.conv_transpose",
            first,
            weight(18, 5, 4),
            weight(5),
            strides=(2,),
            padding=((1, 1),),
            dilation=(1,),
            groups=1,
            output_padding=(0,),
        ),
        "rows of a product": lambda: apply(
            "matmul", apply("transpose", first, axes=(0, 2, 1)), weight(18, 5)
        ),
        "a sum that no convolution takes": lambda: apply("add", first, data),
    }[name]()
    made = _lowered(body, data)
    labels = [step.label for step in made[1].module.plan.steps]
    assert labels.count("transpose") == transposes
    for length in (1, 2, 9):
        check(*made, {"N": 2, "W": length})


@pytest.mark.parametrize("axis", [2, 3])
def test_rows_and_columns_are_picked_channels_last(axis: int) -> None:
    data, places = x("data", N, 8, H, W), constant(np.array([0, 2, 1, 1, 0], np.int64))
    picked = apply("take", conv(data, weight(8, 8, 3, 3), **padded(1)), places, axis=axis)
    body = conv(
        apply("multiply", picked, weight(*((5, 1) if axis == 2 else (5,)))), weight(8, 8, 3, 3)
    )
    made = _lowered(body, data)
    labels = [step.label for step in made[1].module.plan.steps]
    assert labels.count("transpose") == 2
    for n, h, w in ((1, 3, 5), (2, 7, 4)):
        check(*made, {"N": n, "H": h, "W": w})


@pytest.mark.parametrize(
    ("rows", "shared", "channels", "by_data"),
    [(2, False, 8, True), (6, False, 8, True), (6, True, 10, True), (6, True, 8, False)],
    ids=["2 rows", "6 rows", "shared", "shared by weights"],
)
def test_transformed_convolutions_of_open_pictures(
    rows: int, shared: bool, channels: int, by_data: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bands of a few tiles, groups of tiles that fill no register tile, odd edges.

    Ten channels leave a rest behind whole vectors.
    """
    monkeypatch.setattr(layout, "WINOGRAD", ReducedConvolution((3, 3), channels=8, results=25))
    monkeypatch.setattr(open_winograd, "_BAND_BYTES", 7 * 16 * 8 * 4)
    monkeypatch.setattr(open_winograd, "BAND_BYTES", (1 << 30) if by_data else 0)
    monkeypatch.setattr(open_winograd, "LEAST_DEPTH", 8)
    tiling = CpuTiling(lanes=4, rows=rows, shares_tiles=shared)
    monkeypatch.setitem(globals(), "small_strips", lambda _target, _dtype: tiling)
    table = Schedules(lambda _target, _dtype: tiling).table()
    monkeypatch.setitem(SCHEDULES, "cpu__winograd", table["cpu.winograd"])
    data = x("data", N, channels, H, W)
    body = apply("nn.relu", conv(data, weight(11, channels, 3, 3), weight(11), **padded(1)))
    made = _lowered(body, data, winograd=True)
    names = {one.name.split("_")[0] for one in procedures(made[1].module.functions)}
    assert names == ({"tiles", "winograd"} if shared else set())
    assert [step.label for step in made[1].module.plan.steps][1].startswith("cpu.winograd")
    for n, h, w in [(1, 2, 3), (2, 5, 6)] if shared else [*SIZES, (1, 9, 8)]:
        check(*made, {"N": n, "H": h, "W": w})


def test_open_windows_have_schedules() -> None:
    names = {"cpu.conv", "cpu.depthwise", "cpu.max_pool", "cpu.avg_pool", "cpu.winograd"}
    assert names <= lowering.OPEN_SCHEDULES


@pytest.mark.parametrize("given", [[0, 2, 3, 1], [0, 3, 1, 2]])
def test_transposes_of_the_model_between_layouts_are_none(given: list[int]) -> None:
    """Behind a convolution to channels last, or in front of one to the model's layout."""
    taps = weight(8, 8, 1, 3)
    if given[1] == 2:
        images = x("x", N, 8, H, W)
        body = apply("transpose", conv(images, taps), axes=given)
        wanted = 1  # of the images
    else:
        images = x("x", N, H, W, 8)
        behind = conv(apply("transpose", images, axes=given), taps)
        body = apply("transpose", behind, axes=(0, 2, 3, 1))
        wanted = 0
    function, made = _lowered(body, images)
    kernels = [kernel.name for kernel in made.module.functions]
    assert sum("transpose" in name for name in kernels) == wanted
    for n, h, w in SIZES[2:]:
        check(function, made, {"N": n, "H": h, "W": w})


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (1, 3)])
def test_pixels_are_repeated_in_the_layout_of_the_image(rows: int, columns: int) -> None:
    images = x("x", N, 8, H, W)
    first = conv(images, weight(8, 8, 1, 3))
    h, w = tensor_type(first).shape[2:]
    single = apply("reshape", first, shape=extents((N, 8, h, 1, w, 1)))
    repeated = apply("broadcast_to", single, shape=extents((N, 8, h, rows, w, columns)))
    whole = apply("reshape", repeated, shape=extents((N, 8, h * rows, w * columns)))
    body = conv(whole, weight(8, 8, 1, 1))
    _, made = _lowered(apply("transpose", body, axes=(0, 2, 3, 1)), images)
    kernels = [kernel.name for kernel in made.module.functions]
    assert sum("transpose" in name for name in kernels) == 1  # of the images
    assert sum("broadcast" in name for name in kernels) == 1
