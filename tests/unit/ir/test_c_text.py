# SPDX-License-Identifier: Apache-2.0
"""Names of a model cannot leave the comment or the string literal that they are written into."""

from __future__ import annotations

import ast

import pytest

from intarsia_ir.c_text import c_comment, c_string


@pytest.mark.parametrize(
    "text", ["conv1/weight:0", 'a"b', "back\\slash", "??/trigraph", "line\nbreak", "größe", "\0 7"]
)
def test_a_string_literal_holds_the_bytes(text: str) -> None:
    literal = c_string(text)
    assert literal.isascii()
    assert "?" not in literal
    assert ast.literal_eval(f"b{literal}") == text.encode()  # Python reads octal escapes as C does


@pytest.mark.parametrize(
    "text, comment",
    [
        ("conv1/weight:0", "conv1/weight:0"),
        ("end */ int x; /* again", "end * / int x; / * again"),
        ("*/*/", "* / * /"),
        ("line\nbreak \\", "line?break ?"),
        ("größe", "gr??e"),
    ],
)
def test_a_comment_goes_on_to_its_end(text: str, comment: str) -> None:
    assert c_comment(text) == comment
    assert "*/" not in comment
