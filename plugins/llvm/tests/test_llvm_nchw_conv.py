# SPDX-License-Identifier: Apache-2.0
"""First layers of sound and of images as machine code, in the model's layout, at every length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import apply, expected, function_of, var

OPTIONS = [{}, {"mcpu": "haswell"}]


def _drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("options", OPTIONS, ids=["native", "AVX2"])
@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "stride", "pad"),
    [
        ((1, 1, 1, 4000), 64, (1, 10), 5, 0),
        ((1, 1, 1, 4000), 40, (1, 16), 8, 3),
        ((1, 3, 96, 96), 32, (3, 3), 2, 1),
        ((2, 3, 64, 64), 20, (7, 7), 4, 3),
        ((1, 24, 40, 64), 3, (9, 9), 1, 4),
        ((1, 3, 40, 71), 12, (5, 5), 2, 2),  # a phase has a vector and some
        ((1, 3, 40, 33), 12, (3, 3), 2, 0),
        ((1, 2, 50, 147), 9, (4, 4), 4, 0),
        ((1, 2, 50, 150), 9, (7, 7), 4, 5),
        ((2, 1, 1, 1203), 20, (1, 9), 8, 7),
        ((1, 3, 96, 300), 8, (3, 3), 3, 1),
    ],
)
def test_layers_of_few_channels(runner, shape, outputs, kernel, stride, pad, options):
    strides, padding = ((1, stride), ((0, 0), (pad, pad))) if kernel[0] == 1 else (
        (stride, stride), ((pad, pad),) * 2
    )  # fmt: skip
    x, weight = var("x", *shape), constant(_drawn(outputs, shape[1], *kernel))
    attrs = {"strides": strides, "padding": padding, "dilation": (1, 1), "groups": 1}
    function = function_of(apply("nn.relu", apply("nn.conv", x, weight, **attrs)))
    (got,), changed, _ = runner(function, _drawn(*shape), **options)
    assert "cpu.plane_conv" in [node.name for node in calls(changed)]
    (want,) = expected(function, [_drawn(*shape)])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cpu", ["", " -mcpu=haswell"], ids=["native", "AVX2"])
@pytest.mark.parametrize(("taps", "stride", "pad"), [(10, 5, 0), (3, 1, 1), (16, 8, 4)])
def test_sound_of_open_length(tmp_path: Path, taps: int, stride: int, pad: int, cpu: str) -> None:
    length = variable("L")
    x = Var("x", TensorType((variable("N"), 1, length), DType.FLOAT32))
    attrs = {"strides": (stride,), "padding": ((pad, pad),), "dilation": (1,), "groups": 1}
    weight, bias = constant(_drawn(37, 1, taps)), constant(_drawn(37))
    function = Function((x,), apply("nn.relu", apply("nn.conv", x, weight, bias, **attrs)))
    model = IRModule.from_function(function)
    built = intarsia.build(model, "llvm" + cpu).save(tmp_path / "sound.intarsia")
    with intarsia.load(built, threads=2) as executable:
        for batch, size in ((1, taps), (2, taps + 7 * stride), (1, 333), (3, 1600), (1, 8001)):
            data = _drawn(batch, 1, size)
            (got,) = executable.run({"x": data}).values()
            (want,) = evaluate(function, {"x": data})
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
