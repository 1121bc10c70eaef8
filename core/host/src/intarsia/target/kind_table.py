# SPDX-License-Identifier: Apache-2.0
"""Where kinds come from, and how a target of a kind is made from values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from intarsia_runtime.errors import TargetError, did_you_mean
from intarsia_runtime.guarded import LateOwner

from .kind import Role, TargetKind
from .options import OptionRow, Value, check_value, find_row, option_rows, set_options
from .target import Target
from .universal import HARDWARE, KEYS, HardwareDevice, Tag, check_keys, target_rows

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

    def tag(self, name: str) -> Tag | None:
        """The hardware tag that a name means; ``None`` if there is none."""
        ...

    def canonicalize(self, target: Target) -> Target:
        """The target with what its kind fills in, and its options checked against each other.

        Raises TargetError (options that do not go together) or PluginError.
        """
        ...


class KindTable(Struct, frozen=True):
    """Kinds, aliases and hardware tags given as values."""

    kinds: Mapping[str, TargetKind]
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tags: Mapping[str, str | Tag] = field(default_factory=lambda: MappingProxyType({}))
    canonical: Mapping[str, Callable[[Target], Target]] = field(
        default_factory=lambda: MappingProxyType({})
    )

    @classmethod
    def of(
        cls,
        *kinds: TargetKind,
        aliases: Mapping[str, str] | None = None,
        tags: Mapping[str, str | Tag] | None = None,
        canonical: Mapping[str, Callable[[Target], Target]] | None = None,
    ) -> KindTable:
        """A table of these kinds by their names."""
        rows = {kind.name: kind for kind in kinds}
        return cls(rows, aliases or {}, tags or {}, canonical or {})

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
            raise unknown_kind(name, self.kinds, self.aliases)
        return self.kinds[name]

    def tag(self, name: str) -> Tag | None:
        """The hardware tag that a name means; ``None`` if there is none."""
        found = self.tags.get(name)
        return Tag(name, found) if isinstance(found, str) else found

    def canonicalize(self, target: Target) -> Target:
        """The target as the function of its kind in ``canonical`` gives it, if there is one."""
        change = self.canonical.get(target.kind.name)
        return target if change is None else change(target)


def unknown_kind(
    name: str, kinds: Collection[str], aliases: Mapping[str, str], remedy: str = ""
) -> TargetError:
    """The error for a kind that nobody has.

    Args:
        name: As written.
        kinds: Names of the kinds there are.
        aliases: Short names, and the target strings they stand for.
        remedy: How to get the kind, if somebody is known to have it.
    """
    if name in aliases:
        return TargetError(
            f"'{name}' is an alias of '{aliases[name]}', not a kind",
            hint="name one of the kinds it stands for",
        )
    shown = name if len(name) <= 60 else name[:57] + "..."
    known = {*kinds, *aliases}
    hint = (
        remedy
        or did_you_mean(name, sorted(known))
        or (
            f"known: {', '.join(sorted(known))}" if known else "no plugin is installed; install one"
        )
    )
    return TargetError(f"no target kind or alias is called {shown!r}", hint=hint)


def make_target(
    kind: TargetKind,
    values: Mapping[str, Value],
    origin: Origin = GIVEN,
    origins: Mapping[str, str] | None = None,
    *,
    device: HardwareDevice | None = None,
    kinds: KindSource | None = None,
) -> Target:
    """Return the canonical target of a kind with these values, keyed by flag.

    Args:
        kind: The kind.
        values: Flag to value.
        origin: Who gives them, and what is set besides.
        origins: Flag to whoever gave that one, where it is someone else.
        device: The hardware that the target names, if it names any; see :func:`hardware_name`.
        kinds: Makes the options canonical; they are left as they are if ``None``.

    Raises:
        TargetError: The values do not go together, or one is given twice.
        PluginError: The hook ``canonicalize_target`` failed.
    """
    rows = target_rows(kind.options)
    implied: Mapping[str, Value] = device.implied if device is not None else {}
    chosen = _defaults(kind, rows, origin)
    givers = dict.fromkeys(chosen, origin.default_setter)
    givers |= dict.fromkeys(implied, f"tag {device.tag.name}" if device is not None else "")
    givers |= {flag: (origins or {}).get(flag, origin.name) for flag in values}
    overrides = origin.overrides.get(kind.name, {})
    _check_clashes(kind, values, givers, origin)
    givers |= dict.fromkeys(overrides, origin.setter)
    chosen |= {**implied, **values, **overrides}
    _warn_of_deprecated(kind, rows, chosen)
    own = option_rows(kind.options)
    make = LateOwner(kind.options, kind.options.__module__, doing=f"options of '{kind.name}'")
    options = make(**{row.field: chosen[row.flag] for row in own if row.flag in chosen})
    if kinds is not None:
        options = kinds.canonicalize(Target(kind, options)).options
    keys = check_keys(chosen.get(KEYS, ()))
    tag_keys = tuple(reversed(device.tag.keys)) if device is not None else ()
    found = dict(set_options(own, options))
    defaults = {row.flag: row.default for row in own}
    pinned = frozenset(f for f, v in implied.items() if f not in found and v != defaults[f])
    found |= {KEYS: keys} if keys else {}
    found |= {HARDWARE: chosen[HARDWARE]} if device is not None else {}
    option_values = tuple(
        (flag, givers[flag] if chosen.get(flag) == value or flag == KEYS else "detection")
        for flag, value in found.items()
    )
    name = device.tag.name if device is not None else ""
    return Target(
        kind,
        options,
        option_values,
        hardware=name,
        user_keys=keys,
        tag_keys=tag_keys,
        pinned=pinned,
    )


def hardware_name(kind: TargetKind, values: Mapping[str, Value], origin: Origin) -> str:
    """Return the name of the hardware of a target that is about to be made; empty if none.

    Args:
        kind: Of the target.
        values: Flag to value, as given.
        origin: What is set besides.

    Raises:
        TargetError: A default of it is no text.
    """
    rows = target_rows(kind.options)
    for source in (origin.overrides.get(kind.name, {}), values, _defaults(kind, rows, origin)):
        if HARDWARE in source:
            return str(source[HARDWARE])
    return ""


def _check_clashes(
    kind: TargetKind, values: Mapping[str, Value], givers: Mapping[str, str], origin: Origin
) -> None:
    overrides = origin.overrides.get(kind.name, {})
    for flag in overrides:
        if givers.get(flag) == GIVEN_NAME and values[flag] != overrides[flag]:
            raise TargetError(
                f"-{flag} of '{kind.name}' is given in the target, and another value "
                f"on the {origin.setter}",
                hint=f"leave one of -{flag} and --target-{kind.name}-{flag} out",
                option=flag,
            )


def _warn_of_deprecated(
    kind: TargetKind, rows: Sequence[OptionRow], chosen: Mapping[str, Value]
) -> None:
    for row in rows:
        if row.deprecated and row.flag in chosen:
            warnings.warn(
                f"option -{row.flag} of target kind '{kind.name}' is deprecated: {row.deprecated}",
                FutureWarning,
                stacklevel=3,
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
            raise error.at(where) from None
    return found


def find_target_row(owner: str, rows: Sequence[OptionRow], flag: str) -> OptionRow:
    """Return the option of a target kind; one that moved away is named with its new place.

    Raises:
        TargetError: The kind has no such option.
    """
    try:
        return find_row(owner, rows, flag)
    except TargetError:
        from .moved import moved_option

        moved = moved_option(flag)
        if moved is None:
            raise
        raise moved from None
