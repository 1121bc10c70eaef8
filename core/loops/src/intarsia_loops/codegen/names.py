# SPDX-License-Identifier: Apache-2.0
"""Names and punctuation of generated sources."""

from __future__ import annotations

from msgspec import Struct, field

from .c_functions import PREFIX


class Names(Struct):
    """Names in one function, no two alike.

    Attributes:
        reserved: Words that no variable may be called.
        taken: How often each name was asked for.
    """

    reserved: frozenset[str]
    taken: dict[str, int] = field(default_factory=dict[str, int])

    def fresh(self, wanted: str) -> str:
        """Return ``wanted``, made an identifier and followed by a number if it is taken."""
        plain = "".join(ch if ch.isascii() and ch.isalnum() else "_" for ch in wanted) or "x"
        if plain[0].isdigit() or plain.startswith(("_", PREFIX, "kernel_")):
            plain = f"v{plain}"
        name = plain
        while name in self.taken or name in self.reserved:
            self.taken[plain] = self.taken.get(plain, 0) + 1
            name = f"{plain}_{self.taken[plain]}"
        self.taken.setdefault(name, 0)
        return name

    def release(self, name: str) -> None:
        """Let a name be given again: its scope has ended."""
        del self.taken[name]


def bare(text: str) -> str:
    """Return an operand without the parentheses around all of it."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for number, ch in enumerate(text):
        depth += (ch == "(") - (ch == ")")
        if depth == 0 and number < len(text) - 1:
            return text
    return text[1:-1]
