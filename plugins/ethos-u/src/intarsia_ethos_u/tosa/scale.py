# SPDX-License-Identifier: Apache-2.0
"""Real scales as the whole numbers of TOSA's ``RESCALE``: ``value * multiplier >> shift``."""

from __future__ import annotations

import math

MIN_SHIFT = 2
MAX_SHIFT = 62
"""What the specification allows with 32-bit multipliers."""

LARGEST = float(1 << 29)
"""Scales must be below this: a shift of 2 with the largest multiplier."""


def fits(scale: float) -> bool:
    """Whether a scale can be written; zero, negative, infinite and huge ones cannot."""
    return math.isfinite(scale) and 0 < scale < LARGEST * (1 - 2.0**-31)


def multiplier_and_shift(scale: float) -> tuple[int, int]:
    """Return a multiplier of 31 bits and a shift whose quotient is nearest to ``scale``.

    ``scale`` is one that :func:`fits`. Scales below ``2**-32`` keep fewer bits.
    """
    mantissa, exponent = math.frexp(scale)
    multiplier, shift = round(mantissa * (1 << 31)), 31 - exponent
    if multiplier == 1 << 31:
        multiplier, shift = 1 << 30, shift - 1
    if shift > MAX_SHIFT:
        multiplier, shift = multiplier >> min(shift - MAX_SHIFT, 31), MAX_SHIFT
    return multiplier, shift
