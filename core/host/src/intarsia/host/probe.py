# SPDX-License-Identifier: Apache-2.0
"""What a plugin finds on this machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Probe:
    """Answer to the ``probe`` hook.

    Attributes:
        usable: Whether code for the target can run here.
        sdk: Name and version of the vendor component, e.g. ``oneMath 3.1``; empty if there is none.
        device: The device found; empty if there is none.
        detail: Why it is not usable, or what else the user should know.
    """

    usable: bool
    sdk: str = ""
    device: str = ""
    detail: str = ""
