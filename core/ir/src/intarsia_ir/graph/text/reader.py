# SPDX-License-Identifier: Apache-2.0
"""Read the small parts of the text: names, types, attribute values and constants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intarsia_runtime.dtype import DType, parse_dtype
from intarsia_runtime.errors import ArtifactError, ParseError
from intarsia_runtime.size_text import parse_size

from ...tokens import Token, unquote
from ..expr import Constant
from ..types import Dim, TensorType, TupleType, Type, variable
from .lexer import tokenize

MAX_NESTING = 64  # parentheses in types and values: deeper ones come from no printer
_DTYPES = frozenset(dtype.value for dtype in DType)
_WORDS: Mapping[str, bool] = {"True": True, "False": False}


class GraphReader:
    """Tokens of a text with a position.

    Args:
        text: What to read.
        params: Arrays of the constants that the text names and does not write.
    """

    def __init__(self, text: str, params: Mapping[str, np.ndarray]) -> None:
        self._tokens = tokenize(text)
        self._at = 0
        self._params = params
        self._named: dict[str, Constant] = {}

    @property
    def token(self) -> Token:
        """The token to read next, comments left out."""
        while self._tokens[self._at].kind == "comment":
            self._at += 1
        return self._tokens[self._at]

    def take(self) -> Token:
        """Read a token, whatever it is."""
        token = self.token
        self._at += token.kind != "end"
        return token

    def take_mark(self, text: str) -> Token:
        """Read the mark or word ``text``.

        Raises:
            ParseError: Something else stands there.
        """
        token = self.token
        if token.text != text or token.kind not in ("mark", "word"):
            raise token.fail(f"expected '{text}', found {token}")
        return self.take()

    def skip(self, text: str) -> bool:
        """Read the mark or word ``text`` if it stands there."""
        if self.token.text != text or self.token.kind not in ("mark", "word"):
            return False
        self.take()
        return True

    def take_kind(self, kind: str, what: str) -> Token:
        """Read a token of a kind; ``what`` says in messages what should be there.

        Raises:
            ParseError: Something else stands there.
        """
        if self.token.kind != kind:
            raise self.token.fail(f"expected {what}, found {self.token}")
        return self.take()

    def comment_behind(self) -> str:
        """Return the comment on the line of the token read last, without its slashes."""
        token = self._tokens[self._at]
        if (
            token.kind != "comment"
            or self._at == 0
            or self._tokens[self._at - 1].line != token.line
        ):
            return ""
        return token.text[2:]

    def integer(self) -> int:
        """Read a whole number.

        Raises:
            ParseError: Something else stands there.
        """
        token = self.take_kind("number", "a whole number")
        try:
            return int(token.text)
        except ValueError:
            raise token.fail(f"expected a whole number, found {token}") from None

    def type(self, depth: int = 0) -> Type:
        """Read ``Tensor[(1, N), float32]`` or a parenthesized tuple of types.

        Raises:
            ParseError: No type stands there.
        """
        token = self.take()
        if token.text == "Tensor" and token.kind == "word":
            self.take_mark("[")
            self.take_mark("(")
            sizes: list[int | Dim] = []
            while not self.skip(")"):
                sizes.append(self._size())
                self._separate(")")
            self.take_mark(",")
            dtype = self.dtype()
            self.take_mark("]")
            return TensorType(tuple(sizes), dtype)
        if token.text != "(" or token.kind != "mark":
            raise token.fail(f"expected a type, found {token}")
        self._limit(token, depth)
        parts: list[Type] = []
        while not self.skip(")"):
            parts.append(self.type(depth + 1))
            self._separate(")")
        return TupleType(tuple(parts))

    def dtype(self) -> DType:
        """Read the name of an element type.

        Raises:
            ParseError: There is no such element type.
        """
        token = self.take_kind("word", "an element type")
        if token.text not in _DTYPES:
            raise token.fail(f"no element type '{token.text}'", hint=f"one of {_listed(_DTYPES)}")
        return DType(token.text)

    def value(self, depth: int = 0) -> object:
        """Read the value of an attribute.

        Raises:
            ParseError: No value stands there.
        """
        if self.token.text == "Tensor" and self.token.kind == "word":
            return self.type()
        token = self.take()
        if token.kind == "number":
            return number(token)
        if token.kind == "string":
            return unquote(token, token.text)
        if token.kind == "size":
            return _parsed_size(token)
        if token.kind == "word" and token.text in _WORDS:
            return _WORDS[token.text]
        if token.kind == "word" and token.text in _DTYPES:
            return DType(token.text)
        if token.text != "(" or token.kind != "mark":
            raise token.fail(f"expected a value, found {token}")
        self._limit(token, depth)
        items: list[object] = []
        while not self.skip(")"):
            items.append(self.value(depth + 1))
            self._separate(")")
        return tuple(items)

    def constant(self) -> Constant:
        """Read what stands behind ``const``: a named weight, or elements and their type.

        Raises:
            ParseError: It is no constant, has no array, or its elements do not fit its type.
        """
        name = ""
        if self.token.kind == "string":
            token = self.take()
            name = unquote(token, token.text)
            if self.skip(":"):
                return self._named_constant(token, name)
        self.take_mark("(")
        start = self.token
        elements = self._elements()
        self.take_mark(",")
        dtype = self.dtype()
        shape = self.value() if self.skip(",") else None
        self.take_mark(")")
        array = _array(start, elements, dtype)
        if shape is not None:
            array = _reshaped(start, array, shape)
        return Constant(array, TensorType(array.shape, dtype), name)

    def _named_constant(self, token: Token, name: str) -> Constant:
        type_ = self.type()
        known = self._named.get(name)
        if known is None:
            if name not in self._params:
                raise token.fail(f"no array is given for constant '{name}'")
            data = self._params[name]
            dtype = parse_dtype(data.dtype.name)
            contiguous = data if data.flags.c_contiguous else data.copy(order="C")
            own = "" if name.startswith("#") else name
            known = Constant(contiguous, TensorType(data.shape, dtype), own)
            self._named[name] = known
        if known.type != type_:
            raise token.fail(f"constant '{name}' is given as {known.type}, not {type_}")
        return known

    def _elements(self) -> object:
        """Read a number or nested lists of numbers, without recursion."""
        stack: list[list[object]] = [[]]
        while True:
            token = self.take()
            if token.text == "[" and token.kind == "mark":
                stack.append([])
                if not self.skip("]"):
                    continue
                self._close(stack)
            elif token.kind == "number":
                stack[-1].append(number(token))
            elif token.text in _WORDS and token.kind == "word":
                stack[-1].append(_WORDS[token.text])
            else:
                raise token.fail(f"expected an element, found {token}")
            while len(stack) > 1 and self.skip("]"):
                self._close(stack)
            if len(stack) == 1:
                return stack[0][0]
            self.take_mark(",")

    def _close(self, stack: list[list[object]]) -> None:
        inner = stack.pop()
        stack[-1].append(inner)

    def _size(self) -> int | Dim:
        token = self.token
        if token.kind == "number":
            return self.integer()
        if token.kind == "size":
            return _parsed_size(self.take())
        if token.kind not in ("word", "string"):
            raise token.fail(f"expected a size, found {token}")
        return variable(unquote(token, self.take().text))

    def _separate(self, end: str) -> None:
        """Read the comma between items; none is needed before ``end``."""
        if self.token.text != end:
            self.take_mark(",")

    def _limit(self, token: Token, depth: int) -> None:
        if depth >= MAX_NESTING:
            raise token.fail(f"more than {MAX_NESTING} nested parentheses")


def number(token: Token) -> int | float:
    """Return the number a token spells: whole if it has neither point nor exponent."""
    try:
        return int(token.text)
    except ValueError:
        return float(token.text)


def _array(token: Token, elements: object, dtype: DType) -> np.ndarray:
    """Return elements as an array.

    Raises:
        ParseError: They are ragged, or do not fit the element type.
    """
    try:
        if dtype is DType.BFLOAT16:
            import ml_dtypes  # only this element type needs it

            return np.array(elements, np.float64).astype(ml_dtypes.bfloat16)
        if dtype.is_float:
            with np.errstate(over="ignore"):
                return np.array(elements, np.float64).astype(dtype.value)
        leaves = np.array(elements, object).reshape(-1)
        if any(type(leaf) is not (bool if dtype is DType.BOOL else int) for leaf in leaves):
            raise token.fail(f"elements do not fit element type {dtype}")
        return np.array(elements, dtype.value)
    except ParseError:
        raise
    except (ValueError, OverflowError, TypeError) as error:
        raise token.fail(f"no array of {dtype}: {error}") from None


def _reshaped(token: Token, array: np.ndarray, shape: object) -> np.ndarray:
    try:
        return array.reshape(shape)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise token.fail(f"{array.size} elements do not have shape {shape}") from None


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _parsed_size(token: Token) -> int | Dim:
    """Return the size that stands in backquotes."""
    try:
        return parse_size(token.text[1:-1])
    except ArtifactError as error:
        raise token.fail(error.message, hint=error.hint) from None
