# SPDX-License-Identifier: Apache-2.0
"""Machine functions stay as accurate as the documentation says, special values included."""

from __future__ import annotations

import json
import math

import pytest

from intarsia_runtime.dtype import DType

from .intrinsic_accuracy import DTYPES, FUNCTIONS, RESULTS, TARGETS, measure
from .targets import EMULATED
from .targets import TARGETS as INSTALLED

POINTS = 64
MARGIN = 1.0  # units of the last place that another processor or C library may be off


def test_the_table_names_every_function_of_every_backend() -> None:
    written = json.loads(RESULTS.read_text(encoding="utf-8"))["targets"]
    assert set(written) == set(TARGETS)
    for rows in written.values():
        assert set(rows) == {dtype.value for dtype in DTYPES}
        for row in rows.values():
            assert set(row) == {function.value for function in FUNCTIONS}
            assert len(row) >= 40
            assert min(row.values()) >= 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_errors_are_within_those_of_the_table(target: str, dtype: DType) -> None:
    if target not in (*INSTALLED, *EMULATED):
        pytest.skip(f"the backend of '{target}' is not installed")
    bounds = json.loads(RESULTS.read_text(encoding="utf-8"))["targets"][target][dtype.value]
    worst = measure(target, dtype, POINTS)
    assert all(math.isfinite(value) for value in worst.values())
    over = {name: value for name, value in worst.items() if value > bounds[name] + MARGIN}
    assert not over
