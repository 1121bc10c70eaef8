# SPDX-License-Identifier: Apache-2.0
"""Compares results with the reference: the NumPy definition of every operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..build.importing import import_model
from ..errors import ModelError
from ..ops.evaluate import evaluate

RELATIVE = 1e-3
"""Error allowed for floats, relative to the value; a hundredth of it to the largest value."""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """How far one output is from the reference.

    Attributes:
        name: Name of the output.
        ok: Whether every element is close enough.
        max_error: Largest absolute difference; infinite if one is not a number and the other is.
    """

    name: str
    ok: bool
    max_error: float

    def to_json(self) -> dict[str, object]:
        """Return the check as plain JSON; an infinite error becomes the text ``inf``."""
        error = self.max_error if np.isfinite(self.max_error) else "inf"
        return {"name": self.name, "ok": self.ok, "max_error": error}


def verify_outputs(
    model: Path,
    shapes: Mapping[str, Sequence[int]],
    inputs: Mapping[str, np.ndarray],
    results: Mapping[str, np.ndarray],
) -> tuple[OutputCheck, ...]:
    """Run the reference on the same inputs and compare.

    Raises:
        ModelError: The model has other outputs than the results.
    """
    module = import_model(model, shapes)
    expected = evaluate(module.main, inputs, module)
    names = list(results)
    if len(names) != len(expected):
        raise ModelError(f"'{model}' has {len(expected)} outputs, {len(names)} were computed")
    return tuple(
        compare(name, results[name], reference)
        for name, reference in zip(names, expected, strict=True)
    )


def compare(name: str, found: np.ndarray, expected: np.ndarray) -> OutputCheck:
    """Compare one output; floats within :data:`RELATIVE`, all else exactly."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return OutputCheck(name, False, float("inf"))
    if not found.size:
        return OutputCheck(name, True, 0.0)
    exact = found.dtype.kind in "biu"
    ours, theirs = found.astype(np.float64), expected.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(ours - theirs))
    error = np.where(np.isnan(error), np.inf, error)
    finite = np.abs(theirs[np.isfinite(theirs)])
    largest = float(finite.max()) if finite.size else 0.0
    magnitude = np.where(np.isfinite(theirs), np.abs(theirs), 0.0)
    allowed = 0.0 if exact else RELATIVE * (magnitude + largest / 100)
    return OutputCheck(name, bool((error <= allowed).all()), float(error.max()))
