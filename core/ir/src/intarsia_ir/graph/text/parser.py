# SPDX-License-Identifier: Apache-2.0
"""Parse graph IR: statement by statement, with a stack of open blocks in place of recursion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TypeAlias, TypeGuard, cast

import numpy as np
from msgspec import NODEFAULT, Struct, field

from intarsia_runtime.errors import IntarsiaError

from ...tokens import Token, unquote
from ..expr import (
    Call,
    CallFunction,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    call,
    get_item,
    make_tuple,
)
from ..module import IRModule
from ..op import Op, OpAttrs, attr_defaults
from .attributes import declared_types, fits
from .reader import GraphReader
from .spelling import parse_span, type_text

NO_PARAMS: Mapping[str, np.ndarray] = MappingProxyType({})

SettingReader: TypeAlias = Callable[[str], object]
"""Makes a module-level setting from its text; see :func:`intarsia.driver.text.setting_readers`."""

NO_SETTINGS: Mapping[str, SettingReader] = MappingProxyType({})


def parse_module(
    text: str,
    *,
    operators: Mapping[str, type[Op]],
    params: Mapping[str, np.ndarray] = NO_PARAMS,
    settings: Mapping[str, SettingReader] = NO_SETTINGS,
) -> IRModule:
    """Parse settings and ``def @name(...)`` functions; a single ``fn(...)`` becomes ``main``.

    Args:
        text: What :func:`print_module` prints, or what people write alike.
        operators: Operator classes by name.
        params: Arrays of the constants that the text names.
        settings: Readers of module-level settings, by the name of the setting's class.

    Raises:
        ParseError: The text is wrong; ``where`` has line and column.
    """
    reader = GraphReader(text, params)
    attrs = _settings(reader, settings)
    functions: dict[str, Function] = {}
    while reader.token.kind != "end" or not functions:
        token = reader.token
        name = "main"
        if not reader.skip("fn"):
            reader.take_mark("def")
            found = reader.take_kind("global", "a function name such as @main")
            name = unquote(found, found.text[1:])
        if name in functions:
            raise token.fail(f"a second function '@{name}'")
        functions[name] = _FunctionParser(reader, operators).parse()
    return IRModule(MappingProxyType(functions), MappingProxyType(attrs))


def _settings(reader: GraphReader, readers: Mapping[str, SettingReader]) -> dict[type, object]:
    """Read ``set Name "text";`` in front of the functions."""
    found: dict[type, object] = {}
    while reader.token.text == "set" and reader.token.kind == "word":
        reader.take()
        name = reader.take_kind("word", "the name of a setting")
        value = reader.take_kind("string", "the setting as a string")
        reader.take_mark(";")
        if name.text not in readers:
            near = get_close_matches(name.text, readers, 1)
            known = ", ".join(sorted(readers)) or "none; give settings="
            raise name.fail(
                f"there is no setting '{name.text}'",
                hint=f"did you mean '{near[0]}'?" if near else f"known: {known}",
            )
        try:
            made = readers[name.text](unquote(value, value.text))
        except IntarsiaError as error:
            raise value.fail(error.message, hint=error.hint) from None
        if type(made) in found:
            raise name.fail(f"setting '{name.text}' is given twice")
        found[type(made)] = made
    return found


def parse_function(
    text: str,
    *,
    operators: Mapping[str, type[Op]],
    params: Mapping[str, np.ndarray] = NO_PARAMS,
) -> Function:
    """Parse one ``fn(...)``; arguments and errors as for :func:`parse_module`."""
    reader = GraphReader(text, params)
    reader.take_mark("fn")
    function = _FunctionParser(reader, operators).parse()
    if reader.token.kind != "end":
        raise reader.token.fail(f"expected the end of the text, found {reader.token}")
    return function


class _OpenBlock(Struct):
    """A block that is being read.

    Attributes:
        slot: ``function``, ``then``, ``else`` or ``body``.
        target: Name that its value gets; empty if it is the result of the block around.
        start: Where it began.
        head: Condition of an ``if``, value of a ``let``.
        var: Variable of a ``let``.
        then_branch: Result of the first branch, once it is read.
    """

    slot: str
    target: str
    start: Token
    head: Expr | None = None
    var: Var | None = None
    then_branch: Expr | None = None


class _FunctionParser(Struct):
    """The state of parsing one function."""

    reader: GraphReader
    operators: Mapping[str, type[Op]]
    values: dict[str, Expr] = field(default_factory=dict[str, Expr])
    stack: list[_OpenBlock] = field(default_factory=list[_OpenBlock])
    declared: dict[type[Op], dict[str, object]] = field(
        default_factory=dict[type[Op], dict[str, object]]
    )

    def parse(self) -> Function:
        """Read parameters, type, output names and body."""
        reader = self.reader
        params = self._params()
        reader.take_mark("->")
        declared = reader.type()
        names: tuple[str, ...] = ()
        if reader.skip("as"):
            token = reader.token
            listed = reader.value()
            if not _are_texts(listed):
                raise token.fail('expected output names such as ("y",)')
            names = listed
        start = reader.take_mark("{")
        body = self._body(start)
        if body.type != declared:
            raise start.fail(f"the body is a {type_text(body.type)}, not {type_text(declared)}")
        return Function(params, body, names)

    def _params(self) -> tuple[Var, ...]:
        reader = self.reader
        reader.take_mark("(")
        params: list[Var] = []
        while not reader.skip(")"):
            token = reader.take_kind("ref", "a parameter such as %x")
            reader.take_mark(":")
            params.append(Var(_variable_name(token), reader.type()))
            self._define(token, params[-1])
            if reader.token.text != ")":
                reader.take_mark(",")
        return tuple(params)

    def _body(self, start: Token) -> Expr:
        """Read statements until the function's own brace closes."""
        self.stack.append(_OpenBlock("function", "", start))
        while True:
            result = self._statement()
            while result is not None:
                self.reader.take_mark("}")
                block = self.stack.pop()
                if block.slot == "function":
                    return result
                result = self._close(block, result)

    def _statement(self) -> Expr | None:
        """Read one statement; return the block's result if it was that.

        Where a statement opens a block, the block's statements are read next.
        """
        reader = self.reader
        token = reader.token
        if token.kind != "ref":
            value = self._opened_or_value("", token)
            return None if value is None else self._spanned(value)
        reader.take()
        if not reader.skip("="):
            value = self._reference(token)
            return self._spanned(self._item(value)) if reader.token.text == "[" else value
        if token.text in self.values:
            raise token.fail(f"'{token.text}' is defined twice")
        alias = reader.token
        value = self._opened_or_value(token.text, token)
        if value is not None:
            reader.take_mark(";")
            same = self.values.get(alias.text) is value
            self._define(token, value if same else self._spanned(value))
        return None

    def _opened_or_value(self, target: str, token: Token) -> Expr | None:
        """Open the block of an ``if`` or ``let``, or read any other expression."""
        reader = self.reader
        if reader.skip("if"):
            reader.take_mark("(")
            condition = self._operand()
            reader.take_mark(")")
            reader.take_mark("{")
            self.stack.append(_OpenBlock("then", target, token, condition))
            return None
        if reader.skip("let"):
            name = reader.take_kind("ref", "a variable such as %v")
            reader.take_mark("=")
            value = self._operand()
            reader.take_mark("{")
            var = Var(_variable_name(name), value.type)
            self._define(name, var)
            self.stack.append(_OpenBlock("body", target, token, value, var))
            return None
        return self._expression()

    def _close(self, block: _OpenBlock, result: Expr) -> Expr | None:
        """Take the result of a block; return the value if it is the result of the block around."""
        reader = self.reader
        if block.slot == "then":
            reader.take_mark("else")
            reader.take_mark("{")
            self.stack.append(
                _OpenBlock("else", block.target, block.start, block.head, then_branch=result)
            )
            return None
        value = self._joined(block, result)
        if not block.target:
            return self._spanned(value)
        reader.take_mark(";")
        self.values[block.target] = self._spanned(value)
        return None

    def _joined(self, block: _OpenBlock, result: Expr) -> Expr:
        assert block.head is not None
        if block.var is not None:
            return Let(block.var, block.head, result, result.type)
        assert block.then_branch is not None
        if block.then_branch.type != result.type:
            raise block.start.fail(
                f"the branches are a {type_text(block.then_branch.type)} "
                f"and a {type_text(result.type)}"
            )
        return If(block.head, block.then_branch, result, result.type)

    def _spanned(self, value: Expr) -> Expr:
        """Give an expression just read the span that the comment behind it spells."""
        comment = self.reader.comment_behind()
        span = parse_span(comment) if comment else None
        if span is None or not span.name or isinstance(value, Var):
            return value
        return replace(value, span=span)

    def _define(self, token: Token, value: Expr) -> None:
        if token.text in self.values:
            raise token.fail(f"'{token.text}' is defined twice")
        self.values[token.text] = value

    def _reference(self, token: Token) -> Expr:
        if token.text not in self.values:
            near = get_close_matches(token.text, self.values, 1)
            raise token.fail(
                f"'{token.text}' is not defined", hint=f"did you mean {near[0]}?" if near else ""
            )
        return self.values[token.text]

    def _operand(self) -> Expr:
        token = self.reader.take()
        if token.kind == "ref":
            return self._reference(token)
        if token.kind == "word" and token.text == "const":
            return self.reader.constant()
        raise token.fail(f"expected a value such as %0 or const(1.0, float32), found {token}")

    def _expression(self) -> Expr:
        """Read a call, a tuple, a field, a constant or a reference."""
        reader = self.reader
        token = reader.token
        if token.kind == "global":
            return self._call_function()
        if token.kind == "mark" and token.text == "(":
            reader.take()
            return make_tuple(self._operands())
        if token.kind == "word" and token.text != "const":
            return self._call()
        return self._item(self._operand())

    def _item(self, value: Expr) -> Expr:
        token = self.reader.token
        if not self.reader.skip("["):
            return value
        index = self.reader.integer()
        self.reader.take_mark("]")
        try:
            found = get_item(value, index)
        except IntarsiaError as error:
            raise token.fail(error.message) from None
        # A field of a tuple that was just built stays as it is written.
        written = isinstance(value, Tuple)
        return TupleGetItem(value, index, found.type) if written else found

    def _operands(self) -> list[Expr]:
        found: list[Expr] = []
        while not self.reader.skip(")"):
            found.append(self._operand())
            if self.reader.token.text != ")":
                self.reader.take_mark(",")
        return found

    def _call_function(self) -> CallFunction:
        token = self.reader.take()
        self.reader.take_mark("(")
        args = self._operands()
        self.reader.take_mark(":")
        name = GlobalVar(unquote(token, token.text[1:]))
        return CallFunction(name, tuple(args), self.reader.type())

    def _call(self) -> Call:
        reader = self.reader
        token = reader.take()
        op = self.operators.get(token.text)
        if op is None:
            near = get_close_matches(token.text, self.operators, 1)
            hint = f"did you mean '{near[0]}'?" if near else ""
            raise token.fail(f"no operator '{token.text}'", hint=hint)
        reader.take_mark("(")
        args: list[Expr] = []
        given: dict[str, object] = {}
        while not reader.skip(")"):
            if reader.token.kind == "word" and reader.token.text != "const":
                self._attribute(op, given)
            elif given:
                raise reader.token.fail("operands come before attributes")
            else:
                args.append(self._operand())
            if reader.token.text != ")":
                reader.take_mark(",")
        try:
            return call(op, *args, attrs=_attrs(op, token, given))
        except IntarsiaError as error:
            raise token.fail(error.message, hint=error.hint) from error

    def _attribute(self, op: type[Op], given: dict[str, object]) -> None:
        token = self.reader.take()
        known = op.Attrs.__struct_fields__
        if token.text not in known:
            near = get_close_matches(token.text, known, 1)
            listed = f"it has {', '.join(known)}" if known else "it has none"
            hint = f"did you mean '{near[0]}'?" if near else listed
            raise token.fail(f"operator '{op.name}' has no attribute '{token.text}'", hint=hint)
        if token.text in given:
            raise token.fail(f"attribute '{token.text}' is given twice")
        self.reader.take_mark("=")
        start = self.reader.token
        value = self.reader.value()
        if op not in self.declared:
            self.declared[op] = declared_types(op)
        wanted = self.declared[op].get(token.text)
        if wanted is not None and not fits(value, wanted):
            raise start.fail(f"attribute '{token.text}' of '{op.name}' cannot be {value!r}")
        given[token.text] = value


def _attrs(op: type[Op], token: Token, given: Mapping[str, object]) -> OpAttrs:
    for name, default in attr_defaults(op.Attrs).items():
        if default is NODEFAULT and name not in given:
            raise token.fail(f"operator '{op.name}' needs attribute '{name}'")
    return op.Attrs(**given)


def _variable_name(token: Token) -> str:
    """Return the name in a reference such as ``%x``, ``%"odd name"`` or ``%x#2``."""
    text = token.text[1:]
    if text.startswith('"'):
        return unquote(token, text[: text.rindex('"') + 1])
    return text.partition("#")[0]


def _are_texts(value: object) -> TypeGuard[tuple[str, ...]]:
    return isinstance(value, tuple) and all(
        isinstance(item, str) for item in cast("tuple[object, ...]", value)
    )
