# SPDX-License-Identifier: Apache-2.0
"""Quotients of sizes, rounded towards 0 as ONNX divides integers."""

from __future__ import annotations

import numpy as np

from intarsia_ir.graph.guards import is_implied_natural
from intarsia_runtime.size import Size, floor_divide, maximum, minimum


def quotients(left: np.ndarray, right: np.ndarray, *, guarded: bool) -> np.ndarray | None:
    """Return the quotients of two arrays of sizes, broadcast; ``None`` if one cannot be told.

    Args:
        left: Dividends.
        right: Divisors.
        guarded: Whether what the model requires of sizes holds here.
    """
    shape = np.broadcast_shapes(left.shape, right.shape)
    pairs = zip(*(np.broadcast_to(x, shape).reshape(-1) for x in (left, right)), strict=True)
    made = [_quotient(a, b, guarded=guarded) for a, b in pairs]
    return None if None in made else np.array([*made, None], object)[:-1].reshape(shape)


def _quotient(a: Size, b: Size, *, guarded: bool) -> Size | None:
    """Return ``a / b`` rounded towards 0; ``None`` if ``b`` may have either sign.

    A dividend that may have either sign is split into two parts of one sign, of which one is 0.

    Args:
        a: The dividend.
        b: The divisor.
        guarded: Whether what the model requires of sizes holds here.
    """
    if maximum(b, 0) != b:
        return -_truncated(a, -b, guarded=guarded) if minimum(b, 0) == b else None
    return _truncated(a, b, guarded=guarded)


def _truncated(a: Size, b: Size, *, guarded: bool) -> Size:
    if maximum(a, 0) == a or (guarded and is_implied_natural(a)):
        return floor_divide(a, b)
    if minimum(a, 0) == a:
        return -floor_divide(-a, b)
    return floor_divide(maximum(a, 0), b) - floor_divide(maximum(-a, 0), b)
