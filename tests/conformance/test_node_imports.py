# SPDX-License-Identifier: Apache-2.0
"""ONNX's own node tests, imported and evaluated: each passes or is refused, none is wrong."""

from __future__ import annotations

import warnings
from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from intarsia.errors import ResourceError, UnsupportedError
from intarsia.frontend.onnx import from_onnx
from intarsia.ops.evaluate import evaluate

FEWEST_PASSES = 1706  # raise it when more operators are supported; never lower it
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2}


def node_cases() -> list:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return collect_testcases()


def array_of(value: object) -> np.ndarray | None:
    """The value as an array; ``None`` if it is a sequence, an optional or an unsupported type."""
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None


def _is_parameter(index: int, value: np.ndarray) -> bool:
    """Whether an operand may be a shape, axes or the like, which the importer wants known."""
    return value.ndim <= 1 and (index > 0 or value.dtype == np.int64)


def imported_with(proto: onnx.ModelProto, values: dict[str, np.ndarray]):
    """Import as it is, or else with the parameters bound to the values of the test."""
    try:
        return from_onnx(proto)
    except UnsupportedError:
        known = {
            name: value
            for index, (name, value) in enumerate(values.items())
            if _is_parameter(index, value)
        }
        return from_onnx(proto, constants=known)


def agrees(found: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    more = TOLERANCE.get(wanted.dtype.name, 0.0)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return np.allclose(a, b, rtol=max(rtol, more), atol=max(atol, more, 1e-6), equal_nan=True)


def _run(case) -> str:
    """Return ``passed``, ``refused``, ``no tensors`` or what is wrong."""
    given, expected = case.data_sets[0]
    arrays = [array_of(value) for value in given]
    wanted = [array_of(value) for value in expected]
    if any(value is None for value in [*arrays, *wanted]):
        return "no tensors"
    values = dict(zip((info.name for info in case.model.graph.input), arrays, strict=False))
    try:
        module = imported_with(case.model, values)
    except (UnsupportedError, ResourceError):
        return "refused"
    names = [param.name for param in module.main.params]
    found = evaluate(module.main, {name: values[name] for name in names}, module)
    good = all(agrees(a, b, case.rtol, case.atol) for a, b in zip(found, wanted, strict=True))
    return "passed" if good else "wrong"


def test_node_cases(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for case in node_cases():
        try:
            outcome = _run(case)
        except Exception as error:  # any escape is a failure of this test, with the case's name
            outcome = f"{type(error).__name__}: {error}"
        counts[outcome if outcome in ("passed", "refused", "no tensors") else "wrong"] += 1
        if outcome not in ("passed", "refused", "no tensors"):
            wrong.append(f"{case.name}: {outcome}")
    with capsys.disabled():
        print(f"\nONNX node tests: {dict(counts)}")
    assert wrong == []
    assert counts["passed"] >= FEWEST_PASSES
