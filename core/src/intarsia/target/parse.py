# SPDX-License-Identifier: Apache-2.0
"""Target strings, JSON and files of it become one canonical composite.

The forms of one value::

    npu, loops -mcpu=native                                       string; see intarsia.target.scan
    {"kind": "composite", "accelerators": [{"kind": "npu"}], "fallback": {"kind": "loops"}}
    {"kind": "loops", "accelerators": [{"kind": "npu"}]}
    target.json                                                   a file with JSON

An alias stands for a target string. As the last target it is the whole of it; in front of others
it gives its accelerators only, so that ``fast-npu, llvm -mcpu=native`` sets the options of the
fallback. An alias
takes no options of its own: the message shows what it stands for.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from ..errors import TargetError
from .compose import compose
from .kind import Role, TargetKind
from .kinds import KindSource, make_target
from .options import OptionRow, Value, find_row, option_rows, parse_value
from .scan import MAX_LENGTH, Segment, Word, point, scan
from .structured import composite_from_json, load_json
from .target import CompositeTarget, Target

_TRUTH = frozenset({"true", "false", "1", "0"})


def parse_target(
    text: str, kinds: KindSource, *, host: Target | None = None, origin: str = "given"
) -> CompositeTarget:
    """Return the composite that a string, a JSON text or the path of a ``.json`` file says.

    Args:
        text: One of the forms above.
        kinds: Where kinds and aliases come from.
        host: ``target_host``; see :func:`intarsia.target.compose.compose`.
        origin: Who gives the options, for ``Target.origins``.

    Raises:
        TargetError: The text is wrong; the message points at the column.
        PluginError: The plugin of a kind is broken.
    """
    stripped = text.strip()
    if stripped.endswith(".json") and "{" not in stripped and len(stripped) < 4096:
        text = _read_file(stripped)
        stripped = text.strip()
        if not stripped.startswith("{"):
            raise TargetError("a target file holds one JSON object", where=text[:40])
    if stripped.startswith("{"):
        return composite_from_json(load_json(stripped), kinds, host, origin)
    targets = parse_targets(text, kinds, origin)
    return compose(targets, kinds, host)


def parse_targets(text: str, kinds: KindSource, origin: str = "given") -> list[Target]:
    """Return the targets of a string in their order, aliases replaced, not yet composed.

    Raises:
        TargetError: The string is wrong; the message points at the column.
    """
    return _Reader(text, kinds, origin, ()).targets()


def _read_file(name: str) -> str:
    try:
        path = Path(name)
        if not path.is_file():
            raise TargetError("no such target file", where=name)
        with path.open("rb") as stream:
            raw = stream.read(4 * MAX_LENGTH + 1)
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise TargetError("the target file is not UTF-8 text", where=name) from None
    except (OSError, ValueError) as cause:
        raise TargetError(f"the target file cannot be read: {cause}", where=name) from cause


class _Reader:
    """Reads one target string."""

    def __init__(self, text: str, kinds: KindSource, origin: str, inside: tuple[str, ...]) -> None:
        self._text = text
        self._kinds = kinds
        self._origin = origin
        self._inside = inside  # aliases being replaced, to find loops
        self._aliases = kinds.alias_table()

    def targets(self) -> list[Target]:
        """All targets, in order."""
        segments = scan(self._text, {*self._kinds.names(), *self._aliases})
        found: list[Target] = []
        for number, segment in enumerate(segments):
            first = segment.words[0]
            try:
                if first.is_option:
                    raise TargetError(
                        "a target starts with its kind", hint="e.g. KIND -option=value"
                    )
                if first.text in self._aliases and first.text not in self._kinds.names():
                    found += self._alias(segment, last=number == len(segments) - 1)
                else:
                    found.append(self._target(segment))
            except TargetError as error:
                self._fail(error, first)
        return found

    def _fail(self, error: TargetError, word: Word) -> NoReturn:
        if error.where:
            raise error
        point(self._text, word.column, error)

    def _alias(self, segment: Segment, *, last: bool) -> list[Target]:
        name = segment.words[0].text
        meaning = self._aliases[name]
        if len(segment.words) > 1:
            raise TargetError(
                f"'{name}' stands for '{meaning}' and takes no options of its own",
                hint="write the targets it stands for, each with its options",
            )
        if name in self._inside:
            loop = " -> ".join((*self._inside, name))
            raise TargetError(f"alias '{name}' stands for itself: {loop}")
        inner = _Reader(meaning, self._kinds, f"alias {name}", (*self._inside, name)).targets()
        accelerators = [t for t in inner if t.kind.role is Role.ACCELERATOR]
        return inner if last or not accelerators else accelerators

    def _target(self, segment: Segment) -> Target:
        kind = self._kinds.kind(segment.words[0].text)
        values = self._options(kind, segment.words[1:])
        return make_target(kind, values, self._origin)

    def _options(self, kind: TargetKind, words: list[Word]) -> dict[str, Value]:
        rows = option_rows(kind.options)
        values: dict[str, Value] = {}
        at = 0
        while at < len(words):
            word = words[at]
            following = words[at + 1] if at + 1 < len(words) else None
            try:
                row, value, used = _option(kind, rows, word, following)
                if row.flag in values:
                    raise TargetError(f"-{row.flag} is given twice")
            except TargetError as error:
                self._fail(error, word)
            values[row.flag] = value
            at += used
        return values


def _option(
    kind: TargetKind, rows: tuple[OptionRow, ...], word: Word, following: Word | None
) -> tuple[OptionRow, Value, int]:
    """The option at ``word``, its value, and how many words it took."""
    if not word.is_option:
        shown = word.text[:60]
        raise TargetError(
            f"'{shown}' is neither an option of '{kind.name}' nor the value of one",
            hint="options start with a dash; a comma starts the next target",
        )
    dashes = len(word.text) - len(word.text.lstrip("-"))
    name, equals, text = word.text[dashes:].partition("=")
    if dashes > 2 or not name:
        raise TargetError("an option is one or two dashes and a name", hint="e.g. -option=value")
    row = find_row(kind.name, rows, name)
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
