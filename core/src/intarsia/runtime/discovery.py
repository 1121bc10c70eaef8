# SPDX-License-Identifier: Apache-2.0
"""Finds the loader of a region's unit, by the name in the passport alone."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import cast

from ..artifact.passport import UnitEntry
from ..errors import ArtifactError, PluginError
from .loading import LOADER_GROUP, Loader


def has_loader(name: str) -> bool:
    """Whether an installed distribution provides the loader ``name``."""
    return bool(entry_points(group=LOADER_GROUP, name=name))


def find_loader(unit: UnitEntry) -> Loader:
    """Import the loader that a unit asks for.

    Raises:
        ArtifactError: No installed distribution provides it.
        PluginError: Two provide it, or importing it fails.
    """
    found = {point.value: point for point in entry_points(group=LOADER_GROUP, name=unit.loader)}
    if not found:
        needs = unit.plugin or f"a plugin with the loader '{unit.loader}'"
        raise ArtifactError(
            f"unit '{unit.name}' needs {needs}, which is not installed",
            hint=f"pip install '{unit.plugin}'" if unit.plugin else "install that plugin",
        )
    if len(found) > 1:
        owners = " and ".join(sorted(_owner(point) for point in found.values()))
        raise PluginError(
            f"the loader '{unit.loader}' is claimed by {owners}", hint="uninstall one of them"
        )
    (point,) = found.values()
    try:
        loader = point.load()
    except (Exception, SystemExit) as error:  # a plugin may raise anything at import
        raise PluginError(
            f"{_owner(point)} has the loader '{unit.loader}', but importing it fails: {error!r}"
        ) from error
    if not callable(loader):
        raise PluginError(f"the loader '{unit.loader}' of {_owner(point)} is not a function")
    return cast("Loader", loader)


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
