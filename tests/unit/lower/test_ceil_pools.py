# SPDX-License-Identifier: Apache-2.0
"""Pools with ceil_mode become pools without, which compute the same."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from intarsia_ir.graph.expr import Call, Var, call, tensor_type
from intarsia_ir.graph.types import Size, TensorType, variable
from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.pooling import AvgPool, MaxPool, PoolAttrs
from intarsia_loops.cpu.ceil_pools import round_down_pools
from intarsia_runtime.dtype import DType
from intarsia_testkit.expressions import expected, function_of


def pool(size: Size, *, mean: bool = False, counts: bool = False, **attrs: int) -> Call:
    """A pool of squares; all attributes are those of both dimensions."""
    named = {"kernel": 3, "strides": 2, "dilation": 1, "low": 0, "high": 0, **attrs}
    ends = (named.pop("low"), named.pop("high"))
    pairs = {name: (value, value) for name, value in named.items()}
    x = Var("x", TensorType((1, 2, size, size), DType.FLOAT32))
    if not mean:
        return call(MaxPool, x, attrs=PoolAttrs(padding=(ends, ends), ceil_mode=True, **pairs))
    own = AvgPool.Attrs(padding=(ends, ends), ceil_mode=True, count_include_pad=counts, **pairs)
    return call(AvgPool, x, attrs=own)


def is_rounded(body: Call) -> bool:
    found = [n for n in calls(round_down_pools(function_of(body))) if n.op in (AvgPool, MaxPool)]
    return any(isinstance(n.attrs, PoolAttrs) and n.attrs.ceil_mode for n in found)


@settings(deadline=None)
@given(
    st.integers(3, 12), st.booleans(), st.booleans(), st.integers(1, 4), st.integers(1, 4),
    st.integers(1, 2), st.integers(0, 2), st.integers(0, 2),
)  # fmt: skip
def test_any_pool(
    size: int, mean: bool, counts: bool, kernel: int, stride: int, step: int, low: int, high: int
) -> None:
    assume(max(low, high) < kernel and (kernel - 1) * step < size)
    sizes = {"kernel": kernel, "strides": stride, "dilation": step, "low": low, "high": high}
    body = pool(size, mean=mean, counts=counts, **sizes)
    changed = round_down_pools(function_of(body))
    assert not is_rounded(body)
    assert tensor_type(changed.body) == body.type
    shape = tensor_type(body.args[0]).static_shape
    x = np.random.default_rng(prod(shape)).standard_normal(shape).astype(np.float32)
    (want,), (got,) = expected(function_of(body), [x]), expected(changed, [x])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        (pool(variable("H"), low=1, high=1), False),
        (pool(variable("H"), mean=True, counts=True, low=1, high=1), False),
        (pool(variable("H")), True),  # of one pixel there is no window
        (pool(9, kernel=2, high=2), True),
    ],
    ids=["open", "padding that counts", "perhaps no window", "padding as large as a window"],
)
def test_which_are_left(body: Call, left: bool) -> None:
    assert is_rounded(body) is left
