# SPDX-License-Identifier: Apache-2.0
"""1x1 convolutions that stand alone, of images whose pixels fill no vectors, as machine code."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.walk import calls
from intarsia_testkit.expressions import apply, expected, fresh, function_of, var, weight

ATTRS = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}


@pytest.mark.parametrize("cpu", ["skylake-avx512", "haswell"])
@pytest.mark.parametrize(
    ("shape", "outputs"),
    [
        ((1, 1024, 14, 14), 256),
        ((2, 256, 3, 3), 250),
        ((1, 1024, 33, 33), 128),
        ((3, 96, 1, 5), 72),
    ],
)
def test_convolutions_of_points(runner, shape, outputs, cpu) -> None:
    kernel, bias = weight(outputs, shape[1], 1, 1), weight(outputs)
    function = function_of(
        apply("nn.relu", apply("nn.conv", var("x", *shape), kernel, bias, **ATTRS))
    )
    data = fresh(*shape)
    (got,), changed, _ = runner(function, data, mcpu=cpu)
    names = [node.name for node in calls(changed)]
    # With 16 registers a tile has fewer rows than a set of a cache has lines.
    few = cpu == "haswell" and shape[1] == 1024
    assert ("cpu.column_dense" in names) is not few
    (want,) = expected(function, [data])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
