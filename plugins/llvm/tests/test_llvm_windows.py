# SPDX-License-Identifier: Apache-2.0
"""Code for a window is as long for 255 taps as for 63, and computes as the reference does."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_llvm.codegen import llvm_text
from intarsia_llvm.lowering import lower_function as lower
from intarsia_llvm.plugin import rewrite_relay
from intarsia_testkit.expressions import apply, expected, function_of, var

LONG, SHORT = 255, 63

CASES = {
    "depthwise, rows": ("nn.conv", (1, 3, 9, 24), lambda k: (k, 3), {}),
    "depthwise, columns": ("nn.conv", (1, 3, 4, 300), lambda k: (3, k), {}),
    "depthwise by 2": ("nn.conv", (1, 3, 9, 300), lambda k: (3, k), {"strides": 2}),
    "depthwise, one-dimensional": ("nn.conv", (1, 20, 300), lambda k: (k,), {}),
    "depthwise of many rows": ("nn.conv", (1, 2, 300, 24), lambda k: (k, 3), {}),
    "max": ("nn.max_pool", (1, 3, 6, 300), lambda k: (3, k), {}),
    "mean": ("nn.avg_pool", (1, 3, 6, 300), lambda k: (3, k), {}),
    "mean of rows": ("nn.avg_pool", (1, 3, 24, 6), lambda k: (k, 3), {}),
    "convolution": ("nn.conv", (1, 3, 6, 300), lambda k: (3, k), {"groups": 1}),
    "of a volume": ("nn.conv", (1, 2, 3, 4, 5), lambda k: (k, 1, 1), {"groups": 1}),
    "transposed": ("nn.conv_transpose", (1, 2, 6, 7), lambda k: (3, k), {"groups": 1}),
}


def window(case, taps):
    """Return a function of one window, and its operands; padding keeps the sizes."""
    name, shape, kernel_of, attrs = CASES[case]
    kernel = kernel_of(taps)
    rank, attrs = len(kernel), {"dilation": 1, "strides": 1, **attrs}
    attrs = {k: v if k == "groups" else (v,) * rank for k, v in attrs.items()}
    attrs["padding"] = tuple((size // 2, size // 2) for size in kernel)
    rng = np.random.default_rng(taps)
    operands = [("x", shape)]
    if name.endswith("pool"):
        attrs["kernel"] = kernel
    else:
        inner = shape[1] if attrs.get("groups") == 1 else 1
        attrs.setdefault("groups", shape[1])
        operands.append(("weight", (shape[1], inner, *kernel)))
    given = [rng.standard_normal(size).astype(np.float32) for _, size in operands]
    arguments = [var(label, *size) for label, size in operands]
    return function_of(apply(name, *arguments, **attrs)), given


@pytest.mark.parametrize("case", CASES)
def test_long_windows_are_right(runner, case):
    function, values = window(case, LONG)
    (got,), _, _ = runner(function, *values)
    (want,) = expected(function, values)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_code_does_not_grow_with_the_window(make_target, case):
    target = make_target(mcpu="x86-64-v3")

    def size(taps):
        function = rewrite_relay(window(case, taps)[0], target)
        return len(llvm_text(lower(function, (), target=target).module, target.options))

    assert size(LONG) < 1.2 * size(SHORT)
