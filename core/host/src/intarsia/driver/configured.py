# SPDX-License-Identifier: Apache-2.0
"""Settings from the environment and from a file: ``intarsia.toml`` or ``[tool.intarsia]``.

::

    target = "npu, loops"          # or a table, or a list
    target-host = "loops"
    executor = "aot"               # or { kind = "aot", unpacked-api = true }
    runtime = "cpp"

    [target-options.loops]         # hold wherever a target has this kind
    num-threads = 2

The command line wins over the environment (``INTARSIA_TARGET``, ``INTARSIA_TARGET_HOST``,
``INTARSIA_EXECUTOR``, ``INTARSIA_RUNTIME``), which wins over the file: the nearest one, from the
current folder upwards.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard, cast

from msgspec import Struct, field
from msgspec.structs import replace

from intarsia_runtime.errors import TargetError, UsageError, did_you_mean

from ..host.guard import working_folder
from ..host.host import Host
from ..target.kind_table import GIVEN_NAME, Origin
from ..target.options import Value
from ..target.read import OneSpec, read_host
from ..target.target import CompositeTarget, Target

KEYS = ("target", "target-host", "executor", "runtime")
"""What can be set in the environment and in a file."""

_OPTIONS = "target-options"
_MAX_BYTES = 1_000_000


class Setting(Struct, frozen=True):
    """A value and who set it; ``None`` if nobody did."""

    value: str | None
    origin: str


class Configured(Struct, frozen=True):
    """What environment and file say.

    Attributes:
        settings: Key to value and origin.
        options: Kind to option to value, for targets.
        origin: The file; empty if there is none.
    """

    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    options: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
    origin: str = ""

    def target(
        self,
        given: str | None = None,
        target_host: OneSpec | None = None,
        overrides: Mapping[str, Mapping[str, Value]] | None = None,
    ) -> TargetChoice:
        """The target and its host that are given, or else those of environment or file.

        Args:
            given: The target, as on the command line.
            target_host: The host.
            overrides: Kind to option to value, as on the command line.
        """
        text, driver = self.choose("target", given), self.choose("target-host", None)
        origin = Origin(
            name=text.origin or GIVEN_NAME,
            overrides=overrides or {},
            defaults=self.options,
            default_setter=self.origin,
        )
        if target_host is not None:
            return TargetChoice(text.value, origin, target_host)
        return TargetChoice(text.value, origin, driver.value, driver.origin or GIVEN_NAME)

    def choose(self, key: str, given: str | None) -> Setting:
        """The value on the command line, or else the one of environment or file."""
        if given is not None:
            return Setting(given, GIVEN_NAME)
        return self.settings.get(key, Setting(None, ""))


class TargetChoice(Struct, frozen=True):
    """A target as the command line, the environment or a file gives it, before it is read.

    Attributes:
        text: As written; ``None`` if nobody gives one.
        origin: Who gives it, and what is set besides.
        target_host: The same for the host.
        host_origin: Who gives that.
    """

    text: str | None
    origin: Origin
    target_host: OneSpec | None = None
    host_origin: str = GIVEN_NAME

    @property
    def is_given(self) -> bool:
        """Whether it, or an option of it, stands on the command line."""
        stands = self.text is not None and self.origin.name == GIVEN_NAME
        return stands or bool(self.origin.overrides) or self.target_host is not None

    def instead(self, text: str) -> TargetChoice:
        """The same with a text given on the command line."""
        return replace(self, text=text, origin=self.origin.named(GIVEN_NAME))

    def read(self, host: Host) -> CompositeTarget:
        """Return the canonical target.

        Raises:
            TargetError: It is missing or wrong; a target from a file or the environment is named
                with its place.
        """
        if self.text is None:
            known = ", ".join(host.backends()) or "none; e.g. pip install 'intarsia[all]'"
            raise TargetError("no target is set", hint=f"--target; installed backends: {known}")
        driver = self._driver(host)
        try:
            return host.target(self.text, driver, origin=self.origin)
        except UsageError as error:
            if self.origin.name == GIVEN_NAME:
                raise
            where = f"{self.origin.name}, {error.where}".removesuffix(", ")
            raise error.at(where) from None

    def _driver(self, host: Host) -> OneSpec | None:
        """The host of the target; one that is not from the command line is read here.

        Raises:
            TargetError: It is wrong; its place names the file or the variable.
        """
        if self.target_host is None or self.host_origin == GIVEN_NAME:
            return self.target_host
        try:
            return read_host(self.target_host, host, self.origin.named(self.host_origin))
        except UsageError as error:
            raise error.at(f"{self.host_origin}, {error.where}".removesuffix(", ")) from None


def configured_target(
    host: Host | None = None, target_host: OneSpec | None = None
) -> CompositeTarget | None:
    """Return the configured default target; ``None`` if there is none.

    It comes from the enclosing ``with`` statement, or else from the environment variable
    ``INTARSIA_TARGET``, or else from the nearest settings file.

    Args:
        host: The plugins. Default: the installed ones.
        target_host: The backend that drives it, unless the settings name one.

    Raises:
        TargetError: The target is wrong; the error names the file or the variable.
        UsageError: The settings file is broken.
    """
    host = host or Host()
    scope = Target.current()
    if scope is not None:
        return host.target(scope, target_host)
    choice = read_settings(os.environ, working_folder()).target(target_host=target_host)
    return None if choice.text is None else choice.read(host)


def read_settings(
    env: Mapping[str, str], folder: Path | None, file: Path | None = None
) -> Configured:
    """Return what environment and file say.

    Args:
        env: The environment.
        folder: Where the search for a file begins; ``None``: there is none.
        file: The file, instead of the nearest.

    Raises:
        UsageError: The file is broken or has an unknown key.
    """
    path, row = _nearest(folder) if file is None else (file, _table(file))
    settings: dict[str, Setting] = {}
    options: dict[str, Mapping[str, object]] = {}
    for key, value in row.items():
        if key == _OPTIONS:
            options = _options(value, path)
        elif key in KEYS:
            settings[key] = Setting(_text(key, value, path), str(path))
        else:
            known = (*KEYS, _OPTIONS)
            raise UsageError(
                f"there is no setting '{key[:60]}'",
                hint=did_you_mean(key, known) or f"one of {', '.join(known)}",
                where=str(path),
            )
    for key in KEYS:
        name = f"INTARSIA_{key.upper().replace('-', '_')}"
        if env.get(name, "").strip():
            settings[key] = Setting(env[name], f"environment variable {name}")
    return Configured(settings, options, "" if path is None else str(path))


def _nearest(folder: Path | None) -> tuple[Path | None, Mapping[str, object]]:
    """The first file with settings, from a folder upwards, and its settings."""
    if folder is None:
        return None, {}
    for parent in (folder, *folder.parents):
        own = parent / "intarsia.toml"
        if _is_file(own):
            return own, _table(own)
        project = parent / "pyproject.toml"
        if _is_file(project) and b"tool.intarsia" in _bytes(project):
            return project, _table(project)
    return None, {}


def _is_file(path: Path) -> bool:
    """Whether there is such a file; not for who may not look into its folder."""
    try:
        return path.is_file()
    except PermissionError:
        return False


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_BYTES)
    except OSError as cause:
        raise UsageError(f"cannot be read: {cause.strerror}", where=str(path)) from None


def _table(path: Path) -> Mapping[str, object]:
    try:
        data = tomllib.loads(_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError) as cause:
        raise UsageError(f"is not valid TOML: {cause}", where=str(path)) from None
    if path.name != "pyproject.toml":
        return data
    row = data.get("tool", {}).get("intarsia", {})
    if not isinstance(row, dict):
        raise UsageError("[tool.intarsia] is not a table", where=str(path))
    return cast("Mapping[str, object]", row)


def _text(key: str, value: object, path: Path | None) -> str:
    """A setting as it would stand on the command line."""
    if key == "target" and _are_texts(value):
        return ", ".join(value)
    match value:
        case str():
            return value
        case dict():
            return json.dumps(value, default=str)
        case _:
            raise UsageError(
                f"'{key}' is a string or a table, not {type(value).__name__}", where=str(path)
            )


def _options(value: object, path: Path | None) -> dict[str, Mapping[str, object]]:
    if not _are_tables(value):
        raise UsageError(
            f"'{_OPTIONS}' is not a table of tables",
            hint=f"[{_OPTIONS}.KIND]",
            where=str(path),
        )
    return value


def _are_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(
        isinstance(item, str) for item in cast("list[object]", value)
    )


def _are_tables(value: object) -> TypeGuard[dict[str, Mapping[str, object]]]:
    return isinstance(value, dict) and all(
        isinstance(row, dict) for row in cast("dict[str, object]", value).values()
    )
