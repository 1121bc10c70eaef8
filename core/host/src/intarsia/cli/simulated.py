# SPDX-License-Identifier: Apache-2.0
"""Says on stderr what of an artifact is simulated and does not run on its device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from intarsia_runtime.artifact.passport import Passport

from .output import echo


def say_simulated(passport: Passport) -> None:
    """Print a line on stderr for each target kind that is simulated; nothing if none is."""
    for kind, how in _simulated(passport).items():
        echo(f"SIMULATED: the code of '{kind}' is run {how}, not on its device", err=True)


def _simulated(passport: Passport) -> dict[str, str]:
    """Return target kind to how it is simulated, of an artifact and all of its parts."""
    found = dict(cast("Mapping[str, str]", passport.placement.get("simulated", {})))
    for part in passport.parts:
        found |= _simulated(part.passport)
    return found
