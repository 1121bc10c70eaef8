# SPDX-License-Identifier: Apache-2.0
"""The caches that a hardware tag gives choose the sizes of tiles."""

from __future__ import annotations

import re

import numpy as np
import pytest

import intarsia
from intarsia.driver.stages import read_target
from intarsia.host.host import Host
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops.nn import Conv
from intarsia_llvm.schedules.table import tiling_of
from intarsia_runtime.dtype import DType

KIB = 1 << 10


@pytest.fixture(scope="module")
def host() -> Host:
    return Host(env={})


@pytest.mark.parametrize(
    "target, share",
    [
        ("rockchip/rk3328", 256 * KIB // 4),
        ("raspberrypi/3b", 512 * KIB // 4),
        ("rockchip/rk3588:littlecpu", 128 * KIB),
    ],
)
def test_strips_and_panels_stay_in_the_share_of_a_core(host, target, share):
    shape = tiling_of(read_target(host, target, None).fallback, DType.FLOAT32)
    assert (shape.strip_bytes, shape.panel_bytes) == (share * 7 // 8, share * 3 // 4)


@pytest.mark.parametrize("target", ["rockchip/rk3588", "raspberrypi/4b", "arm/cortex-a53"])
def test_a_cache_that_is_large_enough_or_unknown_changes_nothing(host, target):
    plain = tiling_of(host.target("llvm -mcpu=cortex-a53 -mtriple=aarch64-linux-gnu").fallback,
                     DType.FLOAT32)  # fmt: skip
    shape = tiling_of(read_target(host, target, None).fallback, DType.FLOAT32)
    assert (shape.strip_bytes, shape.panel_bytes) == (plain.strip_bytes, plain.panel_bytes)


def test_code_for_a_small_cache_pads_fewer_rows_at_a_time(host, tmp_path):
    x = Var("x", TensorType((1, 64, 64, 64), DType.FLOAT32))
    weight = constant(np.ones((64, 64, 3, 3), np.float32), name="w")
    conv = call(
        Conv, x, weight, attrs=Conv.Attrs(strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1))
    )
    model = IRModule.from_function(Function((x,), conv, ("y",)))
    rows: dict[str, int] = {}
    for name in ("raspberrypi/3b", "arm/cortex-a53"):  # the same core, with and without a cache
        folder = tmp_path / name.replace("/", "-")
        intarsia.build(model, f"{name} -winograd=false", host=host, dump_ir=folder)
        (lowered,) = folder.glob("*lowered*")
        (match,) = re.findall(r"strip\w*: float32\[(?:\d+, )?(\d+), 4224\]", lowered.read_text())
        rows[name] = int(match)
    assert rows["raspberrypi/3b"] * 4224 * 4 <= 512 * KIB // 4 * 7 // 8
    assert rows["raspberrypi/3b"] < rows["arm/cortex-a53"]
