# SPDX-License-Identifier: Apache-2.0
"""Compares results with the reference: the NumPy definition of every operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..build.importing import import_model
from ..dtype import DType
from ..errors import ModelError
from ..ir.expr import Call
from ..ir.module import IRModule
from ..ir.types import TensorType
from ..ir.walk import post_order
from ..ops.evaluate import evaluate

RELATIVE = 1e-3
"""Error allowed for floats, relative to the value; a hundredth of it to the largest value."""

QUANTISED = 0.05
"""Error allowed in models with 8-bit tensors, relative to the largest value: a few steps."""


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
    names, steps = list(results), is_quantised(module)
    if len(names) != len(expected):
        raise ModelError(
            f"'{model}' has {len(expected)} outputs, {len(names)} were computed",
            hint="is it the model that the artifact was compiled from?",
        )
    return tuple(
        compare(name, results[name], reference, quantised=steps)
        for name, reference in zip(names, expected, strict=True)
    )


def is_quantised(module: IRModule) -> bool:
    """Say whether a model computes with 8-bit integers, where rounding differs by whole steps."""
    return any(
        isinstance(node.type, TensorType) and node.type.dtype in (DType.INT8, DType.UINT8)
        for function in module.functions.values()
        for node in post_order(function.body)
        if isinstance(node, Call)
    )


def compare(
    name: str, found: np.ndarray, expected: np.ndarray, *, quantised: bool = False
) -> OutputCheck:
    """Compare one output: floats within :data:`RELATIVE`, the rest exactly.

    Args:
        name: Name of the output.
        found: What was computed.
        expected: What the reference says.
        quantised: Allow :data:`QUANTISED`, and one step in integers.
    """
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return OutputCheck(name, False, float("inf"))
    if not found.size:
        return OutputCheck(name, True, 0.0)
    exact = found.dtype.kind in "biu"
    ours, theirs = found.astype(np.float64), expected.astype(np.float64)
    same = (found == expected) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(ours - theirs))
    error = np.where(np.isnan(error), np.inf, error)
    finite = np.abs(theirs[np.isfinite(theirs)])
    largest = float(finite.max()) if finite.size else 0.0
    magnitude = np.where(np.isfinite(theirs), np.abs(theirs), 0.0)
    allowed = 0.0 if exact else RELATIVE * (magnitude + largest / 100)
    if quantised:
        allowed = 1.0 if exact else QUANTISED * largest
    return OutputCheck(name, bool((error <= allowed).all()), float(error.max()))
