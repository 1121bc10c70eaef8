# SPDX-License-Identifier: Apache-2.0
"""Every operator, emulated and on the GPU, against the references: the cases of core's own tests.

The cases are drawn out of ``tests/unit/ops`` by running its tests with fixtures that write down
what they are asked. All kernels of a file go into one library.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia_testkit.recorded_cases import recorded

from .running import assert_close, lowered, reference

CORE_TESTS = Path(__file__).resolve().parents[3] / "tests" / "unit" / "ops"
FILES = ("test_ops_elementwise", "test_ops_nn", "test_ops_shape", "test_ops_qnn")


@pytest.mark.parametrize("file", FILES)
def test_operators(make_target, place, file):
    cases = recorded(CORE_TESTS / f"{file}.py")
    assert len(cases) > 100
    options, load = place
    target = make_target(**options)
    module = load(target, [lowered(target, *case) for case in cases], flags=["-O0"])
    for number, (name, inputs, attrs) in enumerate(cases):
        what = f"{name} {attrs} of {[(x.dtype.name, x.shape) for x in inputs]}"
        found = module.run(number, *inputs)
        for got, want in zip(found, reference(name, inputs, attrs), strict=True):
            assert_close(got, want, what)
