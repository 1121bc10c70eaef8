# SPDX-License-Identifier: Apache-2.0
"""Which regions are given back because of what the library's kernels lack."""

from __future__ import annotations

import dataclasses

import pytest

from intarsia_dnnl import profitable
from intarsia_dnnl.target import DnnlOptions
from intarsia_testkit.expressions import apply, function_of, var, weight

from .regions import region_of

AVX2, AVX512 = frozenset({"avx2"}), frozenset({"avx2", "avx512bw"})
LOOSE = {"min_flops": 0, "min_reuse": 0, "max_windows": 100}


@pytest.mark.parametrize(
    ("outputs", "kernel", "features", "grain", "kept"),
    [(1, 7, AVX2, 1, False), (3, 3, AVX2, 1, False), (4, 7, AVX2, 1, True), (1, 1, AVX2, 1, True),
     (1, 7, AVX512, 1, True), (1, 7, AVX2, 0, True), (1, 7, frozenset(), 1, True)],
)  # fmt: skip
def test_windows_of_few_outputs_are_left_without_avx512(
    monkeypatch, outputs, kernel, features, grain, kept
):
    monkeypatch.setattr(profitable, "usable_features", lambda: features)
    attrs = {"strides": (1, 1), "padding": ((kernel // 2,) * 2,) * 2, "dilation": (1, 1)}
    body = apply("nn.conv", var("x", 1, 8, 9, 9), weight(outputs, 8, kernel, kernel), **attrs)
    region = region_of(function_of(body))
    region = dataclasses.replace(region, origins={call: call for call in region.calls()})
    left = profitable.keep_profitable(
        region, DnnlOptions(min_grain=grain, **LOOSE), profitable.Strengths()
    )
    assert bool(left.origins) == kept, left.why
    assert kept or "fewer than 4 outputs" in left.why
