# SPDX-License-Identifier: Apache-2.0
"""Print kernels and tensor expressions as text: what tests compare and ``--dump-ir`` writes.

::

    def nn_relu_0(p0: float32[100], out0: float32[100] out):
      for i0 in serial(6):
        for lane in vectorized(16):
          out0[i0 * 16 + lane] = max(p0[i0 * 16 + lane], 0.0)

Names are made unique by a number behind them; a vector is written ``ramp(base, stride, lanes)``,
``broadcast(value, lanes)``.
"""

from __future__ import annotations

from typing import assert_never

from ..buffer import Buffer
from ..expr import (
    INDEX,
    Binary,
    BinaryOp,
    Broadcast,
    CallIntrinsic,
    CallTarget,
    Cast,
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
from ..func import PrimFunc
from ..stmt import Allocate, Barrier, For, If, Invoke, LetStmt, Seq, Stmt, Store
from ..tensor import ArgReduction, Axis, Reduction, Tensor
from ..walk import children, post_order, tensors

_FUNCTIONS = frozenset({BinaryOp.MIN, BinaryOp.MAX, BinaryOp.TRUNC_DIV, BinaryOp.TRUNC_MOD})


def print_func(func: PrimFunc) -> str:
    """Return the text of a kernel."""
    printer = _Printer()
    params: list[str] = []
    for number, buffer in enumerate(func.params):
        role = ""
        if number >= len(func.params) - func.scratch:
            role = " scratch"
        elif number >= len(func.input_params):
            role = " out"
        params.append(printer.declare(buffer) + role)
    printer.line(f"def {func.name}({', '.join(params)}):")
    printer.block(func.body)
    return "\n".join(printer.lines) + "\n"


def print_tensor(*roots: Tensor) -> str:
    """Return the text of tensor expressions, producers first, one line each."""
    printer = _Printer()
    for tensor in tensors(*roots):
        kind = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
        if tensor.body is None:
            printer.line(f"{printer.name(tensor)}: {kind}")
            continue
        indices = ", ".join(printer.name(axis.var) for axis in tensor.axes)
        left = f"{printer.name(tensor)}[{indices}]: {kind}"
        printer.line(f"{left} = {printer.body(tensor.body)}")
    return "\n".join(printer.lines) + "\n"


def print_expr(expr: PrimExpr) -> str:
    """Return the text of one expression."""
    return _Printer().expr(expr)


class _Printer:
    """Collects lines; gives every variable, buffer and tensor one name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0
        self._names: dict[TirVar | Buffer | Tensor, str] = {}
        self._taken: set[str] = set()

    def name(self, owner: TirVar | Buffer | Tensor) -> str:
        """Return the one name of a variable, buffer or tensor."""
        if owner not in self._names:
            name, number = owner.name, 1
            while name in self._taken:
                name, number = f"{owner.name}_{number}", number + 1
            self._taken.add(name)
            self._names[owner] = name
        return self._names[owner]

    def declare(self, buffer: Buffer) -> str:
        """Return a buffer with its type."""
        return f"{self.name(buffer)}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}]"

    def line(self, text: str) -> None:
        """Add a line at the current depth."""
        self.lines.append("  " * self._depth + text)

    def block(self, stmt: Stmt) -> None:
        """Add a statement one level deeper."""
        self._depth += 1
        self.stmt(stmt)
        self._depth -= 1

    def stmt(self, stmt: Stmt) -> None:
        """Add the lines of a statement."""
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
                for part in stmt.body:
                    self.stmt(part)
                if not stmt.body:
                    self.line("pass")
            case If():
                self.line(f"if {self.expr(stmt.condition)}:")
                self.block(stmt.body)
                if stmt.orelse is not None:
                    self.line("else:")
                    self.block(stmt.orelse)
            case Allocate():
                self.line(f"{self.declare(stmt.buffer)} {stmt.buffer.scope.value}")
                self.stmt(stmt.body)
            case LetStmt():
                self.line(f"let {self.name(stmt.var)} = {self.expr(stmt.value)}")
                self.stmt(stmt.body)
            case Barrier():
                self.line("barrier")
            case Invoke():
                places = [f"&{self.expr(place)}" for place in stmt.places]
                args = ", ".join([*places, *(self.expr(value) for value in stmt.values)])
                self.line(f"{stmt.kind}::{stmt.function}({args})")
            case _:
                assert_never(stmt)

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
        """Return the text of an expression; no recursion, a shared node is printed each time."""
        known: dict[PrimExpr, str] = {}
        for node in post_order(expr):
            known[node] = self._text(node, [known[child] for child in children(node)])
        return known[expr]

    def _text(self, node: PrimExpr, parts: list[str]) -> str:
        match node:
            case IntImm():
                return _lanes(_integer(node), node.lanes)
            case FloatImm():
                suffix = "" if node.dtype.value == "float32" else f":{node.dtype}"
                return _lanes(f"{node.value!r}{suffix}", node.lanes)
            case TirVar():
                return self.name(node)
            case Binary():
                if node.op in _FUNCTIONS:
                    return f"{node.op.value}({', '.join(parts)})"
                return f"{_grouped(node.a, parts[0])} {node.op.value} {_grouped(node.b, parts[1])}"
            case Select():
                return f"select({', '.join(parts)})"
            case IfThenElse():
                return f"if_then_else({', '.join(parts)})"
            case Cast():
                return f"{node.dtype}({parts[0]})"
            case CallIntrinsic():
                return f"{node.intrinsic.value}({', '.join(parts)})"
            case CallTarget():
                return f"{node.kind}::{node.function}:{node.dtype}({', '.join(parts)})"
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
    return f"({text})" if isinstance(node, Binary) and node.op not in _FUNCTIONS else text


def _lanes(text: str, lanes: int) -> str:
    return text if lanes == 1 else f"broadcast({text}, {lanes})"


def _integer(node: IntImm) -> str:
    if node.dtype is INDEX:
        return str(node.value)
    if node.dtype.value == "bool":
        return "true" if node.value else "false"
    return f"{node.value}:{node.dtype}"
