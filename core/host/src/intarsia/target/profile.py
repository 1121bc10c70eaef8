# SPDX-License-Identifier: Apache-2.0
"""Profiles: a file that says what a machine is, to compile for it elsewhere.

::

    {"schema": 1, "hardware": "aws/c7i", "target": {"kind": "composite", ...}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from intarsia_runtime.errors import TargetError

from .target import CompositeTarget

SCHEMA = 1
"""Version of the file format."""

_KEYS = frozenset({"schema", "hardware", "target"})


def profile_json(target: CompositeTarget, hardware: str = "") -> dict[str, object]:
    """Return the profile of a machine.

    Args:
        target: What to compile for, every option written out.
        hardware: The machine's tag, if it has one.
    """
    return {"schema": SCHEMA, "hardware": hardware, "target": target.to_json()}


def target_of_profile(value: object) -> object:
    """Return the target that a profile says; what is no profile comes back as it is.

    Raises:
        TargetError: It is a profile of another version, or has other keys.
    """
    if not isinstance(value, Mapping) or "target" not in value or "kind" in value:
        return cast("object", value)
    row = cast("Mapping[str, object]", value)
    if row.get("schema") != SCHEMA or isinstance(row.get("schema"), bool):
        raise TargetError(
            f"the profile has schema {row.get('schema')!r}; this version reads {SCHEMA}"
        )
    unknown = sorted(str(key)[:60] for key in row.keys() - _KEYS)
    if unknown:
        raise TargetError(f"a profile has no key '{unknown[0]}'")
    return row["target"]
