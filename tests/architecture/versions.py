# SPDX-License-Identifier: Apache-2.0
"""The one version of all distributions: read it, or set it everywhere at once.

``python -m tests.architecture.versions`` prints it; with a version it writes that one, and the
bounds between the distributions, into every ``pyproject.toml``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from packaging.version import InvalidVersion, Version

from .source_tree import ROOT

_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_BOUND = re.compile(r"(intarsia[a-z-]*(?:\[[a-z0-9,-]+\])?)>=[0-9.]+,<[0-9.]+")


def projects() -> list[Path]:
    """The ``pyproject.toml`` of every distribution that is released together."""
    return sorted(p for d in ("core", "plugins") for p in (ROOT / d).glob("*/pyproject.toml"))


def versions() -> dict[str, str]:
    """The version of every distribution, by its name."""
    rows = [tomllib.loads(path.read_text(encoding="utf-8"))["project"] for path in projects()]
    return {row["name"]: row["version"] for row in rows}


def bounds_of(version: str) -> str:
    """What one distribution asks of another of the same release: ``>=0.3.1,<0.4``."""
    release = Version(version).release
    return f">={version},<{release[0]}.{release[1] + 1}"


def set_version(version: str) -> None:
    """Write a version, and the bounds that follow from it, into every distribution.

    Raises:
        SystemExit: It is no version of three numbers.
    """
    try:
        fits = len(Version(version).release) == 3
    except InvalidVersion:
        fits = False
    if not fits:
        raise SystemExit(f"error: '{version}' is no version of three numbers, e.g. 0.2.0")
    for path in projects():
        text = _VERSION.sub(f'version = "{version}"', path.read_text(encoding="utf-8"), count=1)
        text = _BOUND.sub(lambda match: match[1] + bounds_of(version), text)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        set_version(sys.argv[1])
    (version,) = set(versions().values())
    print(version)
