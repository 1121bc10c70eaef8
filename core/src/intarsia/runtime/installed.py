# SPDX-License-Identifier: Apache-2.0
"""Facts of installed distributions of a known version, read without ``importlib.metadata``.

To import that takes as long as the rest of the runtime does. Who finds nothing here asks it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def read_fact(distribution: str, version: str, file: str) -> tuple[Path, str] | None:
    """Return where a distribution is installed, and the text of a file of its metadata.

    Args:
        distribution: Its name.
        version: Exactly this one.
        file: ``RECORD``, ``entry_points.txt``...

    Returns:
        ``None`` if no folder of ``sys.path`` has it under its normalised name.
    """
    name = re.sub(r"[-_.]+", "_", distribution).lower()
    for folder in map(Path, sys.path):
        try:
            text = (folder / f"{name}-{version}.dist-info" / file).read_text(encoding="utf-8")
        except OSError:
            continue
        return folder, text
    return None


def entry_point(text: str, group: str, name: str) -> str:
    """Return what an ``entry_points.txt`` says under a name; empty if it says nothing."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group:
            key, _, value = line.partition("=")
            if key.strip() == name:
                return value.strip()
    return ""
