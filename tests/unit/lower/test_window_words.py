# SPDX-License-Identifier: Apache-2.0
"""Rows of windows over few channels become channels: the same sums, fewer words."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.graph.expr import Function, Var
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.ops.nn import Conv
from intarsia_loops.cpu.window_words import row_windows
from intarsia_runtime.dtype import DType

TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
CASES = {
    "keywords": ((49, 10), 1, (10, 4), (2, 2), ((4, 5), (1, 1)), (1, 1)),
    "digits": ((28, 28), 1, (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    "two channels": ((7, 9), 2, (3, 2), (2, 3), ((0, 0), (0, 1)), (1, 1)),
    "distant taps": ((15, 17), 1, (2, 5), (1, 2), ((2, 0), (3, 3)), (3, 2)),
    "one row": ((1, 40), 1, (1, 8), (1, 4), ((0, 0), (0, 0)), (1, 1)),
    "steps that are cut": ((1, 61), 1, (1, 23), (1, 7), ((0, 0), (3, 2)), (1, 1)),
    "all of a row": ((2, 23), 1, (1, 23), (1, 7), ((0, 0), (0, 0)), (1, 1)),
}


def conv(case: str) -> tuple[Conv.Attrs, Var, np.ndarray]:
    size, channels, kernel, strides, padding, dilation = CASES[case]
    attrs = Conv.Attrs(strides=strides, padding=padding, dilation=dilation, groups=1)
    source = Var("x", TensorType((2, *size, channels), DType.UINT8))
    weight = np.random.default_rng(4).integers(-128, 128, (16, channels, *kernel)).astype(np.int8)
    return attrs, source, weight


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_sums_are_the_same(case: str, whole: bool) -> None:
    attrs, source, weight = conv(case)
    found = row_windows(attrs, source, weight, 7, whole=whole)
    assert found is not None
    own, image, moved = found
    assert (moved.shape[2:] == (1, 1)) == (whole or weight.shape[2] == 1)
    assert moved.shape[3] == 1
    data = np.random.default_rng(5).integers(0, 256, (2, *CASES[case][0], CASES[case][1]))
    (made,) = evaluate(Function((source,), image), {"x": data.astype(np.uint8)})
    widths = ((0, 0), (0, 0), *attrs.padding)
    whole_image = np.pad(data.transpose(TO_FIRST), widths, constant_values=7)
    rows = ((0, 0), (0, 0), own.padding[0], (0, 0))
    rest = np.pad(made.transpose(TO_FIRST), rows, constant_values=7)
    plain, other = (
        Conv.Attrs(strides=each.strides, padding=((0, 0), (0, 0)), dilation=each.dilation, groups=1)
        for each in (attrs, own)
    )
    wanted = Conv.reference(plain, whole_image.astype(np.float64), weight.astype(np.float64))
    result = Conv.reference(other, rest.astype(np.float64), moved.astype(np.float64))
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_open_sizes_have_the_channels_of_known_ones(case: str, whole: bool) -> None:
    attrs, source, weight = conv(case)
    size, channels = CASES[case][:2]
    sizes = (variable("N"), variable("H"), variable("W"), channels)
    opened = Var("x", TensorType(sizes, DType.UINT8))
    data = np.random.default_rng(6).integers(0, 256, (2, *size, channels)).astype(np.uint8)
    images: list[np.ndarray] = []
    for given in (source, opened):
        found = row_windows(attrs, given, weight, 7, whole=whole)
        assert found is not None
        images += evaluate(Function((given,), found[1]), {"x": data})
    np.testing.assert_array_equal(*images)


@pytest.mark.parametrize(
    ("shape", "weight", "groups"),
    [
        ((1, 8, 8, 3), (16, 3, 3, 3), 1),  # 9 bytes take 3 words, as 3 pixels do
        ((1, 8, 8, 4), (16, 4, 3, 3), 1),
        ((1, 8, 8, 1), (15, 1, 3, 3), 1),  # few outputs
        ((1, 8, 8, 1), (16, 1, 3, 1), 1),
        ((1, 8, 8, 2), (16, 1, 3, 3), 2),
    ],
)
def test_other_convolutions_stay(
    shape: tuple[int, ...], weight: tuple[int, ...], groups: int
) -> None:
    attrs = Conv.Attrs(strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=groups)
    source = Var("x", TensorType(shape, DType.UINT8))
    assert row_windows(attrs, source, np.ones(weight, np.int8), 0, whole=False) is None
