# SPDX-License-Identifier: Apache-2.0
"""Results of programs against the operators' definitions, and against Arm's reference model."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia_ethos_u.codegen import emit
from intarsia_ethos_u.operators.convolution import whole_windows
from intarsia_ethos_u.tosa.execute import execute
from intarsia_ethos_u.tosa.program import TosaBorder, TosaNode, TosaProgram, TosaTensor
from intarsia_ethos_u.tosa.scale import MAX_SHIFT, fits, multiplier_and_shift
from intarsia_ir.graph.expr import Expr
from intarsia_runtime.errors import ArtifactError
from intarsia_testkit.quantized_expressions import inputs_for

from .cases import CASES
from .quantized import differences, region_of
from .tools import by_reference_model


@pytest.mark.parametrize("make", CASES)
def test_results_are_within_one_quantum_of_the_definitions(make: Callable[[], Expr]) -> None:
    away = differences(make())
    assert np.abs(away).max() <= 1
    # TOSA rounds ties up, the definitions to even; means over few elements have many ties.
    assert np.mean(away != 0) < 0.06


@pytest.mark.parametrize("make", CASES)
def test_the_reference_model_of_arm_gives_the_same_bits(
    make: Callable[[], Expr], tmp_path: Path
) -> None:
    region = region_of(make())
    program, constants = emit(region)
    inputs = inputs_for(region.function)
    theirs = by_reference_model(program, constants, inputs, tmp_path)
    for mine, right in zip(execute(program, constants, inputs), theirs, strict=True):
        np.testing.assert_array_equal(mine, right)


@given(st.floats(2.0**-31, 2.0**28))
def test_scales_keep_31_bits(scale: float) -> None:
    multiplier, shift = multiplier_and_shift(scale)
    assert 1 << 30 <= multiplier < 1 << 31
    assert math.isclose(multiplier * 2.0**-shift, scale, rel_tol=2.0**-31)


@given(st.floats(2.0**-60, 2.0**-31))
def test_small_scales_keep_what_fits(scale: float) -> None:
    multiplier, shift = multiplier_and_shift(scale)
    assert shift <= MAX_SHIFT
    assert abs(multiplier * 2.0**-shift - scale) <= 2.0**-62


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan, 2.0**29])
def test_scales_that_cannot_be_written(scale: float) -> None:
    assert not fits(scale)


@given(
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_windows_fit_without_a_rest(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> None:
    reach = (kernel - 1) * dilation + 1
    if size + before + after < reach:
        return
    (top, bottom), dropped = whole_windows(size, kernel, stride, dilation, (before, after))
    assert top == before
    assert min(bottom, dropped) == 0 or after > 0
    left = size - dropped + top + bottom - reach
    assert left >= 0
    assert left % stride == 0
    assert left // stride == (size + before + after - reach) // stride


def test_an_operator_of_a_later_release() -> None:
    tensor = TosaTensor((1,), "INT8")
    program = TosaProgram(
        {"a": tensor, "b": tensor}, {}, (TosaNode("FFT2D", ("a",), "b"),), (TosaBorder("a"),), ()
    )
    with pytest.raises(ArtifactError, match="operator FFT2D"):
        execute(program, {}, [np.zeros(1, np.int8)])
