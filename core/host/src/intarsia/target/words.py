# SPDX-License-Identifier: Apache-2.0
"""Options as words: ``-k=v``, ``--k=v``, ``-k v`` and ``-flag``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from intarsia_runtime.errors import TargetError

from .options import OptionRow, Value, find_row, parse_value
from .scan import Word, point

FindRow: TypeAlias = Callable[[str, Sequence[OptionRow], str], OptionRow]
"""Finds an option by what users call it; see :func:`intarsia.target.options.find_row`."""

_TRUTH = frozenset({"true", "false", "1", "0"})


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
