# SPDX-License-Identifier: Apache-2.0
"""What all rows of the plugin's table ask of their tensors, and rules that rows share."""

from __future__ import annotations

import numpy as np

from intarsia.plugin.accelerator import (
    Call,
    Code,
    DType,
    Expr,
    Limits,
    Sentences,
    Support,
    TensorType,
    array_of,
)

from ..tosa.scale import fits

MAX_SIZE = 65536
MAX_STRIDE = 3
BYTES = (DType.INT8, DType.UINT8)
YES = Support.yes()

_SIZE = f"sizes {{shape}}, 1 to {MAX_SIZE} are taken"
LIMITS = Limits(
    dtypes=BYTES,
    ranks=range(1, 5),
    sizes=range(1, MAX_SIZE + 1),
    sentences=Sentences(
        dtype="only int8 and uint8 are taken, not {type}",
        empty=_SIZE,
        rank="rank {rank}, 1 to 4 are taken",
        size=_SIZE,
    ),
)


def check_tensor(expr: Expr) -> Support:
    """Refuse an operand that is no 8-bit tensor of at most four static dimensions."""
    assert isinstance(expr.type, TensorType)  # tuples are refused before
    return LIMITS.check(expr.type, BYTES)


def check_factors(name: str, factors: np.ndarray) -> Support:
    """Refuse scales whose quotient cannot be written as multiplier and shift."""
    for factor in factors.reshape(-1).tolist():
        if not fits(factor):
            return Support.no(
                Code.UNSUPPORTED_ATTRIBUTE,
                f"{name}: the results are scaled by {factor:g}; it must be above 0 and below 2**29",
            )
    return YES


def wide(expr: Expr) -> np.ndarray:
    """Return constant scales in float64."""
    return array_of(expr).astype(np.float64)


def is_image(call: Call) -> Support:
    """Take images only: rank 4."""
    match call.args[0].type:
        case TensorType(rank=4):
            return YES
        case other:
            return Support.no(
                Code.UNSUPPORTED_SHAPE, f"only images (N, C, H, W) are taken, not {other}"
            )
