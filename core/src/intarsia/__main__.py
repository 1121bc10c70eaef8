# SPDX-License-Identifier: Apache-2.0
"""The program: ``python -m intarsia``, and what the script ``intarsia`` calls."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def run() -> int:
    """Run the command line and return its exit code, also when interrupted while importing it."""
    try:
        from .cli.main import main  # an interrupt during this import is one like any other

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(run())
