# SPDX-License-Identifier: Apache-2.0
"""Cut text into tokens that know where they stand."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from ...errors import ParseError
from .spelling import WORD

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""[ \t\r]*(?:(?P<newline>\n)
    | (?P<comment>//[^\n]*)
    | (?P<ref>%(?:\d+|{WORD}|{_STRING})(?:\#\d+)?)
    | (?P<global>@(?:{WORD}|{_STRING}))
    | (?P<string>{_STRING})
    | (?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
    | (?P<word>{WORD})
    | (?P<mark>->|[][(){{}},;:=])
    | (?P<end>\Z))
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """A piece of text.

    Attributes:
        kind: ``ref``, ``global``, ``string``, ``number``, ``word``, ``mark``, ``comment``, ``end``.
        text: As written.
        line: From 1.
        column: From 1.
    """

    kind: str
    text: str
    line: int
    column: int

    def fail(self, message: str, *, hint: str = "") -> ParseError:
        """Return an error at this place."""
        return ParseError(message, where=f"line {self.line}, column {self.column}", hint=hint)

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"'{self.text}'"


def tokenize(text: str) -> list[Token]:
    """Return the tokens of ``text``, with an ``end`` token last.

    Raises:
        ParseError: A character that begins no token.
    """
    tokens: list[Token] = []
    line, start, at = 1, 0, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip(" \t\r"))
            bad = Token("mark", text[at], line, at - start + 1)
            raise bad.fail(f"unexpected character {text[at]!r}")
        kind = match.lastgroup or ""
        if kind == "newline":
            line, start = line + 1, match.end()
        elif kind != "end":
            column = match.start(kind) - start + 1
            tokens.append(Token(kind, match.group(kind), line, column))
        at = match.end()
    tokens.append(Token("end", "", line, at - start + 1))
    return tokens


def unquote(token: Token, text: str) -> str:
    """Return what a string literal, or a bare name, stands for.

    Raises:
        ParseError: A bad escape in the literal.
    """
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except json.JSONDecodeError as error:
        raise token.fail(f"bad string literal: {error.msg}") from None
