# SPDX-License-Identifier: Apache-2.0
"""Finds what distributions give to running: loaders of regions, executors and runtimes, by name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from .artifact.passport import UnitEntry
from .errors import ArtifactError, IntarsiaError, PluginError
from .guarded import is_plugins_own
from .installed import entry_point, read_fact
from .loading import (
    EXECUTOR_GROUP,
    LOADER_GROUP,
    RUNTIME_GROUP,
    CodeLoader,
    DriveProgram,
    Loader,
    OpenElsewhere,
    formats_of,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class _Point(Struct, frozen=True):
    """An entry point.

    Attributes:
        value: Module and object, as ``module:object``.
        owner: Name of the distribution.
    """

    value: str
    owner: str

    def load(self) -> object:
        """Import the object."""
        module, _, name = self.value.partition(":")
        return attrgetter(name)(import_module(module.strip()))


def has_loader(name: str, plugin: str = "") -> bool:
    """Whether an installed distribution provides a loader; ``plugin`` is asked first, if named.

    Args:
        name: The loader.
        plugin: Who made the unit, as a passport says it: ``intarsia-x==1.0``.
    """
    return bool(_points(LOADER_GROUP, name, plugin))


def is_installed(plugin: str) -> bool:
    """Whether a distribution, as a passport names it (``intarsia-x==1.0``), is here at all."""
    from importlib.metadata import PackageNotFoundError, distribution  # as in :func:`_points`

    try:
        distribution(plugin.partition("==")[0])
    except (PackageNotFoundError, ValueError):  # no such name, or none at all
        return False
    return True


def find_loader(unit: UnitEntry) -> Loader:
    """Import the loader that a unit asks for.

    Raises:
        ArtifactError: No installed distribution provides it, or it does not read the unit's format.
        PluginError: Two provide it, or importing it fails.
    """
    needs = unit.plugin or f"a plugin with the loader '{unit.loader}'"
    wanted = f"unit '{unit.name}' needs {needs}"
    hint = f"pip install '{unit.plugin}'" if unit.plugin else "install that plugin"
    loader = _find("loader", LOADER_GROUP, unit.loader, wanted, hint, unit.plugin)
    check_format(unit, formats_of(loader))
    return cast("Loader", loader)


def loader_label(unit: UnitEntry) -> str:
    """Return what the loader of a unit is called in messages."""
    return f"the loader '{unit.loader}' ({unit.plugin or 'unknown plugin'})"


def check_format(unit: UnitEntry, formats: Iterable[int]) -> None:
    """Refuse a unit whose format its loader does not read.

    Raises:
        ArtifactError: It is none of ``formats``.
    """
    known = tuple(formats)
    if unit.format in known:
        return
    read = ", ".join(str(number) for number in known) or "none"
    raise ArtifactError(
        f"unit '{unit.name}' has format {unit.format} of the loader '{unit.loader}', "
        f"and the installed loader reads {read}",
        hint="compile the model again"
        + (f", or install what compiled it: pip install '{unit.plugin}'" if unit.plugin else ""),
    )


def _points(group: str, name: str, plugin: str = "") -> list[_Point]:
    """Return the entry points of the distribution of ``plugin``, or if it has none, of every one.

    To ask one distribution takes a tenth of a millisecond, to ask eighty takes five.
    """
    maker, _, version = plugin.partition("==")
    fact = read_fact(maker, version, "entry_points.txt") if version else None
    value = entry_point(fact[1], group, name) if fact is not None else ""
    if value:
        return [_Point(value, maker)]
    # Takes as long to import as all of the runtime; what is installed as it was does without.
    from importlib.metadata import PackageNotFoundError, distribution, entry_points

    if maker:
        try:
            made = distribution(maker).entry_points
        except PackageNotFoundError:
            made = ()
        own = [point for point in made if (point.group, point.name) == (group, name)]
        if own:
            return _own(own)
    return _own(entry_points(group=group, name=name))


def _own(points: Iterable[EntryPoint]) -> list[_Point]:
    return [
        _Point(point.value, point.dist.name if point.dist is not None else point.value)
        for point in points
    ]


def find_executor(kind: str) -> DriveProgram:
    """Import what drives a program for an executor of a plugin.

    Raises:
        ArtifactError: No installed distribution provides it.
        PluginError: Two provide it, or importing it fails.
    """
    wanted = f"the artifact needs the executor '{kind}'"
    hint = "install its plugin, or run it with executor='aot' or 'graph'"
    return cast("DriveProgram", _find("executor", EXECUTOR_GROUP, kind, wanted, hint))


def find_runtime(kind: str) -> OpenElsewhere:
    """Import what opens artifacts for a runtime of a plugin.

    Raises:
        ArtifactError: No installed distribution provides it.
        PluginError: Two provide it, or importing it fails.
    """
    wanted = f"the artifact is for the runtime '{kind}'"
    hint = "install its plugin, or compile the model for --runtime cpp"
    return cast("OpenElsewhere", _find("runtime", RUNTIME_GROUP, kind, wanted, hint))


def _find(what: str, group: str, name: str, wanted: str, hint: str, plugin: str = "") -> object:
    found = {point.value: point for point in _points(group, name, plugin)}
    if not found:
        raise ArtifactError(f"{wanted}, which is not installed", hint=hint)
    if len(found) > 1:
        owners = " and ".join(sorted(point.owner for point in found.values()))
        raise PluginError(
            f"the {what} '{name}' is claimed by {owners}", hint="uninstall one of them"
        )
    (point,) = found.values()
    try:
        made = point.load()
    except BaseException as error:  # a plugin may raise anything at import
        if not isinstance(error, IntarsiaError) and not is_plugins_own(error):
            raise  # the user's interruption
        raise PluginError(
            f"{point.owner} has the {what} '{name}', but importing it fails: {error!r}"
        ) from error
    is_loader = group == LOADER_GROUP and isinstance(made, CodeLoader)
    if not callable(made) and not is_loader:
        raise PluginError(f"the {what} '{name}' of {point.owner} is not a function")
    return made
