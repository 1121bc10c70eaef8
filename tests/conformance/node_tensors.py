# SPDX-License-Identifier: Apache-2.0
"""ONNX's own node tests whose inputs and outputs are tensors, as NumPy has them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper

from intarsia_onnx import from_onnx
from intarsia_runtime.errors import UnsupportedError

TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2}


def node_cases() -> list:
    """Return all cases, of whatever types."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return collect_testcases()


def _array_of(value: object) -> np.ndarray | None:
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


def _agrees(found: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    more = TOLERANCE.get(wanted.dtype.name, 0.0)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return np.allclose(a, b, rtol=max(rtol, more), atol=max(atol, more, 1e-6), equal_nan=True)


def tensors_of(case) -> tuple[dict[str, np.ndarray], list[np.ndarray]] | None:
    """Return the inputs of a case by name, and its outputs; ``None`` if one is no tensor."""
    given, expected = case.data_sets[0]
    arrays, wanted = [_array_of(value) for value in given], [_array_of(value) for value in expected]
    if any(value is None for value in [*arrays, *wanted]):
        return None
    names = (info.name for info in case.model.graph.input)
    return dict(zip(names, arrays, strict=False)), wanted


def all_agree(case, found: Iterable[np.ndarray], wanted: list[np.ndarray]) -> bool:
    """Whether every output is what the case wants, within its tolerance."""
    pairs = zip(found, wanted, strict=True)
    return all(_agrees(a, b, case.rtol, case.atol) for a, b in pairs)
