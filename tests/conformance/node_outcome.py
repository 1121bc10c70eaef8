# SPDX-License-Identifier: Apache-2.0
"""What becomes of one of ONNX's backend tests, and how its numbers are compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

STATUSES = ("pass", "refused", "drawn", "wrong", "failed", "crash", "timeout")
"""What may become of a test; see :class:`Outcome`."""

DRAWING = frozenset(
    [
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ]
)
"""Operators whose results ONNX leaves to chance."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test.

    Attributes:
        kind: Which group of ONNX's tests.
        name: Name of the test.
        status: ``pass``; ``refused`` with a message that says what is missing; ``drawn`` if the
            model draws at random, and numbers are others than those of the test; ``wrong`` numbers;
            ``failed`` with another error; ``crash``; ``timeout``.
        reason: Why it does not pass.
        in_numpy: Operators of the model that are not compiled but run in NumPy on the host.
        seconds: Time of build and run.
    """

    kind: str
    name: str
    status: str
    reason: str = ""
    in_numpy: tuple[str, ...] = ()
    seconds: float = 0.0


def status_of(problem: str, operators: Iterable[str]) -> str:
    """Return the status of a test whose numbers differ.

    Args:
        problem: What :func:`differs` says.
        operators: Those of the model.
    """
    is_numbers = " elements differ, by up to " in problem
    return "drawn" if is_numbers and not DRAWING.isdisjoint(operators) else "wrong"


def differs(wanted: Any, found: Any, rtol: float, atol: float) -> str:
    """Compare as ONNX's own runner does, also numbers inside sequences; empty if they agree."""
    if isinstance(wanted, list | tuple) or isinstance(found, list | tuple):
        if not isinstance(found, list | tuple) or len(wanted) != len(found):
            return f"expected {len(wanted)} values, got {found!r:.100}"
        parts = (differs(a, b, rtol, atol) for a, b in zip(wanted, found, strict=True))
        return next((part for part in parts if part), "")
    if wanted is None or found is None:
        return "" if wanted is found else f"expected {wanted!r:.100}, got {found!r:.100}"
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return f"expected {wanted.dtype} {wanted.shape}, got {found.dtype} {found.shape}"
    if wanted.dtype == object:
        return "" if (wanted == found).all() else f"expected {wanted!r:.100}, got {found!r:.100}"
    narrow = wanted.dtype.name == "bfloat16"
    a, b = (x.astype(np.float64) for x in (wanted, found))
    good = np.isclose(b, a, max(rtol, 2**-6) if narrow else rtol, atol, equal_nan=True)
    bad = int(good.size - good.sum())
    if not bad:
        return ""
    worst = np.nanmax(np.abs(a - b))
    return f"{bad} of {good.size} elements differ, by up to {worst:.3g}"
