# SPDX-License-Identifier: Apache-2.0
"""Every operator on a device: the cases of the operators' own tests, against their references."""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia_testkit.recorded_cases import recorded

from .running import Module, assert_close, lowered, reference

CORE_TESTS = Path(__file__).resolve().parents[3] / "tests" / "unit" / "ops"
FILES = ("test_ops_elementwise", "test_ops_nn", "test_ops_shape", "test_ops_qnn")
PARTS = 3
"""Sources of a file of cases, so that two processes share them."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("file", FILES)
def test_operators(make_target, device, monkeypatch, file, part):
    # 1900 kernels take pocl twice as long with its optimizer.
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
    cases = recorded(CORE_TESTS / f"{file}.py")[part::PARTS]
    assert len(cases) > 60
    # A product and a sum in one instruction rounds once: quantized ties then fall otherwise.
    target = make_target(fmad=False)
    module = Module(target, [lowered(target, *case) for case in cases], device)
    for number, (name, inputs, attrs) in enumerate(cases):
        what = f"{name} {attrs} of {[(x.dtype.name, x.shape) for x in inputs]}"
        found = module.run(number, *inputs)
        for got, want in zip(found, reference(name, inputs, attrs), strict=True):
            assert_close(got, want, what)
