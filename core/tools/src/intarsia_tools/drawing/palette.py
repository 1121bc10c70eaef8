# SPDX-License-Identifier: Apache-2.0
"""Colours of accelerators, which people with any colour vision can tell apart (Okabe and Ito)."""

from __future__ import annotations

from collections.abc import Sequence

_COLOURS = ("#8ecae6", "#f4b860", "#7fd1ae", "#f2a7c3", "#e9e07a", "#b8b5e8", "#e59b7b", "#a9c78f")


def colour_of(kind: str, kinds: Sequence[str]) -> str:
    """Colour of a kind by its place among all; they repeat after eight."""
    return _COLOURS[kinds.index(kind) % len(_COLOURS)]
