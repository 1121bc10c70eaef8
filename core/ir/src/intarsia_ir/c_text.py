# SPDX-License-Identifier: Apache-2.0
"""Text of a model inside C and C++ that is generated: it must not end what it stands in."""

from __future__ import annotations

_ESCAPED = b'"\\?'
"""Of printable characters; ``?`` may begin a trigraph."""


def c_string(text: str) -> str:
    """Return a string literal; what is not printable ASCII as octal escapes of its UTF-8 bytes."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in _ESCAPED else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "replace")
    )
    return f'"{plain}"'


def c_comment(text: str) -> str:
    """Return text as it may stand inside ``/* */``; what is not printable ASCII becomes ``?``."""
    plain = "".join(c if c.isascii() and c.isprintable() and c != "\\" else "?" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *")
