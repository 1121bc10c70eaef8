# SPDX-License-Identifier: Apache-2.0
"""Names of the members of an artifact."""

from __future__ import annotations

from ..errors import PluginError

PASSPORT = "passport.json"
PARAMS = "params.safetensors"
UNITS = "units"


def member_name(unit: str, file: str) -> str:
    """Return the name in the archive of a unit's file."""
    return f"{UNITS}/{unit}/{file}"


def part_unit(part: str, unit: str) -> str:
    """Return the name in the artifact of a part's unit."""
    return f"{part}.{unit}"


def check_member_path(unit: str, file: str) -> None:
    """Refuse a unit or file name that is not one plain relative path.

    Raises:
        PluginError: It is not.
    """
    for part in (unit, *file.split("/")):
        if part in ("", ".", "..") or not part.isprintable() or any(ch in '\\:"' for ch in part):
            raise PluginError(
                f"unit '{unit}' has a file named '{file}', which no artifact can hold"
            )
