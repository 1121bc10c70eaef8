# SPDX-License-Identifier: Apache-2.0
"""Where kinds come from, and how a target of a kind is made from values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from ..errors import IntarsiaError, PluginError, TargetError
from .kind import Role, TargetKind
from .options import Value, did_you_mean, option_rows, set_options
from .target import Target

COMPOSITE = "composite"
"""Name of the JSON form of a composite; no kind may have it."""


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


@dataclass(frozen=True)
class KindTable:
    """Kinds and aliases given as values."""

    kinds: Mapping[str, TargetKind]
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, *kinds: TargetKind, aliases: Mapping[str, str] | None = None) -> KindTable:
        """A table of these kinds by their names."""
        return cls({kind.name: kind for kind in kinds}, aliases or {})

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


def unknown_kind(name: str, known: Collection[str]) -> TargetError:
    """The error for a kind that nobody has."""
    shown = name if len(name) <= 60 else name[:57] + "..."
    hint = did_you_mean(name, known) or (
        f"known: {', '.join(sorted(known))}" if known else "no plugin is installed; install one"
    )
    return TargetError(f"no target kind or alias is called {shown!r}", hint=hint)


def make_target(kind: TargetKind, values: Mapping[str, Value], origin: str = "given") -> Target:
    """Return the canonical target of a kind with these values, keyed by flag.

    Raises:
        TargetError: The values do not go together.
        PluginError: The kind's ``canonicalise`` failed.
    """
    rows = option_rows(kind.options)
    by_flag = {row.flag: row.field for row in rows}
    options = kind.options(**{by_flag[flag]: value for flag, value in values.items()})
    if kind.canonicalise is not None:
        options = _canonical(kind, options)
    origins = tuple(
        (flag, origin if flag in values and values[flag] == value else "detection")
        for flag, value in set_options(rows, options).items()
    )
    return Target(kind, options, origins)


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
