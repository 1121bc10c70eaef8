# SPDX-License-Identifier: Apache-2.0
"""Cut text into tokens that know where they stand; what is a token is each format's own."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from intarsia_runtime.errors import ParseError

WORD = r"[A-Za-z_][A-Za-z0-9_.]*"
"""Pattern of a name that stands bare."""

STRING = r'"(?:[^"\\\n]|\\.)*"'
"""Pattern of a string literal."""

_WORD = re.compile(WORD)


class Token(NamedTuple):
    """A piece of text.

    Attributes:
        kind: Name of the group of the format's pattern that it matched, or ``end``.
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


def cut(text: str, pattern: re.Pattern[str]) -> list[Token]:
    """Return the tokens of ``text``, with an ``end`` token last.

    Args:
        text: What to cut.
        pattern: One token with the blanks before it; its group gives the kind. ``newline`` begins
            a line and is no token; ``end`` matches at the end.

    Raises:
        ParseError: A character that begins no token.
    """
    tokens: list[Token] = []
    line, start, at = 1, 0, 0
    while at < len(text):
        match = pattern.match(text, at)
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


def quote(text: str) -> str:
    """Return a string literal."""
    return json.dumps(text)


def name_text(name: str) -> str:
    """Return a name bare if it is a word, else in quotes."""
    return name if _WORD.fullmatch(name) else quote(name)
