# SPDX-License-Identifier: Apache-2.0
"""Choose by the keys of a target: the most special key that has a row wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from intarsia_runtime.errors import TargetError

if TYPE_CHECKING:
    from .targets import LoopTarget

T = TypeVar("T")


def dispatch(rows: Mapping[str, T], target: LoopTarget, what: str) -> T:
    """Return the row of the first of the target's keys that has one, else the row ``default``.

    ::

        dispatch({"default": plain, "cpu": blocked, "loops": packed}, target, "a schedule of conv")

    Args:
        rows: Key to anything; keys are names of kinds and their ``default_keys``.
        target: Asked for its keys, special to general.
        what: What is looked for, for the message.

    Raises:
        TargetError: No key has a row, and there is no ``default``.
    """
    for key in (*target.keys, "default"):
        if key in rows:
            return rows[key]
    raise TargetError(
        f"there is {what} for none of the keys of the target: {', '.join(target.keys)}",
        hint=f"there is one for {', '.join(rows) or 'nothing'}",
    )
