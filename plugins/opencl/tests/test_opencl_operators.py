# SPDX-License-Identifier: Apache-2.0
"""Every operator on a device: the cases of the operators' own tests, against their references."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from .running import Module, assert_close, lowered, reference

RECORDED = Path(__file__).resolve().parents[3] / "tests" / "unit" / "ops" / "recorded_cases.py"
PARTS = 3
"""Sources of a file of cases, so that two processes share them."""


def recorded_cases():
    spec = importlib.util.spec_from_file_location("opencl_recorded_cases", RECORDED)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = recorded_cases()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("file", CASES.FILES)
def test_operators(make_target, device, monkeypatch, file, part):
    # 1900 kernels take pocl twice as long with its optimizer.
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
    cases = CASES.recorded(file)[part::PARTS]
    assert len(cases) > 60
    # A product and a sum in one instruction rounds once: quantized ties then fall otherwise.
    target = make_target(fmad=False)
    module = Module(target, [lowered(target, *case) for case in cases], device)
    for number, (name, inputs, attrs) in enumerate(cases):
        what = f"{name} {attrs} of {[(x.dtype.name, x.shape) for x in inputs]}"
        found = module.run(number, *inputs)
        for got, want in zip(found, reference(name, inputs, attrs), strict=True):
            assert_close(got, want, what)
