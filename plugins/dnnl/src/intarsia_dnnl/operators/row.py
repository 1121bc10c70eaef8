# SPDX-License-Identifier: Apache-2.0
"""A row of the plugin's table, and what all rows ask of their tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from intarsia.plugin import accelerator
from intarsia.plugin.accelerator import (
    Code,
    DType,
    Limits,
    Match,
    Sentences,
    Support,
    tensor_type,
)

from ..draft import DnnlDraft

STORED = (DType.FLOAT32, DType.INT8, DType.UINT8)
"""Element types of values between primitives."""

LIMITS = Limits(
    dtypes=(DType.FLOAT32,),
    ranks=range(7),
    scalars=False,
    symbolic=True,
    sentences=Sentences(
        dtype="only {taken} is taken, not {dtype}", rank="rank {rank} is more than 6"
    ),
)


_RELU = "NaN becomes 0"  # -special=exact takes the row too, and computes it otherwise


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape as messages have it; expressions stand for sizes of the run."""
    return f"[{', '.join(map(str, shape))}]"


@dataclass(frozen=True)
class DnnlRow(accelerator.Row[DnnlDraft, int]):
    """One pattern that the plugin knows.

    Attributes:
        special: What the library makes of NaN and infinities where the definition gives something
            else; ``-special=exact`` refuses the row.
    """

    special: str = field(default="", kw_only=True)

    def asks_for(self) -> str:
        """Return what the row asks for, and what it does to NaN."""
        return "; ".join(filter(None, (super().asks_for(), self.special)))

    def is_exact(self, match: Match) -> Support:
        """Refuse a match that may give something else for NaN and infinities."""
        if self.special and tensor_type(match.root).dtype is DType.FLOAT32:
            return Support.no(Code.UNSUPPORTED_OP, f"{self.special} (-special=exact)")
        return Support.yes()

    def with_caution(self, match: Match) -> Support:
        """Take a match, and say if it may give something else for NaN and infinities."""
        special = _RELU if self.name == "nn.relu" else self.special
        if special and tensor_type(match.root).dtype is DType.FLOAT32:
            return Support.yes(caution=f"{special} (-special=exact keeps it)")
        return Support.yes()
