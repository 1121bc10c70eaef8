# SPDX-License-Identifier: Apache-2.0
"""What compiled regions depend on besides the options: part of the keys of caches."""

from __future__ import annotations

from intarsia_runtime.plugin import installed_version

from .isa import usable_features
from .program import SCHEMA
from .sdk import DISTRIBUTION


def environment_version() -> str:
    """Return what compiled regions depend on: schema of programs, library, vector instructions."""
    vectors = sorted(
        name for name in usable_features() if name.startswith(("avx", "amx", "sve", "asimd"))
    )
    library = installed_version(DISTRIBUTION) or "none"
    return f"program {SCHEMA}, {DISTRIBUTION} {library}, {' '.join(vectors)}"
