# SPDX-License-Identifier: Apache-2.0
"""Notes on stderr about accelerators: who got nothing, and who computes something otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from .output import echo

if TYPE_CHECKING:
    from intarsia_runtime.artifact.passport import Passport


def say_idle(passport: Passport, subject: str = "") -> None:
    """Say which accelerators of an artifact got no node, and why.

    Args:
        passport: Of the artifact.
        subject: What the note is about, if a command says it of several.
    """
    idle = cast("Mapping[str, str]", passport.placement.get("idle", {}))
    for accelerator, reason in idle.items():
        about = f"{subject}: " if subject else ""
        echo(f"note: {about}'{accelerator}' is not used: {reason}", err=True)


def say_cautions(passport: Passport) -> None:
    """Say what accelerators of an artifact compute otherwise than the operators are defined."""
    rows = cast("Sequence[Mapping[str, object]]", passport.placement.get("cautions", ()))
    for row in rows:
        count = row["nodes"]
        nodes = f"{count} node{'' if count == 1 else 's'}"
        echo(f"note: '{row['accelerator']}', {nodes}: {row['caution']}", err=True)


def say_not_compared(passport: Passport, regions: int) -> None:
    """Say that ``--verify`` had no region of an accelerator to compare.

    Args:
        passport: Of the artifact.
        regions: How many regions were compared.
    """
    if regions:
        return
    if passport.placement.get("regions"):
        echo("note: --verify compared outputs only: the regions cannot be run one by one", err=True)
    elif passport.placement.get("idle"):
        echo(
            "note: --verify compared nothing of an accelerator: no node is offloaded, so these "
            "are the fallback's results",
            err=True,
        )
