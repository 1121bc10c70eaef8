# SPDX-License-Identifier: Apache-2.0
"""How a check is told from another test: a mark with its tier, and how it says what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

import pytest

MARK = "intarsia_check"
"""Name of the mark."""

TIERS = {
    1: "contract, packaging, isolation",
    2: "numeric, open sizes, determinism",
    3: "partition, borders",
}
"""Number of each tier and the groups of checks in it."""

COMPILED = "compiled, not run"
"""Begins the reason of every check that ended where it would have run what it compiled."""

Check = TypeVar("Check", bound=Callable[..., object])


def check(tier: int) -> Callable[[Check], Check]:
    """Mark a test as a check of a tier."""
    return pytest.mark.intarsia_check(tier=tier)


def refuse(problems: Iterable[str], *, hint: str = "") -> None:
    """Fail the running check if there are problems; shows the first twenty."""
    found = list(problems)
    if found:
        more = [f"... and {len(found) - 20} more"] if len(found) > 20 else []
        lines = [*found[:20], *more, *([f"hint: {hint}"] if hint else [])]
        pytest.fail("\n".join(lines), pytrace=False)


def exempt(reason: str) -> NoReturn:
    """End the running check without a verdict: it cannot apply, for a reason of the user's."""
    pytest.skip(f"exempt: {reason}")


def decline(reason: str) -> NoReturn:
    """End the running check without a verdict: there is nothing of its kind in the plugin."""
    pytest.skip(f"declined: {reason}")
