# SPDX-License-Identifier: Apache-2.0
"""The words of a target string, options as words, and messages that point into it.

A string is a comma-separated list of targets; each is a kind (or an alias) followed by options.
Words are separated by white space; single or double quotes group. A comma separates two targets if
a known kind or alias follows it, or if it does not stand inside an option's value; so ``llvm
-mattr=+a,+b`` is one target and ``npu -variant=x,llvm`` is two.
Options are ``-k=v``, ``--k=v``, ``-k v`` and ``-flag``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NoReturn, TypeAlias

from msgspec import Struct, field

from intarsia_runtime.errors import TargetError

from .options import OptionRow, Value, find_row, parse_value

MAX_LENGTH = 100_000
"""Longest target string or JSON text, in characters."""

_SPACE = " \t\r\n"
_NEXT_WORD = re.compile(r"[ \t\r\n]*([A-Za-z0-9_.-]+)(?=[ \t\r\n,]|\Z)")
_WIDTH = 72
_TRUTH = frozenset({"true", "false", "1", "0"})

FindRow: TypeAlias = Callable[[str, Sequence[OptionRow], str], OptionRow]
"""Finds an option by what users call it; see :func:`intarsia.target.options.find_row`."""


class Word(Struct):
    """A word: its text without quotes, the column it starts at, and where quotes stood.

    Attributes:
        text: Content, quotes removed.
        column: From 0.
        quoted: Some of it was quoted.
        opens_quoted: It starts with a quote, so a leading dash is no option's.
    """

    text: str
    column: int
    quoted: bool = False
    opens_quoted: bool = False

    @property
    def is_option(self) -> bool:
        """Whether it starts with a dash outside quotes."""
        return self.text.startswith("-") and not self.opens_quoted


class TargetSegment(Struct):
    """The words between two separating commas, and where they start."""

    column: int
    words: list[Word] = field(default_factory=list[Word])

    def plain_words(self) -> int:
        """How many words stand in front of the first option."""
        options = (at for at, word in enumerate(self.words) if word.is_option)
        return next(options, len(self.words))

    def joined(self, count: int) -> TargetSegment:
        """The segment with its first words as one, as in a name with spaces."""
        first = self.words[0]
        text = " ".join(word.text for word in self.words[:count])
        word = Word(text, first.column, first.quoted, first.opens_quoted)
        return TargetSegment(self.column, [word, *self.words[count:]])


def point(text: str, column: int, error: TargetError) -> NoReturn:
    """Raise the error again with the column and a line that points at it."""
    start = max(0, min(column, len(text)) - _WIDTH // 2)
    shown = text[start : start + _WIDTH]
    shown = "".join(ch if ch.isprintable() else " " for ch in shown)
    before, after = "..." if start else "", "..." if start + _WIDTH < len(text) else ""
    caret = " " * (len(before) + column - start) + "^"
    raise TargetError(
        f"{error.message}\n    {before}{shown}{after}\n    {caret}",
        hint=error.hint,
        where=f"target, column {column + 1}",
    ) from error.__cause__


def scan(text: str, known: Collection[str]) -> list[TargetSegment]:
    """Split a target string into segments of words.

    Args:
        text: The string.
        known: Names of kinds and aliases; a comma in front of one always separates.

    Raises:
        TargetError: The string is too long, empty, has an open quote or a comma with nothing
            beside it.
    """
    if len(text) > MAX_LENGTH:
        raise TargetError(f"the target has {len(text)} characters; at most {MAX_LENGTH} are read")
    segments = [TargetSegment(0)]
    word: Word | None = None
    at = 0
    while at < len(text):
        ch = text[at]
        if ch in _SPACE:
            word = None
        elif ch == "," and _separates(text, at, segments[-1], word, known):
            word = None
            segments.append(TargetSegment(at + 1))
        else:
            if word is None:
                word = Word("", at, opens_quoted=ch in "'\"")
                segments[-1].words.append(word)
            if ch in "'\"":
                end = text.find(ch, at + 1)
                if end < 0:
                    point(text, at, TargetError("the quote that starts here does not end"))
                word.text += text[at + 1 : end]
                word.quoted = True
                at = end
            else:
                at = _append_plain(text, at, word)
        at += 1
    for segment in segments:
        if not segment.words:
            message = (
                "the target is empty" if len(segments) == 1 else "a comma has nothing beside it"
            )
            point(text, max(0, segment.column - 1), TargetError(message))
    return segments


def _append_plain(text: str, at: int, word: Word) -> int:
    """Append a run of plain characters; returns the last one's place."""
    end = at + 1
    while end < len(text) and text[end] not in " \t\r\n,'\"":
        end += 1
    word.text += text[at:end]
    return end - 1


def _separates(
    text: str, at: int, segment: TargetSegment, word: Word | None, known: Collection[str]
) -> bool:
    """Whether the comma at ``at`` ends a target."""
    following = _NEXT_WORD.match(text, at + 1)
    if following is not None and following[1] in known:
        return True
    if word is None or at + 1 == len(text) or text[at + 1] in _SPACE:
        return True
    return not _in_value(segment, word)


def _in_value(segment: TargetSegment, word: Word) -> bool:
    """Whether the word is, or ends with, the value of an option."""
    if word.is_option:
        return "=" in word.text
    before = segment.words[-2] if len(segment.words) > 1 else None
    return before is not None and before.is_option and "=" not in before.text


def read_options(
    text: str,
    owner: str,
    rows: Sequence[OptionRow],
    words: Sequence[Word],
    find: FindRow = find_row,
    columns: dict[str, int] | None = None,
) -> dict[str, Value]:
    """Return flag to value of the options that words give.

    Args:
        text: The whole text that the words stand in, for messages that point into it.
        owner: Whose options they are, for messages: ``target kind 'npu'``.
        rows: The options there are.
        words: The words behind the name of the owner.
        find: Finds an option by its name.
        columns: Filled with flag to the column of its word, for later messages.

    Raises:
        TargetError: An option or value is wrong, or given twice; the message points at it.
    """
    values: dict[str, Value] = {}
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else None
        try:
            row, value, used = _option(partial(find, owner, rows), owner, word, following)
            if row.flag in values:
                raise TargetError(f"-{row.flag} is given twice")
        except TargetError as error:
            point(text, word.column, error)
        values[row.flag] = value
        if columns is not None:
            columns[row.flag] = word.column
        at += used
    return values


def _option(
    find: Callable[[str], OptionRow], owner: str, word: Word, following: Word | None
) -> tuple[OptionRow, Value, int]:
    """The option at ``word``, its value, and how many words it took."""
    if not word.is_option:
        shown = word.text[:60]
        raise TargetError(
            f"'{shown}' is neither an option of {owner} nor the value of one",
            hint="options start with a dash; a comma starts the next target",
        )
    dashes = len(word.text) - len(word.text.lstrip("-"))
    name, equals, text = word.text[dashes:].partition("=")
    if dashes > 2 or not name:
        raise TargetError("an option is one or two dashes and a name", hint="e.g. -option=value")
    row = find(name)
    if equals:
        if not text and not word.quoted:
            raise TargetError(f"-{row.flag} has no value", hint=f"-{row.flag}='' is the empty one")
        return row, parse_value(row, text), 1
    if row.type == "bool":
        if following is not None and following.text.lower() in _TRUTH:
            return row, parse_value(row, following.text), 2
        return row, True, 1
    if following is None or (following.is_option and not _is_number(following.text)):
        raise TargetError(f"-{row.flag} needs a value", hint=f"-{row.flag}=...")
    return row, parse_value(row, following.text), 2


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
