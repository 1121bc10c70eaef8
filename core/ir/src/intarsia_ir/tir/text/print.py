# SPDX-License-Identifier: Apache-2.0
"""Print kernels and tensor expressions; linear in the number of nodes, shared ones printed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import assert_never

from intarsia_runtime.dtype import DType

from ..buffer import Buffer
from ..expr import (
    INDEX,
    Binary,
    Broadcast,
    CallIntrinsic,
    CallTarget,
    CastExpr,
    FloatImm,
    IfThenElse,
    IntImm,
    Load,
    PrimExpr,
    Ramp,
    Read,
    ReduceLanes,
    Select,
    TirVar,
)
from ..forward import procedures
from ..func import PrimFunc
from ..stmt import Allocate, Barrier, For, IfStmt, Invoke, LetStmt, Seq, Stmt, Store
from ..tensor import ArgReduction, Axis, Reduction, Tensor
from ..walk import children, post_order, tensors
from .words import FUNCTIONS, size_text, spell

LONG = 80  # characters from which an expression that is used again gets a line of its own
LINE = 1000  # characters from which any expression does, so that text stays linear


def print_func(func: PrimFunc) -> str:
    """Return the text of a kernel, behind the procedures that it calls."""
    return print_funcs([func])


def print_funcs(funcs: Sequence[PrimFunc]) -> str:
    """Return the text of kernels, behind the procedures that they call; an empty line between."""
    texts = [_function("procedure", procedure) for procedure in procedures(funcs)]
    return "\n".join([*texts, *(_function("def", func) for func in funcs)])


def _function(word: str, func: PrimFunc) -> str:
    """Return the text of one function, which begins with ``word``."""
    printer = _LoopPrinter()
    params: list[str] = []
    for number, buffer in enumerate(func.params):
        role = ""
        if number >= len(func.params) - func.scratch:
            role = " scratch"
        elif number >= len(func.input_params):
            role = " out"
        params.append(printer.declare(buffer) + role)
    params += [f"{printer.name(size)}: size" for size in func.sizes]
    printer.line(f"{word} {spell(func.name)}({', '.join(params)}):")
    printer.block(func.body)
    return "\n".join(printer.lines) + "\n"


def print_tensor(*roots: Tensor) -> str:
    """Return the text of tensor expressions, producers first, one line each."""
    printer = _LoopPrinter()
    for tensor in tensors(*roots):
        kind = f"{tensor.dtype}[{', '.join(map(size_text, tensor.shape))}]"
        if tensor.body is None:
            printer.line(f"{printer.name(tensor)}: {kind}")
            continue
        indices = ", ".join(printer.name(axis.var) for axis in tensor.axes)
        left = f"{printer.name(tensor)}[{indices}]: {kind}"
        printer.line(f"{left} = {printer.body(tensor.body)}")
    return "\n".join(printer.lines) + "\n"


def print_expr(expr: PrimExpr) -> str:
    """Return the text of one expression; long parts of it stand on lines before it."""
    printer = _LoopPrinter()
    text = printer.expr(expr)
    return "\n".join([*printer.lines, text])


class _LoopPrinter:
    """Collects lines; gives every variable, buffer and tensor one name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0
        self._names: dict[TirVar | Buffer | Tensor, str] = {}
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # by name: the first that may be free behind it
        self._aliases = 0

    def name(self, owner: TirVar | Buffer | Tensor) -> str:
        """Return the one name of a variable, buffer or tensor."""
        if owner not in self._names:
            name, number = owner.name, self._numbers.get(owner.name, 1)
            while name in self._taken:
                name, number = f"{owner.name}_{number}", number + 1
            self._numbers[owner.name] = number
            self._taken.add(name)
            self._names[owner] = spell(name)
        return self._names[owner]

    def declare(self, buffer: Buffer) -> str:
        """Return a buffer with its type."""
        return f"{self.name(buffer)}: {buffer.dtype}[{', '.join(map(size_text, buffer.shape))}]"

    def line(self, text: str) -> None:
        """Add a line at the current depth."""
        self.lines.append("  " * self._depth + text)

    def block(self, stmt: Stmt) -> None:
        """Add a statement one level deeper."""
        self._depth += 1
        self.stmt(stmt)
        self._depth -= 1

    def stmt(self, stmt: Stmt, *, last: bool = True) -> None:
        """Add the lines of a statement; ``last`` says that nothing follows it in its block."""
        self._aliases = 0
        match stmt:
            case For():
                kind = stmt.kind.value if stmt.thread is None else stmt.thread.value
                head = f"{kind}({self.expr(stmt.extent)})"
                self.line(f"for {self.name(stmt.var)} in {head}:")
                self.block(stmt.body)
            case Store():
                place = self._access(stmt.buffer, stmt.indices)
                self.line(f"{place} = {self.expr(stmt.value)}")
            case Seq():
                for number, part in enumerate(stmt.body, 1):
                    self.stmt(part, last=last and number == len(stmt.body))
                if not stmt.body:
                    self.line("pass")
            case IfStmt():
                self.line(f"if {self.expr(stmt.condition)}:")
                self.block(stmt.body)
                if stmt.orelse is not None:
                    self.line("else:")
                    self.block(stmt.orelse)
            case Allocate():
                scope = stmt.buffer.scope.value
                self._rest(f"{self.declare(stmt.buffer)} {scope}", stmt.body, last=last)
            case LetStmt():
                value = self.expr(stmt.value)
                self._rest(f"let {self.name(stmt.var)} = {value}", stmt.body, last=last)
            case Barrier():
                self.line("barrier")
            case Invoke():
                places = [f"&{self.expr(place)}" for place in stmt.places]
                args = ", ".join([*places, *(self.expr(value) for value in stmt.values)])
                self.line(f"{spell(stmt.kind)}::{spell(stmt.function)}({args})")
            case _:
                assert_never(stmt)

    def _rest(self, head: str, body: Stmt, *, last: bool) -> None:
        """Add what holds for ``body``: the rest of the block, or a block of its own."""
        self.line(head if last else f"{head}:")
        if last:
            self.stmt(body)
        else:
            self.block(body)

    def body(self, body: PrimExpr | Reduction | ArgReduction) -> str:
        """Return the text of a tensor's element."""
        match body:
            case Reduction():
                axes = self._axes(body.axes)
                init = self.expr(body.init)
                return f"reduce[{body.combine.value}]({self.expr(body.value)}, {axes}, {init})"
            case ArgReduction():
                extreme = f"arg{'max' if body.largest else 'min'}{'_last' if body.last else ''}"
                return f"{extreme}({self.expr(body.value)}, {self._axes((body.axis,))})"
            case _:
                return self.expr(body)

    def _axes(self, axes: tuple[Axis, ...]) -> str:
        return " ".join(f"{self.name(axis.var)}<{axis.extent}" for axis in axes)

    def _access(self, owner: Buffer | Tensor, indices: tuple[PrimExpr, ...]) -> str:
        return f"{self.name(owner)}[{', '.join(self.expr(index) for index in indices)}]"

    def expr(self, expr: PrimExpr) -> str:
        """Return the text of an expression, behind lines for its long parts."""
        nodes = list(post_order(expr))
        uses = Counter(child for node in nodes for child in children(node))
        known: dict[PrimExpr, str] = {}
        for node in nodes:
            text = self._text(node, [known[child] for child in children(node)])
            if len(text) > (LONG if uses[node] > 1 else LINE) and node is not expr:
                alias = f"${self._aliases}"
                self._aliases += 1
                self.line(f"{alias} = {text}")
                text = alias
            known[node] = text
        return known[expr]

    def _text(self, node: PrimExpr, parts: list[str]) -> str:
        match node:
            case IntImm() | FloatImm():
                return _constant(node)
            case TirVar():
                return self.name(node)
            case Binary():
                if node.op in FUNCTIONS:
                    return f"{node.op.value}({', '.join(parts)})"
                return f"{_grouped(node.a, parts[0])} {node.op.value} {_grouped(node.b, parts[1])}"
            case Select():
                return f"select({', '.join(parts)})"
            case IfThenElse():
                return f"if_then_else({', '.join(parts)})"
            case CastExpr():
                return f"{node.dtype}({parts[0]})"
            case CallIntrinsic():
                return f"{node.intrinsic.value}({', '.join(parts)})"
            case CallTarget():
                function = f"{spell(node.kind)}::{spell(node.function)}"
                return f"{function}:{node.dtype}({', '.join(parts)})"
            case Load():
                return f"{self.name(node.buffer)}[{', '.join(parts)}]"
            case Read():
                return f"{self.name(node.tensor)}[{', '.join(parts)}]"
            case Ramp():
                return f"ramp({parts[0]}, {node.stride}, {node.lanes})"
            case Broadcast():
                return f"broadcast({parts[0]}, {node.lanes})"
            case ReduceLanes():
                return f"reduce_lanes[{node.op.value}]({parts[0]})"
            case _:
                assert_never(node)


def _grouped(node: PrimExpr, text: str) -> str:
    alias = text.startswith("$") and text[1:].isdecimal()
    infix = isinstance(node, Binary) and node.op not in FUNCTIONS
    return f"({text})" if infix and not alias else text


def _constant(node: IntImm | FloatImm) -> str:
    """Return the value, with its type where the value alone does not tell it."""
    plain = node.lanes == 1
    if isinstance(node, FloatImm):
        text, plain = repr(float(node.value)), plain and node.dtype is DType.FLOAT32
    elif node.dtype is DType.BOOL:
        text = "true" if node.value else "false"
    else:
        text, plain = str(node.value), plain and node.dtype is INDEX
    return text if plain else f"{text}:{_vector(node)}"


def _vector(node: IntImm | FloatImm) -> str:
    return str(node.dtype) if node.lanes == 1 else f"{node.dtype}x{node.lanes}"
