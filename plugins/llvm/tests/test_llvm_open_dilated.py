# SPDX-License-Identifier: Apache-2.0
"""Convolutions with taps far apart over images of open sizes: taps outside are not read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_ir.graph.expr import Function, Var, call, constant
from intarsia_ir.graph.module import IRModule
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.ops.nn import Conv
from intarsia_runtime.dtype import DType

WINDOWS = {
    "far": ((3, 3), (12, 12), (1, 1), ((12, 12), (12, 12)), 1),
    "farther": ((3, 3), (36, 24), (1, 1), ((36, 36), (24, 24)), 1),
    "steps": ((3, 3), (4, 5), (2, 3), ((4, 4), (5, 6)), 1),
    "groups": ((3, 3), (6, 6), (1, 1), ((6, 6), (6, 6)), 2),
    "rows": ((3, 1), (7, 1), (1, 1), ((7, 7), (0, 0)), 1),
    "joined": ((3, 3), (9, 1), (1, 1), ((9, 9), (1, 1)), 1),
    "columns": ((1, 5), (1, 8), (1, 2), ((0, 0), (16, 16)), 1),
    "much padding": ((2, 2), (3, 3), (1, 1), ((20, 20), (20, 20)), 1),
}
SIZES = [(1, 1, 1), (2, 4, 5), (1, 12, 14), (1, 40, 3), (3, 25, 33), (1, 64, 70)]


@pytest.mark.parametrize("name", WINDOWS)
def test_results_are_those_of_the_reference(tmp_path: Path, name: str) -> None:
    kernel, dilation, strides, padding, groups = WINDOWS[name]
    shape = (variable("N"), 16, variable("H"), variable("W"))
    data = Var("x", TensorType(shape, DType.FLOAT32))
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((24, 16 // groups, *kernel)).astype(np.float32)
    attrs = Conv.Attrs(strides=strides, padding=padding, dilation=dilation, groups=groups)
    made = call(Conv, data, constant(weight), attrs=attrs)
    module = IRModule.from_function(Function((data,), made, ("y",)))
    intarsia.build(module, "llvm").save(tmp_path / "conv.intarsia")
    with intarsia.load(tmp_path / "conv.intarsia", threads=2) as executable:
        for batch, rows, columns in SIZES:
            x = rng.standard_normal((batch, 16, rows, columns)).astype(np.float32)
            (wanted,) = evaluate(module.main, {"x": x}, module)
            np.testing.assert_allclose(executable.run({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
