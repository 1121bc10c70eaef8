# SPDX-License-Identifier: Apache-2.0
"""Which of its declared dependencies a distribution lacks."""

from __future__ import annotations

import importlib_metadata


def missing_requirements(distribution: str) -> list[str]:
    """Return the requirements that a distribution declares and nobody installed, as pip takes them.

    Those of extras do not count. Empty also if the distribution itself is not installed.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # 20 ms, for messages only

    try:
        texts = importlib_metadata.requires(distribution) or []
    except importlib_metadata.PackageNotFoundError:
        return []
    found: list[str] = []
    for text in texts:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            version = importlib_metadata.version(wanted.name)
        except importlib_metadata.PackageNotFoundError:
            version = ""
        if not version or not wanted.specifier.contains(version, prereleases=True):
            found.append(f"{wanted.name}{wanted.specifier}")
    return found
