# SPDX-License-Identifier: Apache-2.0
"""Where kinds come from, and how a target of a kind is made from values."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from ..errors import IntarsiaError, PluginError, TargetError
from .kind import Role, TargetKind
from .moved import find_target_row
from .options import OptionRow, Value, check_value, did_you_mean, option_rows, set_options
from .target import Target

COMPOSITE = "composite"
"""Name of the JSON form of a composite; no kind may have it."""

GIVEN_NAME = "given"
"""Origin of an option that stands in the target string itself."""


def _nothing() -> Mapping[str, Mapping[str, Value]]:
    return MappingProxyType({})


def _no_defaults() -> Mapping[str, Mapping[str, object]]:
    return MappingProxyType({})


class Origin(Struct, frozen=True):
    """Who gives the options of a target, and what is set for it elsewhere.

    Attributes:
        name: Of whoever gives the options: ``given``, an alias, a tag, a file.
        overrides: Kind to flag to value: options set beside the target, which win over an alias,
            a tag or a file, and clash with an option given in the target itself.
        setter: Who set those.
        defaults: Kind to option to value, unchecked: hold where nobody says otherwise.
        default_setter: Who set those.
    """

    name: str = GIVEN_NAME
    overrides: Mapping[str, Mapping[str, Value]] = field(default_factory=_nothing)
    setter: str = "command line"
    defaults: Mapping[str, Mapping[str, object]] = field(default_factory=_no_defaults)
    default_setter: str = ""

    def named(self, name: str) -> Origin:
        """The same overrides, options given by someone else."""
        return replace(self, name=name)


GIVEN = Origin()
"""The user gives all options in the target itself."""


class KindSource(Protocol):
    """What the parser asks: a host, or a :class:`KindTable` in tests."""

    def names(self) -> Collection[str]:
        """Names of all known kinds."""
        ...

    def alias_table(self) -> Mapping[str, str]:
        """Short name to target string."""
        ...

    def backends(self) -> Sequence[str]:
        """Names of the kinds that compile any graph."""
        ...

    def kind(self, name: str) -> TargetKind:
        """The kind called ``name``; raises TargetError (unknown) or PluginError (broken)."""
        ...

    def tag(self, name: str) -> str | None:
        """The target string that a hardware tag implies; ``None`` if there is no such tag."""
        ...


class KindTable(Struct, frozen=True):
    """Kinds, aliases and hardware tags given as values."""

    kinds: Mapping[str, TargetKind]
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(
        cls,
        *kinds: TargetKind,
        aliases: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> KindTable:
        """A table of these kinds by their names."""
        return cls({kind.name: kind for kind in kinds}, aliases or {}, tags or {})

    def names(self) -> Collection[str]:
        """Names of all kinds in the table."""
        return self.kinds.keys()

    def alias_table(self) -> Mapping[str, str]:
        """Short name to target string."""
        return self.aliases

    def backends(self) -> Sequence[str]:
        """Names of the kinds that compile any graph."""
        return [name for name, kind in self.kinds.items() if kind.role is Role.BACKEND]

    def kind(self, name: str) -> TargetKind:
        """The kind called ``name``.

        Raises:
            TargetError: No such kind.
        """
        if name not in self.kinds:
            raise unknown_kind(name, [*self.kinds, *self.aliases])
        return self.kinds[name]

    def tag(self, name: str) -> str | None:
        """The target string that a hardware tag implies; ``None`` if there is no such tag."""
        return self.tags.get(name)


def unknown_kind(name: str, known: Collection[str]) -> TargetError:
    """The error for a kind that nobody has."""
    shown = name if len(name) <= 60 else name[:57] + "..."
    hint = did_you_mean(name, known) or (
        f"known: {', '.join(sorted(known))}" if known else "no plugin is installed; install one"
    )
    return TargetError(f"no target kind or alias is called {shown!r}", hint=hint)


def make_target(
    kind: TargetKind,
    values: Mapping[str, Value],
    origin: Origin = GIVEN,
    origins: Mapping[str, str] | None = None,
) -> Target:
    """Return the canonical target of a kind with these values, keyed by flag.

    Args:
        kind: The kind.
        values: Flag to value.
        origin: Who gives them, and what is set besides.
        origins: Flag to whoever gave that one, where it is someone else.

    Raises:
        TargetError: The values do not go together, or one is given twice.
        PluginError: The kind's ``canonicalise`` failed.
    """
    rows = option_rows(kind.options)
    chosen = _defaults(kind, rows, origin)
    givers = dict.fromkeys(chosen, origin.default_setter)
    givers |= {flag: (origins or {}).get(flag, origin.name) for flag in values}
    overrides = origin.overrides.get(kind.name, {})
    for flag in overrides:
        if givers.get(flag) == GIVEN_NAME and values[flag] != overrides[flag]:
            raise TargetError(
                f"-{flag} of '{kind.name}' is given in the target, and another value "
                f"on the {origin.setter}",
                hint=f"leave one of -{flag} and --target-{kind.name}-{flag} out",
            )
        givers[flag] = origin.setter
    chosen |= {**values, **overrides}
    for row in rows:
        if row.deprecated and row.flag in chosen:
            warnings.warn(
                f"option -{row.flag} of target kind '{kind.name}' is deprecated: {row.deprecated}",
                FutureWarning,
                stacklevel=2,
            )
    options = kind.options(**{row.field: chosen[row.flag] for row in rows if row.flag in chosen})
    if kind.canonicalise is not None:
        options = _canonical(kind, options)
    found = set_options(rows, options)
    return Target(
        kind,
        options,
        tuple(
            (flag, givers[flag] if chosen.get(flag) == value else "detection")
            for flag, value in found.items()
        ),
    )


def _defaults(kind: TargetKind, rows: Sequence[OptionRow], origin: Origin) -> dict[str, Value]:
    """The options that hold where nobody says otherwise, checked."""
    found: dict[str, Value] = {}
    for key, value in origin.defaults.get(kind.name, {}).items():
        try:
            row = find_target_row(f"target kind '{kind.name}'", rows, key)
            found[row.flag] = check_value(row, value)
        except TargetError as error:
            where = origin.default_setter
            raise TargetError(error.message, hint=error.hint, where=where) from None
    return found


def _canonical(kind: TargetKind, options: object) -> object:
    assert kind.canonicalise is not None
    try:
        result = kind.canonicalise(options)
    except IntarsiaError:
        raise
    except (Exception, SystemExit) as cause:
        raise PluginError(
            f"target kind '{kind.name}' failed to check its options: "
            f"{type(cause).__name__}: {cause}"
        ) from cause
    if not isinstance(result, kind.options):
        raise PluginError(
            f"canonicalise of target kind '{kind.name}' returned {type(result).__name__}, "
            f"not {kind.options.__name__}"
        )
    return result
