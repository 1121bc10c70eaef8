# SPDX-License-Identifier: Apache-2.0
"""Convolutions of rows that no cache holds, which are cut into pieces."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_loops.cpu.row_segments import segment_columns
from intarsia_loops.cpu.window import Window
from intarsia_testkit.expressions import apply, expected, function_of, var

ROWS = {
    "plain": ((1, 64, 4000), (16, 64, 3), {"padding": ((1, 1),)}),
    "padding at the front alone": ((1, 64, 4000), (16, 64, 4), {"padding": ((3, 0),)}),
    "three steps": ((1, 32, 12_001), (8, 32, 5), {"padding": ((2, 4),), "strides": (3,)}),
    "groups": ((2, 64, 16_000), (64, 16, 3), {"padding": ((1, 1),), "groups": 4}),
    "one channel": ((1, 1, 240_000), (4, 1, 9), {"padding": ((4, 4),)}),
    "taps far apart": ((1, 16, 18_000), (8, 16, 3), {"padding": ((900, 900),), "dilation": (900,)}),
    "images": ((1, 16, 7, 4000), (8, 16, 5, 5), {"padding": ((2, 2), (2, 2))}),
    "images by two": (
        (1, 16, 7, 4001),
        (8, 16, 5, 5),
        {"padding": ((2, 2), (2, 2)), "strides": (2, 2)},
    ),
}


@pytest.mark.parametrize("options", [{}, {"mcpu": "x86-64-v3", "num_threads": 1}], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_long_rows(runner, name, options):
    data, kernel, given = ROWS[name]
    rank = len(data) - 2
    attrs = {"strides": (1,) * rank, "dilation": (1,) * rank, "groups": 1, **given}
    x, weight = var("x", *data), var("weight", *kernel)
    function = function_of(apply("nn.conv", x, weight, **attrs))
    drawn = np.random.default_rng(11)
    values = [drawn.standard_normal(shape).astype(np.float32) for shape in (data, kernel)]
    (got,), _, lowered = runner(function, *values, **options)
    (want,) = expected(function, values)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    # The workspace has pieces, not copies of whole rows.
    strips = [b for f in lowered.module.functions for b in f.scratch_params if "strip" in b.name]
    copies = 1 if options else 64
    assert strips
    assert all(b.bytes <= copies * (600 << 10) for b in strips)


def test_rows_are_cut_where_they_are_long():
    def pieces(columns, stride=1, dilation=1):
        window = Window(
            (1, columns), (1, columns // stride), (1, 3), (1, stride), (0, 1), (1, dilation)
        )
        return segment_columns(window, 256, 224 << 10, 28)

    assert pieces(3000) == 3000
    assert pieces(50_000) == 896  # 56 pieces
    assert pieces(50_000, stride=2) == 448
    assert pieces(50_000, dilation=4096) == 7168  # 7 pieces
