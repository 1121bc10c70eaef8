# SPDX-License-Identifier: Apache-2.0
"""What compiled regions depend on besides the options: part of the keys of caches."""

from __future__ import annotations

from .library import environment
from .network import SCHEMA


def environment_version() -> str:
    """Return what compiled regions depend on besides the options."""
    return f"network {SCHEMA}, {environment()}"
