# SPDX-License-Identifier: Apache-2.0
"""What compiled regions depend on besides the options: part of the keys of caches."""

from __future__ import annotations

from .tosa.program import SCHEMA
from .vela import installed_version


def environment_version() -> str:
    """Return what compiled regions depend on: the schema of programs, and Vela if it is there."""
    return f"program {SCHEMA}, vela {installed_version() or 'none'}"
