# SPDX-License-Identifier: Apache-2.0
"""What compiled regions depend on besides the options: part of the keys of caches."""

from __future__ import annotations

from hashlib import sha256

from .prelude import PRELUDE
from .toolchain import library_version


def environment_version() -> str:
    """Return what compiled regions depend on: the generated code's frame and the library."""
    frame = sha256(PRELUDE.encode()).hexdigest()[:12]
    return f"frame {frame}, libarm_compute {library_version('') or 'not installed'}"
