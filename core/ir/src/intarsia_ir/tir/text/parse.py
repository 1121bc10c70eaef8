# SPDX-License-Identifier: Apache-2.0
"""Parse kernels: what :func:`~intarsia_ir.tir.text.print.print_func` prints or people write."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from intarsia_runtime.errors import ParseError

from ...tokens import Token
from ..buffer import Buffer, MemoryScope
from ..expr import Load, PrimExpr, TirVar, size_variable
from ..forward import KERNEL
from ..func import PrimFunc
from ..stmt import (
    Allocate,
    Barrier,
    For,
    ForKind,
    IfStmt,
    Invoke,
    LetStmt,
    Seq,
    Stmt,
    Store,
    Thread,
)
from .expressions import read_expr
from .reader import LoopReader, VisibleNames, listed

MAX_NESTING = 100  # blocks in blocks: deeper ones come from no kernel
_KINDS = {kind.value: kind for kind in ForKind if kind is not ForKind.BOUND}
_THREADS = {thread.value: thread for thread in Thread}
_SCOPES = {scope.value: scope for scope in MemoryScope if scope is not MemoryScope.GLOBAL}
_ROLES = ("in", "out", "scratch")


def parse_func(text: str) -> PrimFunc:
    """Parse one kernel.

    Its parts are typed as they are read; :func:`~intarsia_ir.tir.verify.verify_func` checks more.

    Raises:
        ParseError: The text is wrong; ``where`` has line and column.
    """
    funcs = parse_funcs(text)
    if len(funcs) != 1:
        raise ParseError(f"expected one kernel, found {len(funcs)}")
    return funcs[0]


def parse_funcs(text: str) -> tuple[PrimFunc, ...]:
    """Parse the kernels of a text, one after the other; none in an empty one.

    Procedures that stand before them are what they call.

    Raises:
        ParseError: The text is wrong; ``where`` has line and column.
    """
    reader = LoopReader(text)
    found: list[PrimFunc] = []
    procedures: dict[str, PrimFunc] = {}
    while reader.token.kind != "end":
        token = reader.token
        parser = _Parser(reader, procedures)
        if not reader.skip("procedure"):
            reader.expect("def")
            found.append(parser.func(token))
            continue
        procedure = parser.func(token)
        if procedure.name in procedures:
            raise token.fail(f"the procedure '{procedure.name}' is defined twice")
        procedures[procedure.name] = procedure
    return tuple(found)


class _Declaration(Struct):
    """A declaration that holds for the rest of its block.

    Attributes:
        token: What errors point at.
        owner: The buffer or variable.
        value: What a variable stands for.
    """

    token: Token
    owner: Buffer | TirVar
    value: PrimExpr | None = None

    def around(self, body: Stmt) -> Stmt:
        """Return the declaration with what it holds for."""
        if isinstance(self.owner, Buffer):
            return Allocate(self.owner, body)
        assert self.value is not None
        return LetStmt(self.owner, self.value, body)


class _Parser:
    """Reads one function; calls itself once for each block in a block."""

    def __init__(self, reader: LoopReader, procedures: Mapping[str, PrimFunc]) -> None:
        self._reader = reader
        self._procedures = procedures
        self._names = VisibleNames()
        self._depth = 0

    def func(self, start: Token) -> PrimFunc:
        """Read a function from its name on, which stands behind the word ``start``."""
        reader = self._reader
        name = reader.name(f"a {'kernel' if start.text == 'def' else start.text}")
        params: list[Buffer] = []
        roles: list[int] = []
        sizes: list[TirVar] = []

        def param() -> None:
            token = reader.token
            name = reader.name("a buffer")
            reader.expect(":")
            if reader.skip("size"):
                sizes.append(self._names.define(token, size_variable(name)))
                return
            if sizes:
                raise token.fail("sizes stand behind the buffers")
            params.append(self._names.define(token, self._array(name, MemoryScope.GLOBAL)))
            role = reader.take().text if reader.at("out") or reader.at("scratch") else "in"
            roles.append(_ROLES.index(role))
            if roles != sorted(roles):
                raise token.fail("parameters are inputs, then outputs, then scratch buffers")

        reader.expect("(")
        listed(reader, ")", param)
        reader.expect(":")
        body = self._block(start)
        return PrimFunc(name, tuple(params), roles.count(1), body, roles.count(2), tuple(sizes))

    def _buffer(self, scope: MemoryScope | None) -> Buffer:
        """Read ``name: float32[2, 3]``, and a scope behind it if none is given."""
        name = self._reader.name("a buffer")
        self._reader.expect(":")
        return self._array(name, scope)

    def _array(self, name: str, scope: MemoryScope | None) -> Buffer:
        """Read what stands behind the name of a buffer."""
        reader = self._reader
        dtype = reader.dtype()
        sizes: list[int] = []

        def size() -> None:
            sizes.append(reader.size())

        reader.expect("[")
        listed(reader, "]", size)
        if scope is None:
            token = reader.take()
            if token.text not in _SCOPES:
                raise token.fail(f"expected {', '.join(sorted(_SCOPES))}, found {token}")
            scope = _SCOPES[token.text]
        return Buffer(name, tuple(sizes), dtype, scope)

    def _block(self, head: Token) -> Stmt:
        """Read the statements that stand deeper than the line of ``head``."""
        reader = self._reader
        reader.end_line()
        column = reader.token.column
        if reader.token.kind == "end" or column <= head.column:
            raise reader.token.fail("expected a statement that stands deeper than the line before")
        if self._depth >= MAX_NESTING:
            raise reader.token.fail(f"more than {MAX_NESTING} blocks in blocks")
        self._depth += 1
        items: list[Stmt | _Declaration] = []
        while reader.token.kind != "end" and reader.token.column == column:
            items.append(self._statement())
            reader.end_line()
        token = reader.token
        if token.kind != "end" and token.column > column:
            raise token.fail("this line is aligned with no block")
        self._depth -= 1
        return self._folded(items)

    def _folded(self, items: list[Stmt | _Declaration]) -> Stmt:
        """Return the statements of a block, each declaration around what follows it."""
        behind: list[Stmt] = []
        for item in reversed(items):
            if not isinstance(item, _Declaration):
                behind.append(item)
                continue
            if not behind:
                name = item.owner.name
                raise item.token.fail(f"no statement follows '{name}'", hint="write 'pass' there")
            behind = [item.around(_sequence(behind))]
            self._names.hide(item.owner.name)
        return _sequence(behind)

    def _statement(self) -> Stmt | _Declaration:
        reader = self._reader
        self._names.aliases.clear()
        while reader.token.kind == "alias":
            alias = reader.take()
            reader.expect("=")
            self._names.aliases[alias.text] = read_expr(reader, self._names)
            reader.end_line()
        token = reader.token
        if reader.skip("for"):
            return self._for(token)
        if reader.skip("if"):
            return self._if(token)
        if reader.skip("let"):
            return self._let(token)
        if reader.skip("pass"):
            return Seq(())
        if reader.skip("barrier"):
            return Barrier()
        return self._named(token)

    def _for(self, token: Token) -> Stmt:
        reader = self._reader
        place = reader.token
        name = reader.name("a loop variable")
        reader.expect("in")
        word = reader.take()
        thread = _THREADS.get(word.text)
        kind = ForKind.BOUND if thread is not None else _KINDS.get(word.text)
        if kind is None:
            known = ", ".join([*_KINDS, *_THREADS])
            raise word.fail(f"expected how the loop runs, found {word}", hint=f"one of {known}")
        reader.expect("(")
        extent = read_expr(reader, self._names)
        reader.expect(")")
        reader.expect(":")
        var = self._names.define(place, TirVar(name))
        body = self._block(token)
        self._names.hide(name)
        return For(var, extent, kind, body, thread)

    def _if(self, token: Token) -> Stmt:
        reader = self._reader
        condition = read_expr(reader, self._names)
        reader.expect(":")
        body = self._block(token)
        if not reader.at("else") or reader.token.column != token.column:
            return IfStmt(condition, body)
        head = reader.take()
        reader.expect(":")
        return IfStmt(condition, body, self._block(head))

    def _let(self, token: Token) -> Stmt | _Declaration:
        reader = self._reader
        place = reader.token
        name = reader.name("a variable")
        reader.expect("=")
        value = read_expr(reader, self._names)
        var = self._names.define(place, TirVar(name, value.dtype, value.lanes))
        return self._declared(token, _Declaration(place, var, value))

    def _named(self, token: Token) -> Stmt | _Declaration:
        """Read what begins with a name: a store, a declaration or the call of a procedure."""
        reader = self._reader
        name = reader.name("a buffer, or a statement")
        if reader.skip("::"):
            return self._invoke(name)
        if reader.at(":"):
            reader.back()
            buffer = self._names.define(token, self._buffer(None))
            return self._declared(token, _Declaration(token, buffer))
        reader.back()
        place = read_expr(reader, self._names)
        if not isinstance(place, Load):
            raise token.fail(
                "a statement begins with an element of a buffer, or a word such as for"
            )
        equals = reader.expect("=")
        value = read_expr(reader, self._names)
        if (value.dtype, value.lanes) != (place.dtype, place.lanes):
            raise equals.fail(
                f"{value.dtype} of {value.lanes} lanes goes into {place.dtype} of {place.lanes}"
            )
        return Store(place.buffer, place.indices, value)

    def _declared(self, head: Token, made: _Declaration) -> Stmt | _Declaration:
        """Return a declaration for the rest of its block, or one with a block of its own."""
        if not self._reader.skip(":"):
            return made
        body = self._block(head)
        self._names.hide(made.owner.name)
        return made.around(body)

    def _invoke(self, kind: str) -> Stmt:
        reader = self._reader
        function = reader.name("a procedure")
        places: list[Load] = []
        values: list[PrimExpr] = []

        def operand() -> None:
            token = reader.token
            if not reader.skip("&"):
                values.append(read_expr(reader, self._names))
                return
            place = read_expr(reader, self._names)
            if not isinstance(place, Load) or values:
                raise token.fail("places are elements of buffers, and come before values")
            places.append(place)

        reader.expect("(")
        listed(reader, ")", operand)
        callee = self._procedures.get(function) if kind == KERNEL else None
        return Invoke(kind, function, tuple(places), tuple(values), callee)


def _sequence(backwards: list[Stmt]) -> Stmt:
    return backwards[0] if len(backwards) == 1 else Seq(tuple(reversed(backwards)))
