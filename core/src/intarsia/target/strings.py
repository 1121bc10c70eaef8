# SPDX-License-Identifier: Apache-2.0
"""Target strings: a comma-separated list of kinds, aliases and hardware tags with options.

An alias stands for a target string. As the last target it is the whole of it; in front of others
it gives its accelerators only, so that ``fast-npu, loops -mcpu=native`` sets the options of the
fallback. An alias takes no options of its own: the message shows what it stands for.

A hardware tag, ``vendor/board``, stands for a target string too, and so do a device's other names,
also those with spaces. Options behind it are options of the fallback that it implies, and win over
what it says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from msgspec import Struct, field

from ..errors import TargetError
from .kind import Role, TargetKind
from .kinds import GIVEN, KindSource, Origin, make_target
from .moved import find_target_row
from .options import Value, check_value, option_rows
from .scan import Segment, Word, point, scan
from .target import Target
from .words import read_options


def parse_targets(text: str, kinds: KindSource, origin: Origin = GIVEN) -> list[Target]:
    """Return the targets of a string in their order, aliases replaced, not yet composed.

    Raises:
        TargetError: The string is wrong; the message points at the column.
    """
    found: list[Target] = []
    for draft in _Reader(text, kinds, origin.name, ()).drafts():
        try:
            found.append(make_target(draft.kind, draft.values, origin, draft.origins))
        except TargetError as error:
            if error.where:
                raise
            point(text, _column_of(error, draft), error)
    return found


def _column_of(error: TargetError, draft: _Draft) -> int:
    """Where the option stands that a message begins with; the target if it names none."""
    said = re.match(r"-[\w-]+", error.message)
    return draft.columns.get(said[0][1:], draft.column) if said else draft.column


class _Draft(Struct):
    """A target before its options are checked against each other.

    Attributes:
        kind: Its kind.
        values: Flag to value.
        origins: Flag to whoever gave it.
        column: Where it begins in the text of the user.
        columns: Flag to where the user's text gives it.
    """

    kind: TargetKind
    values: dict[str, Value]
    origins: dict[str, str]
    column: int
    columns: dict[str, int] = field(default_factory=dict[str, int])


def parse_tag(
    name: str, options: Mapping[str, object], kinds: KindSource, origin: Origin = GIVEN
) -> list[Target]:
    """Return the targets that a hardware tag implies, its fallback with these options set.

    Raises:
        TargetError: There is no such hardware, or an option or a value is wrong.
    """
    meaning = kinds.tag(name)
    if meaning is None:
        raise TargetError(f"no hardware is called '{name[:60]}'")
    drafts = _Reader(meaning, kinds, f"tag {name}", (name,)).drafts()
    chosen = _overridden(drafts)
    rows = option_rows(chosen.kind.options)
    for flag, value in options.items():
        row = find_target_row(f"target kind '{chosen.kind.name}'", rows, flag)
        chosen.values[row.flag] = check_value(row, value)
        chosen.origins[row.flag] = origin.name
    return [make_target(draft.kind, draft.values, origin, draft.origins) for draft in drafts]


class _Reader:
    """Reads one target string."""

    def __init__(self, text: str, kinds: KindSource, origin: str, inside: tuple[str, ...]) -> None:
        self._text = text
        self._kinds = kinds
        self._origin = origin
        self._inside = inside  # aliases and tags being replaced, to find loops
        self._aliases = kinds.alias_table()

    def drafts(self) -> list[_Draft]:
        """All targets, in order."""
        segments = scan(self._text, {*self._kinds.names(), *self._aliases})
        found: list[_Draft] = []
        for number, segment in enumerate(segments):
            first = segment.words[0]
            try:
                found += self._segment(segment, last=number == len(segments) - 1)
            except TargetError as error:
                self._fail(error, first)
        return found

    def _fail(self, error: TargetError, word: Word) -> NoReturn:
        if error.where:
            raise error
        point(self._text, word.column, error)

    def _segment(self, segment: Segment, *, last: bool) -> list[_Draft]:
        first = segment.words[0]
        if first.is_option:
            raise TargetError("a target starts with its kind", hint="e.g. KIND -option=value")
        if first.text in self._kinds.names():
            return [self._target(segment)]
        if first.text in self._aliases:
            return self._alias(segment, last=last)
        for words in range(segment.plain_words(), 0, -1):
            joined = segment.joined(words)
            meaning = self._kinds.tag(joined.words[0].text)
            if meaning is not None:
                return self._tag(joined, meaning, last)
        return [self._target(segment)]

    def _target(self, segment: Segment) -> _Draft:
        kind = self._kinds.kind(segment.words[0].text)
        values, columns = self._options(kind, segment.words[1:])
        origins = dict.fromkeys(values, self._origin)
        return _Draft(kind, values, origins, segment.words[0].column, columns)

    def _options(
        self, kind: TargetKind, words: list[Word]
    ) -> tuple[dict[str, Value], dict[str, int]]:
        """Flag to value, and flag to column."""
        owner = f"target kind '{kind.name}'"
        rows = option_rows(kind.options)
        columns: dict[str, int] = {}
        values = read_options(self._text, owner, rows, words, find_target_row, columns)
        return values, columns

    def _alias(self, segment: Segment, *, last: bool) -> list[_Draft]:
        name = segment.words[0].text
        meaning = self._aliases[name]
        if len(segment.words) > 1:
            raise TargetError(
                f"'{name}' stands for '{meaning}' and takes no options of its own",
                hint="write the targets it stands for, each with its options",
            )
        return _front(self._implied(segment, meaning, f"alias {name}"), last)

    def _tag(self, segment: Segment, meaning: str, last: bool) -> list[_Draft]:
        name = segment.words[0].text
        inner = _front(self._implied(segment, meaning, f"tag {name}"), last)
        if len(segment.words) > 1:
            chosen = _overridden(inner)
            values, columns = self._options(chosen.kind, segment.words[1:])
            chosen.values.update(values)
            chosen.columns.update(columns)
            chosen.origins.update(dict.fromkeys(values, self._origin))
        return inner

    def _implied(self, segment: Segment, meaning: str, origin: str) -> list[_Draft]:
        """The targets that an alias or a tag stands for."""
        name = segment.words[0].text
        if name in self._inside:
            loop = " -> ".join((*self._inside, name))
            raise TargetError(f"alias '{name}' stands for itself: {loop}")
        inner = _Reader(meaning, self._kinds, origin, (*self._inside, name)).drafts()
        for draft in inner:
            draft.column = segment.words[0].column
            draft.columns.clear()
        return inner


def _overridden(inner: list[_Draft]) -> _Draft:
    """The one whose options may stand behind a tag: the fallback, else the first accelerator."""
    return next((draft for draft in inner if draft.kind.role is Role.BACKEND), inner[0])


def _front(inner: list[_Draft], last: bool) -> list[_Draft]:
    """In front of other targets, only the accelerators of what an alias or a tag stands for."""
    accelerators = [draft for draft in inner if draft.kind.role is Role.ACCELERATOR]
    return inner if last or not accelerators else accelerators
