# SPDX-License-Identifier: Apache-2.0
"""Windows channels last: tiles that reach into the borders of a row have the taps of each pixel."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.target.target import Target
from intarsia_ir.graph.expr import Expr, Var, tensor_type
from intarsia_ir.graph.walk import calls
from intarsia_ir.tir.stmt import Allocate
from intarsia_ir.tir.walk import statements
from intarsia_loops.cpu.layout import use_channels_last
from intarsia_loops.cpu.table import Schedules
from intarsia_loops.cpu.tiling import CpuTiling
from intarsia_loops.lower import Lowered
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

from .conftest import carry_out, lower, make_target


def _tiling_of(_target: Target, _dtype: DType) -> CpuTiling:
    return CpuTiling(lanes=4, rows=6)


def _lowered(body: Expr, name: str) -> tuple[Lowered, list[np.ndarray]]:
    function = function_of(body)
    changed = use_channels_last(function, CpuTiling(lanes=4, rows=6))
    assert name in [node.name for node in calls(changed)]
    table = Schedules(_tiling_of).table()
    found = {key.replace(".", "__"): schedule for key, schedule in table.items()}
    arrays = [fresh(*tensor_type(p).static_shape, seed=n) for n, p in enumerate(function.params)]
    return lower(changed, (), target=make_target(**found)), arrays


def _channels_last(*shape: int) -> Expr:
    """An image that no transpose leads to, of ``[N, C, H, W]``."""
    n, c, h, w = shape
    return apply("transpose", Var("x", var("x", n, h, w, c).type), axes=(0, 3, 1, 2))


def _depthwise(shape: tuple[int, ...], taps: int, pad: int, stride: int, dilation: int) -> Expr:
    channels = shape[1]
    return apply(
        "nn.conv",
        _channels_last(*shape),
        weight(channels, 1, taps, taps),
        strides=(stride, stride),
        padding=((pad, pad), (pad, pad)),
        dilation=(dilation, dilation),
        groups=channels,
    )


@pytest.mark.parametrize(
    ("width", "taps", "pad", "stride", "dilation"),
    [
        (7, 7, 3, 1, 1),  # one tile
        (5, 3, 1, 1, 1),
        (2, 7, 3, 1, 1),  # no pixel has all taps
        (14, 5, 2, 1, 1),  # two tiles, both at a border
        (9, 5, 2, 1, 1),  # of 5 and 4
        (30, 7, 3, 1, 1),  # tiles between them
        (33, 7, 4, 1, 1),  # a result more than there are pixels
        (13, 7, 3, 2, 1),  # one tile of a stride
        (21, 5, 4, 1, 2),
        (6, 3, 8, 1, 8),  # pixels that only padding meets
        (20, 3, 1, 1, 1),  # borders of a pixel
        (40, 17, 8, 1, 1),  # more taps than are written out
    ],
)
def test_depthwise_convolutions(width, taps, pad, stride, dilation) -> None:
    body = _depthwise((2, 6, 6, width), taps, pad, stride, dilation)
    lowered, arrays = _lowered(body, "cpu.depthwise")
    (got,) = carry_out(lowered, arrays, compiled=True)
    (want,) = expected(function_of(body), arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
@pytest.mark.parametrize(("width", "taps"), [(7, 3), (14, 5)])
def test_pools_count_the_taps_of_each_pixel(name: str, width: int, taps: int) -> None:
    attrs = {"kernel": (taps, taps), "strides": (1, 1), "dilation": (1, 1)}
    padding = ((taps // 2, taps // 2),) * 2
    body = apply(f"nn.{name}", _channels_last(1, 6, 7, width), padding=padding, **attrs)
    lowered, arrays = _lowered(body, f"cpu.{name}")
    (got,) = carry_out(lowered, arrays, compiled=True)
    (want,) = expected(function_of(body), arrays)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("width", "taps", "tiles"),
    [(7, 7, {7}), (14, 5, {7}), (17, 7, {6, 5}), (20, 3, {1, 8, 2}), (40, 17, {1, 8})],
)
def test_tiles_of_a_row(width: int, taps: int, tiles: set[int]) -> None:
    lowered, _ = _lowered(_depthwise((1, 4, 6, width), taps, taps // 2, 1, 1), "cpu.depthwise")
    kernels = [f for f in lowered.module.functions if "depthwise" in f.name]
    sums = [s.buffer for f in kernels for s in statements(f.body) if isinstance(s, Allocate)]
    assert {buffer.shape[0] for buffer in sums} == tiles
