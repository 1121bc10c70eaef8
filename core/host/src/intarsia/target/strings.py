# SPDX-License-Identifier: Apache-2.0
"""Target strings: a comma-separated list of kinds, aliases and hardware tags with options.

An alias stands for a target string. As the last target it is the whole of it; in front of others
it gives its accelerators only, so that ``fast-npu, loops -mcpu=native`` sets the options of the
fallback. An option behind it is one of the first of its targets that has such an option.

A hardware tag, ``vendor/board``, stands for a target string too, and so do a device's other names,
also those with spaces. Every target that it implies carries its name, ``-hardware=vendor/board``.
An option behind it is one of the fallback that it implies, or else of the first target that has
such an option, and wins over what the tag says. ``kind/board`` is the part of what the tag implies
that begins with the kind; a kind that the tag does not imply is given its name only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NoReturn

from msgspec import Struct, field

from intarsia_runtime.errors import TargetError

from .kind import Role, TargetKind
from .kind_table import GIVEN, KindSource, Origin, find_target_row, hardware_name, make_target
from .options import Value, check_value
from .scan import TargetSegment, Word, point, read_options, scan
from .target import Target
from .universal import HARDWARE, HardwareDevice, Tag, target_rows


def parse_targets(text: str, kinds: KindSource, origin: Origin = GIVEN) -> list[Target]:
    """Return the targets of a string in their order, aliases replaced, not yet composed.

    Raises:
        TargetError: The string is wrong; the message points at the column.
    """
    found: list[Target] = []
    for draft in _StringReader(text, kinds, origin.name, ()).drafts():
        try:
            found.append(complete(draft.kind, draft.values, kinds, origin, draft.origins))
        except TargetError as error:
            if error.where:
                raise
            point(text, _column_of(error, draft), error)
    return found


def _column_of(error: TargetError, draft: _Draft) -> int:
    """Where the option stands that an error is about; the target if it is about none."""
    return draft.columns.get(error.option, draft.column)


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


def complete(
    kind: TargetKind,
    values: Mapping[str, Value],
    kinds: KindSource,
    origin: Origin = GIVEN,
    origins: Mapping[str, str] | None = None,
) -> Target:
    """Return the canonical target of a kind, with what its ``-hardware`` implies.

    Args:
        kind: The kind.
        values: Flag to value.
        kinds: Where hardware tags come from.
        origin: Who gives the values, and what is set besides.
        origins: Flag to whoever gave that one, where it is someone else.

    Raises:
        TargetError: The values do not go together, or there is no such hardware.
        PluginError: The hook ``canonicalize_target`` failed.
    """
    name = hardware_name(kind, values, origin)
    device = None
    if name:
        tag = _tag_of(name, kinds)
        device = HardwareDevice(tag, _implied_options(tag, kind, kinds))
    return make_target(kind, values, origin, origins, device=device, kinds=kinds)


def _tag_of(name: str, kinds: KindSource) -> Tag:
    tag = kinds.tag(name)
    if tag is None:
        raise TargetError(
            f"-{HARDWARE}: no hardware is called '{name[:60]}'",
            hint="`intarsia hardware list` shows all; INTARSIA_HARDWARE names files with more",
            option=HARDWARE,
        )
    return tag


def _implied_options(tag: Tag, kind: TargetKind, kinds: KindSource) -> dict[str, Value]:
    """What a tag says of a kind; nothing if it does not imply the kind.

    A tag may imply kinds that are not installed; the others are of use all the same.
    """
    for text in _split(tag.target, kinds):
        if text.words[0].text == kind.name:
            reader = _StringReader(tag.target, kinds, f"tag {tag.name}", (tag.name,))
            return reader.target(text).values
    return {}


def parse_tag(
    name: str, options: Mapping[str, object], kinds: KindSource, origin: Origin = GIVEN
) -> list[Target]:
    """Return the targets that a hardware tag implies, its fallback with these options set.

    Raises:
        TargetError: There is no such hardware, or an option or a value is wrong.
    """
    tag = kinds.tag(name)
    if tag is None:
        raise TargetError(f"no hardware is called '{name[:60]}'")
    drafts = _StringReader(tag.target, kinds, f"tag {tag.name}", (tag.name,)).drafts()
    _name_hardware(drafts, tag)
    for flag, value in options.items():
        chosen = _owner(_by_role(drafts), flag)
        rows = target_rows(chosen.kind.options)
        row = find_target_row(f"target kind '{chosen.kind.name}'", rows, flag)
        chosen.values[row.flag] = check_value(row, value)
        chosen.origins[row.flag] = origin.name
    return [complete(draft.kind, draft.values, kinds, origin, draft.origins) for draft in drafts]


class _StringReader:
    """Reads one target string."""

    def __init__(self, text: str, kinds: KindSource, origin: str, inside: tuple[str, ...]) -> None:
        self._text = text
        self._kinds = kinds
        self._origin = origin
        self._inside = inside  # aliases and tags being replaced, to find loops
        self._aliases = kinds.alias_table()

    def drafts(self) -> list[_Draft]:
        """All targets, in order."""
        segments = _split(self._text, self._kinds)
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

    def _segment(self, segment: TargetSegment, *, last: bool) -> list[_Draft]:
        first = segment.words[0]
        if first.is_option:
            raise TargetError("a target string starts with a kind", hint="e.g. KIND -option=value")
        if first.text in self._kinds.names():
            return [self.target(segment)]
        if first.text in self._aliases:
            return self._alias(segment, last=last)
        kind, slash, _ = first.text.partition("/")
        if slash and kind in self._kinds.names():
            return self._part_of_tag(segment, last=last)
        for words in range(segment.plain_words(), 0, -1):
            joined = segment.joined(words)
            tag = self._kinds.tag(joined.words[0].text)
            if tag is not None:
                return self._tag(joined, tag, last)
        return [self.target(segment)]

    def target(self, segment: TargetSegment) -> _Draft:
        """The target of a kind."""
        kind = self._kind(segment.words[0].text)
        values, columns = self._options(kind, segment.words[1:])
        origins = dict.fromkeys(values, self._origin)
        return _Draft(kind, values, origins, segment.words[0].column, columns)

    def _kind(self, name: str) -> TargetKind:
        try:
            return self._kinds.kind(name)
        except TargetError as error:
            if not self._inside or name in self._kinds.names():
                raise
            raise TargetError(
                f"'{self._inside[-1]}' is driven by the backend '{name}', "
                "which no installed plugin has",
                hint=error.hint
                if error.hint.startswith("pip install")
                else f"install a plugin that has it; the name means '{self._text}'",
            ) from None

    def _options(
        self, kind: TargetKind, words: list[Word]
    ) -> tuple[dict[str, Value], dict[str, int]]:
        """Flag to value, and flag to column."""
        owner = f"target kind '{kind.name}'"
        rows = target_rows(kind.options)
        columns: dict[str, int] = {}
        values = read_options(self._text, owner, rows, words, find_target_row, columns)
        return values, columns

    def _alias(self, segment: TargetSegment, *, last: bool) -> list[_Draft]:
        name = segment.words[0].text
        inner = _front(self._implied(segment, self._aliases[name], f"alias {name}"), last)
        self._set_options(inner, segment)
        return inner

    def _tag(self, segment: TargetSegment, tag: Tag, last: bool) -> list[_Draft]:
        inner = self._implied(segment, tag.target, f"tag {tag.name}", tag.name)
        _name_hardware(inner, tag)
        inner = _front(inner, last)
        self._set_options(_by_role(inner), segment)
        return inner

    def _part_of_tag(self, segment: TargetSegment, *, last: bool) -> list[_Draft]:
        """``kind/device``: what the device's tag implies, from the kind on."""
        kind, _, name = segment.words[0].text.partition("/")
        tag = _tag_of(name, self._kinds)
        parts = _split(tag.target, self._kinds)
        names = [part.words[0].text for part in parts]
        reader = _StringReader(
            tag.target, self._kinds, f"tag {tag.name}", (*self._inside, tag.name)
        )
        inner = (
            [reader.target(part) for part in parts[names.index(kind) :]] if kind in names else []
        )
        inner = inner or [_Draft(self._kinds.kind(kind), {}, {}, segment.words[0].column)]
        for draft in inner:
            draft.column = segment.words[0].column
            draft.columns.clear()
        _name_hardware(inner, tag)
        inner = _front(inner, last)
        self._set_options(inner, segment)
        return inner

    def _set_options(self, drafts: Sequence[_Draft], segment: TargetSegment) -> None:
        """Give each option behind an alias or a tag to the first target that has it."""
        for words in _groups(segment.words[1:]):
            flag = words[0].text.lstrip("-").partition("=")[0]
            chosen = _owner(drafts, flag)
            values, columns = self._options(chosen.kind, words)
            for name in values.keys() & chosen.columns.keys():
                point(self._text, words[0].column, TargetError(f"-{name} is given twice"))
            chosen.values.update(values)
            chosen.columns.update(columns)
            chosen.origins.update(dict.fromkeys(values, self._origin))

    def _implied(
        self, segment: TargetSegment, meaning: str, origin: str, canonical: str = ""
    ) -> list[_Draft]:
        """The targets that an alias or a tag stands for."""
        name = canonical or segment.words[0].text
        if name in self._inside:
            loop = " -> ".join((*self._inside, name))
            raise TargetError(f"alias '{name}' refers to itself: {loop}")
        inner = _StringReader(meaning, self._kinds, origin, (*self._inside, name)).drafts()
        for draft in inner:
            draft.column = segment.words[0].column
            draft.columns.clear()
        return inner


def _split(text: str, kinds: KindSource) -> list[TargetSegment]:
    return list(scan(text, {*kinds.names(), *kinds.alias_table()}))


def _groups(words: Sequence[Word]) -> list[list[Word]]:
    """Each option with the words behind it that are its value."""
    groups: list[list[Word]] = []
    for word in words:
        negative = re.fullmatch(r"-[0-9.].*", word.text) is not None
        if groups and (not word.is_option or negative):
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def _name_hardware(drafts: Sequence[_Draft], tag: Tag) -> None:
    """Let every target that a tag implies carry the tag's name."""
    for draft in drafts:
        draft.values[HARDWARE] = tag.name
        draft.origins[HARDWARE] = f"tag {tag.name}"


def _owner(drafts: Sequence[_Draft], flag: str) -> _Draft:
    """The first target that has an option; the first of all if none has."""
    wanted = flag.replace("_", "-")
    for draft in drafts:
        if any(row.flag.replace("_", "-") == wanted for row in target_rows(draft.kind.options)):
            return draft
    return drafts[0]


def _by_role(drafts: Sequence[_Draft]) -> list[_Draft]:
    """Targets in the order in which options behind a tag are given to them: the fallback first."""
    backends = [draft for draft in drafts if draft.kind.role is Role.BACKEND]
    return [*backends, *(draft for draft in drafts if draft.kind.role is Role.ACCELERATOR)]


def _front(inner: list[_Draft], last: bool) -> list[_Draft]:
    """What an alias or a tag gives in front of others: accelerators, or a device without host."""
    accelerators = [draft for draft in inner if draft.kind.role is Role.ACCELERATOR]
    return inner if last else accelerators or inner[:1]
