# SPDX-License-Identifier: Apache-2.0
"""Facts of installed distributions, read without ``importlib.metadata``.

To import that takes as long as the rest of the runtime does. Who finds nothing here asks it.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

_SUFFIX = ".dist-info"


def read_fact(distribution: str, version: str, file: str) -> tuple[Path, str] | None:
    """Return where a distribution is installed, and the text of a file of its metadata.

    Args:
        distribution: Its name.
        version: Exactly this one.
        file: ``RECORD``, ``entry_points.txt``...

    Returns:
        ``None`` if no folder of ``sys.path`` has it under its normalized name.
    """
    name = _folder_name(distribution)
    for folder in map(Path, sys.path):
        try:
            text = (folder / f"{name}-{version}{_SUFFIX}" / file).read_text(encoding="utf-8")
        except OSError:
            continue
        return folder, text
    return None


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, the first on the path; ``None`` without."""
    begin = f"{_folder_name(distribution)}-"
    for folder in sys.path:
        with suppress(OSError):
            for name in os.listdir(folder or "."):
                if name.startswith(begin) and name.endswith(_SUFFIX):
                    return name[len(begin) : -len(_SUFFIX)]
    from importlib.metadata import PackageNotFoundError, version  # folders with other names

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _folder_name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "_", distribution).lower()


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
