# SPDX-License-Identifier: Apache-2.0
"""The tokens of graph IR."""

from __future__ import annotations

import re

from ...tokens import STRING, WORD, Token, cut

_TOKEN = re.compile(
    rf"""[ \t\r]*(?:(?P<newline>\n)
    | (?P<comment>//[^\n]*)
    | (?P<ref>%(?:\d+|{WORD}|{STRING})(?:\#\d+)?)
    | (?P<global>@(?:{WORD}|{STRING}))
    | (?P<string>{STRING})
    | (?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?))
    | (?P<word>{WORD})
    | (?P<size>`[^`\n]*`)
    | (?P<mark>->|[][(){{}},;:=])
    | (?P<end>\Z))
    """,
    re.VERBOSE,
)


def tokenize(text: str) -> list[Token]:
    """Return the tokens of ``text``, with an ``end`` token last.

    Raises:
        ParseError: A character that begins no token.
    """
    return cut(text, _TOKEN)
