# SPDX-License-Identifier: Apache-2.0
"""Sizes that stay open keep no simplification away: what holds for numbers holds for symbols."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.text import parse_module, print_module
from intarsia_ir.ops import OPERATORS
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.prepare import PREPARE

PARAMS = {
    "bias": np.array([-1, -0.5, 0.5, 1], np.float32).reshape(1, 4, 1),
    "weight": np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 3, 2, 1),
    "square": np.linspace(-1, 1, 108, dtype=np.float32).reshape(4, 3, 3, 3),
    "rows": np.linspace(-2, 2, 15, dtype=np.float32).reshape(5, 3),
}

CASES = {
    "unchanged": (
        """def @main(%x: Tensor[(N, 4), float32]) -> Tensor[(N, 4), float32] {
  %0 = reshape(%x, shape=(`N`, 4));
  %1 = broadcast_to(%0, shape=(`N`, 4));
  %2 = strided_slice(%1, begin=(0, 0), end=(2147483647, 4), strides=(1, 1));
  %3 = nn.relu(%2);
  %3
}
""",
        """def @main(%x: Tensor[(N, 4), float32]) -> Tensor[(N, 4), float32] {
  %0 = nn.relu(%x);
  %0
}
""",
    ),
    "one-value": (
        """def @main(%x: Tensor[(N, 4), float32]) -> Tensor[(N, 8), float32] {
  %0 = full(shape=(4, `N`, 2), value=0.5, dtype=float32);
  %1 = strided_slice(%0, begin=(1, 0, 0), end=(3, 2147483647, 2), strides=(1, 1, 1));
  %2 = transpose(%1, axes=(1, 0, 2));
  %3 = reshape(%2, shape=(`N`, 4));
  %4 = concatenate(%x, %3, axis=1);
  %4
}
""",
        """def @main(%x: Tensor[(N, 4), float32]) -> Tensor[(N, 8), float32] {
  %0 = full(shape=(`N`, 4), value=0.5, dtype=float32);
  %1 = concatenate(%x, %0, axis=1);
  %1
}
""",
    ),
    "reshapes": (
        """def @main(%x: Tensor[(N, 4, 1, M), float32]) -> Tensor[(`M*N`, 4), float32] {
  %0 = transpose(%x, axes=(0, 2, 1, 3));
  %1 = reshape(%0, shape=(`N`, `4*M`));
  %2 = reshape(%1, shape=(`M*N`, 4));
  %2
}
""",
        """def @main(%x: Tensor[(N, 4, 1, M), float32]) -> Tensor[(`M*N`, 4), float32] {
  %0 = reshape(%x, shape=(`M*N`, 4));
  %0
}
""",
    ),
    "sound-as-an-image": (
        """def @main(%x: Tensor[(N, 3, L, 1), float32]) -> Tensor[(N, 4), float32] {
  %0 = nn.conv(%x, const "weight": Tensor[(4, 3, 2, 1), float32], strides=(1, 1), \
padding=((0, 0), (0, 0)), dilation=(1, 1));
  %1 = reshape(%0, shape=(`N`, 4, `L-1`));
  %2 = add(%1, const "bias": Tensor[(1, 4, 1), float32]);
  %3 = tanh(%2);
  %4 = max(%3, axes=(2,));
  %4
}
""",
        """def @main(%x: Tensor[(N, 3, L, 1), float32]) -> Tensor[(N, 4), float32] {
  %0 = nn.conv(%x, const "weight": Tensor[(4, 3, 2, 1), float32], const([-1.0, -0.5, 0.5, 1.0], \
float32), strides=(1, 1), padding=((0, 0), (0, 0)), dilation=(1, 1));
  %1 = tanh(%0);
  %2 = max(%1, axes=(2,), keepdims=True);
  %3 = reshape(%2, shape=(`N`, 4));
  %3
}
""",
    ),
    "square-windows-of-a-line": (
        """def @main(%x: Tensor[(N, 3, 1, L), float32]) -> Tensor[(N, 4, 1, L), float32] {
  %0 = nn.conv(%x, const "square": Tensor[(4, 3, 3, 3), float32], strides=(1, 1), \
padding=((1, 1), (1, 1)), dilation=(1, 1));
  %0
}
""",
        """def @main(%x: Tensor[(N, 3, 1, L), float32]) -> Tensor[(N, 4, 1, L), float32] {
  %0 = nn.conv(%x, const "square": Tensor[(4, 3, 1, 3), float32], strides=(1, 1), \
padding=((0, 0), (1, 1)), dilation=(1, 1));
  %0
}
""",
    ),
    "one-hot": (
        """def @main(%x: Tensor[(N, 9, 1), int32]) -> Tensor[(N, 9, 3), float32] {
  %0 = equal(%x, const([[[0, 1, 2, 3, 4]]], int32));
  %1 = cast(%0, dtype=float32);
  %2 = matmul(%1, const "rows": Tensor[(5, 3), float32]);
  %3 = tanh(%2);
  %3
}
""",
        """def @main(%x: Tensor[(N, 9, 1), int32]) -> Tensor[(N, 9, 3), float32] {
  %0 = reshape(%x, shape=(`N`, 9));
  %1 = minimum(%0, const(5, int32));
  %2 = maximum(%1, const(-1, int32));
  %3 = take(const "#0": Tensor[(6, 3), float32], %2, axis=0);
  %3
}
""",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_open_sizes_are_simplified_as_numbers_are(case: str) -> None:
    text, want = CASES[case]
    before = parse_module(text, operators=OPERATORS, params=PARAMS)
    after = PREPARE.run(before, check=True)
    assert print_module(after) == want
    (x,) = before.main.params
    sizes = {"N": 2, "M": 3, "L": 7}
    shape = [sizes.get(str(size), size) for size in x.type.shape]
    values = np.arange(np.prod(shape)).reshape(shape).astype(x.type.dtype.value) % 7 - 1
    (expected,) = evaluate(before.main, {"x": values})
    (got,) = evaluate(after.main, {"x": values})
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
