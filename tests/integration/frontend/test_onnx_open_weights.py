# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose weight is an input of open sizes, compiled whole, beside ONNX Runtime."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest

import intarsia
from intarsia_runtime.errors import ModelError

PLANE = "float[n, c, h, w] x, float[o, c, k, l] y"
PLANES = [((2, 3, 9, 8), (4, 3, 3, 2)), ((1, 1, 5, 7), (1, 1, 2, 5)), ((1, 4, 2, 2), (5, 4, 2, 2))]
LINE = "float[n, 4, h] x, float[o, 2, k] y"
LINES = [((2, 4, 9), (4, 2, 3)), ((1, 4, 30), (2, 2, 7))]

CASES = {
    "plain": ("", PLANE, PLANES),
    "strides": ("<strides = [2, 1], pads = [1, 0, 2, 1]>", PLANE, PLANES[:1]),
    "dilations": ("<dilations = [1, 3]>", PLANE, PLANES[:1]),
    "groups": ("<group = 2, strides = [3], pads = [1, 1]>", LINE, LINES),
    "upper": ('<auto_pad = "SAME_UPPER", strides = [2, 3]>', PLANE, PLANES),
    "lower": ('<auto_pad = "SAME_LOWER">', PLANE, PLANES),
    "valid": ('<auto_pad = "VALID", strides = [1, 2]>', PLANE, PLANES),
    "kernel_shape": ("<kernel_shape = [3, 2]>", PLANE, PLANES[:1]),
}


def model(attrs: str, inputs: str) -> bytes:
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
    g ({inputs}, float[b] z) => (float[p, ...] r, float[p, ...] s) {{
        r = Conv {attrs} (x, y)
        s = Conv {attrs} (x, y, z)
    }}"""
    made = onnx.parser.parse_model(text.replace(", ...]", "]"))
    for info in made.graph.output:
        info.type.tensor_type.ClearField("shape")
    return made.SerializeToString()


def feeds(x: Sequence[int], y: Sequence[int], z: int | None = None) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(sum(x) + sum(y))
    shapes = {"x": x, "y": y, "z": (y[0] if z is None else z,)}
    return {name: rng.random(shape, np.float32) - 0.5 for name, shape in shapes.items()}


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("name", CASES)
def test_a_weight_may_be_an_input_of_open_sizes(name: str, target: str) -> None:
    attrs, inputs, rows = CASES[name]
    data = model(attrs, inputs)
    artifact = intarsia.build(data, target)
    assert artifact.passport.executor["kind"] == "aot"
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    with artifact.load(threads=1) as executable:
        for x, y in rows:
            given = feeds(x, y)
            wanted = session.run(None, dict(given))
            for mine, theirs in zip(executable.run(given).values(), wanted, strict=True):
                assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "x", "y", "why"),
    [
        ("plain", (1, 3, 5, 5), (2, 3, 6, 1), "a window must fit into the data"),
        ("plain", (1, 3, 5, 5), (2, 3, 0, 1), "a window must have elements"),
        ("groups", (1, 4, 5), (3, 2, 2), "the outputs must be as many in each group"),
        ("kernel_shape", (1, 3, 5, 5), (2, 3, 3, 3), "must be float32 (o, c, 3, 2)"),
    ],
)
def test_a_weight_that_does_not_fit_ends_the_run(
    name: str, x: Sequence[int], y: Sequence[int], why: str
) -> None:
    attrs, inputs, _ = CASES[name]
    with (
        intarsia.build(model(attrs, inputs), "llvm").load(threads=1) as executable,
        pytest.raises(ModelError, match=re.escape(why)),
    ):
        executable.run(feeds(x, y))


@pytest.mark.parametrize(
    ("attrs", "inputs", "why"),
    [
        ("", "float[n, c, h, w] x, float[o, c, k] y", "weight .* for data"),
        ('<auto_pad = "SAME">', PLANE, "auto_pad='SAME' is not defined"),
        ("<kernel_shape = [3]>", PLANE, r"kernel_shape \(3,\) for 2 spatial dimensions"),
        ("<group = 0>", PLANE, "group=0 must be positive"),
    ],
)
def test_attributes_that_are_wrong_are_refused(attrs: str, inputs: str, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        intarsia.build(model(attrs, inputs), "llvm")
