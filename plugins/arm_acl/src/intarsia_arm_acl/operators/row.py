# SPDX-License-Identifier: Apache-2.0
"""A row of the plugin's table, and what all rows ask of their tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from intarsia.plugin import accelerator
from intarsia.plugin.accelerator import (
    Call,
    DType,
    Limits,
    Match,
    Sentences,
    Support,
    TensorType,
    always,
)

from ..draft import AclDraft, AclTensor

FLOATS = (DType.FLOAT32,)
BYTES = (DType.INT8, DType.UINT8)
PICKED = (*FLOATS, *BYTES)
"""Element types of what keeps the largest elements."""
MOVED = (*PICKED, DType.FLOAT16)
"""Element types of what moves elements and computes nothing."""

_NO_HALVES = (
    "float16 is not taken: the library computes in half precision only where it was built for "
    "Armv8.2, and here it only moves such elements"
)

LIMITS = Limits(
    dtypes=FLOATS,
    ranks=range(7),
    reasons=((DType.FLOAT16, _NO_HALVES),),
    sentences=Sentences(
        dtype="{dtype} is not taken, only {taken}", rank="rank {rank} is more than 6"
    ),
)


@dataclass(frozen=True)
class AclRow(accelerator.Row[AclDraft, AclTensor]):
    """One pattern that the plugin knows; ``accepts`` says whether the library can express it.

    Attributes:
        validates: What the library's ``validate()`` answers about those functions; a test compares.
    """

    validates: accelerator.Predicate = field(default=always, kw_only=True)

    def is_valid(self, match: Match) -> Support:
        """Ask ``validates``."""
        return self.validates(match)


def is_of_bytes(call: Call) -> bool:
    """Whether a call gives 8-bit integers."""
    return isinstance(call.type, TensorType) and call.type.dtype in BYTES
