# SPDX-License-Identifier: Apache-2.0
"""The vendor component and device that a plugin finds on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Probe:
    """Answer to the ``probe`` hook.

    Attributes:
        usable: Whether code for the target can run here.
        sdk: Name and version of the vendor component, e.g. ``oneMath 3.1``; empty if there is none.
        device: The device found; empty if there is none.
        detail: The reason why it is not usable, or a note for the user.
    """

    usable: bool
    sdk: str = ""
    device: str = ""
    detail: str = ""
