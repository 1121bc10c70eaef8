# SPDX-License-Identifier: Apache-2.0
"""A row of what ``bench`` prints, writes and draws."""

from __future__ import annotations

from msgspec import Struct


class BenchRow(Struct, frozen=True):
    """One comparison, or one measurement if there is no peer.

    Attributes:
        model: Name of the model.
        target: The target.
        peer: Name of the other runtime; empty if there is none.
        threads: Threads of both.
        median_ms: Median time of a run of ours, over the rounds.
        peer_ms: The same of the peer; 0 if there is none.
        ratio: Median over the rounds of our time by the peer's of the same round; 0 without a peer.
        ratio_low: Lower quartile of that.
        ratio_high: Upper quartile of that.
    """

    model: str
    target: str
    peer: str
    threads: int
    median_ms: float
    peer_ms: float = 0.0
    ratio: float = 0.0
    ratio_low: float = 0.0
    ratio_high: float = 0.0

    def to_json(self) -> dict[str, object]:
        """Return the row as plain JSON; what does not exist without a peer is null."""
        peer = bool(self.peer)
        return {
            "model": self.model,
            "target": self.target,
            "peer": self.peer or None,
            "threads": self.threads,
            "median_ms": self.median_ms,
            "peer_ms": self.peer_ms if peer else None,
            "ratio": self.ratio if peer else None,
            "ratio_low": self.ratio_low if peer else None,
            "ratio_high": self.ratio_high if peer else None,
        }
