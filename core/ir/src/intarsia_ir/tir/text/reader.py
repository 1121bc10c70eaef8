# SPDX-License-Identifier: Apache-2.0
"""Tokens of loop IR with a position, and the names that are visible there."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TypeVar, cast

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError
from intarsia_runtime.size_text import parse_size

from ...tokens import Token, cut, unquote
from ..buffer import Buffer
from ..expr import PrimExpr, TirVar
from .words import RESERVED, TOKEN

_DTYPES = {dtype.value: dtype for dtype in DType}
Named = TypeVar("Named", Buffer, TirVar)


class LoopReader:
    """The rest of a text, which is read from its beginning.

    Args:
        text: Kernels.

    Raises:
        ParseError: A character that begins no token.
    """

    def __init__(self, text: str) -> None:
        self._tokens = [token for token in cut(text, TOKEN) if token.kind != "comment"]
        self._at = 0

    @property
    def token(self) -> Token:
        """The token to read next."""
        return self._tokens[self._at]

    @property
    def line_before(self) -> int:
        """The line of the token read last; 0 at the start."""
        return self._tokens[self._at - 1].line if self._at else 0

    @property
    def ends_line(self) -> bool:
        """Whether the token to read next begins a line."""
        return self.token.kind == "end" or self.token.line > self.line_before

    def take(self) -> Token:
        """Read a token, whatever it is."""
        token = self.token
        self._at += token.kind != "end"
        return token

    def back(self) -> None:
        """Stand before the token read last again."""
        self._at -= 1

    def marks_line_end(self) -> bool:
        """Whether nothing stands behind the next token on its line."""
        after = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        return after.kind == "end" or after.line > self.token.line

    def at(self, text: str) -> bool:
        """Whether the mark or word ``text`` stands next."""
        return self.token.text == text and self.token.kind in ("mark", "word")

    def skip(self, text: str) -> bool:
        """Read the mark or word ``text`` if it stands there."""
        if not self.at(text):
            return False
        self.take()
        return True

    def expect(self, text: str) -> Token:
        """Read the mark or word ``text``.

        Raises:
            ParseError: Something else stands there.
        """
        if not self.at(text):
            raise self.token.fail(f"expected '{text}', found {self.token}")
        return self.take()

    def end_line(self) -> None:
        """Hold that nothing more stands on the line.

        Raises:
            ParseError: Something does.
        """
        if not self.ends_line:
            raise self.token.fail(f"expected the end of the line, found {self.token}")

    def name(self, what: str) -> str:
        """Read a name; ``what`` says in messages what of.

        Raises:
            ParseError: No name stands there, or one that has a meaning of its own.
        """
        token = self.take()
        if token.kind == "string":
            return unquote(token, token.text)
        if token.kind != "word" or token.text in RESERVED:
            raise token.fail(f"expected the name of {what}, found {token}")
        return token.text

    def integer(self) -> int:
        """Read a whole number that is not negative.

        Raises:
            ParseError: Something else stands there.
        """
        token = self.take()
        if token.kind != "number" or not token.text.isdecimal():
            raise token.fail(f"expected a whole number, found {token}")
        return int(token.text)

    def size(self) -> int:
        """Read a number, or an expression over size variables in backquotes.

        Raises:
            ParseError: Something else stands there.
        """
        if self.token.kind != "size":
            return self.integer()
        token = self.take()
        try:
            return cast("int", parse_size(token.text[1:-1]))  # as in a Buffer
        except ArtifactError as error:
            raise token.fail(error.message, hint=error.hint) from None

    def dtype(self) -> DType:
        """Read the name of an element type.

        Raises:
            ParseError: There is no such element type.
        """
        token = self.take()
        if token.text not in _DTYPES:
            raise token.fail(f"expected an element type, found {token}", hint=_listed(_DTYPES))
        return _DTYPES[token.text]


class VisibleNames:
    """The buffers and variables of one kernel by name: those visible, and those that were."""

    def __init__(self) -> None:
        self._visible: dict[str, Buffer | TirVar] = {}
        self._known: dict[str, Buffer | TirVar] = {}
        self.aliases: dict[str, PrimExpr] = {}  # what ``$0`` stands for in the statement

    def define(self, token: Token, made: Named) -> Named:
        """Make a name visible; one that was visible before, of the same type, is the same object.

        Raises:
            ParseError: The name is visible already.
        """
        if made.name in self._visible:
            raise token.fail(f"'{made.name}' is defined twice")
        before = self._known.get(made.name)
        found = before if isinstance(before, type(made)) and _alike(before, made) else made
        self._visible[made.name] = self._known[made.name] = found
        return found

    def hide(self, name: str) -> None:
        """End what :meth:`define` began."""
        del self._visible[name]

    def buffer(self, token: Token, name: str) -> Buffer:
        """Return the buffer of a name.

        Raises:
            ParseError: It is no buffer, or not visible.
        """
        found = self._find(token, name)
        if not isinstance(found, Buffer):
            raise token.fail(f"'{name}' is a variable, not a buffer")
        return found

    def variable(self, token: Token, name: str) -> TirVar:
        """Return the variable of a name.

        Raises:
            ParseError: It is no variable, or not visible.
        """
        found = self._find(token, name)
        if not isinstance(found, TirVar):
            raise token.fail(f"'{name}' is a buffer", hint=f"write {name}[...] for an element")
        return found

    def _find(self, token: Token, name: str) -> Buffer | TirVar:
        if name in self._visible:
            return self._visible[name]
        if name in self._known:
            raise token.fail(f"'{name}' is not visible here: its block has ended")
        near = get_close_matches(name, self._visible, 1)
        hint = f"did you mean '{near[0]}'?" if near else ""
        raise token.fail(f"'{name}' is not defined", hint=hint)


def _alike(a: Buffer | TirVar, b: Buffer | TirVar) -> bool:
    if isinstance(a, Buffer) and isinstance(b, Buffer):
        return (a.shape, a.dtype, a.scope) == (b.shape, b.dtype, b.scope)
    if isinstance(a, TirVar) and isinstance(b, TirVar):
        return (a.dtype, a.lanes) == (b.dtype, b.lanes)
    return False


def listed(reader: LoopReader, end: str, read: Callable[[], None]) -> None:
    """Read items with commas between them, up to and with the mark ``end``."""
    while not reader.skip(end):
        read()
        if not reader.at(end):
            reader.expect(",")


def _listed(names: dict[str, DType]) -> str:
    return f"one of {', '.join(sorted(names))}"
