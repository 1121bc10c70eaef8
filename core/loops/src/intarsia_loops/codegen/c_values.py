# SPDX-License-Identifier: Apache-2.0
"""Expressions of the loop IR in the C family, with what the loop IR defines and C does not."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import assert_never

from msgspec import Struct, field

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import (
    COMPARISONS,
    INDEX,
    Binary,
    BinaryOp,
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
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.walk import children, post_order
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError, VerifyError

from .c_functions import Functions
from .c_operations import (
    EXTREMES,
    HALVES,
    PLAIN,
    apply_intrinsic,
    combine,
    convert,
    function_of,
    narrowed,
)
from .lanes import lane_of
from .names import Names, bare
from .spelling import Spelling, float_literal, int_literal

LONGEST = 160
"""Characters after which an expression goes into a variable of its own."""

_POSITIONS = PLAIN | EXTREMES | {BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD}


class RoundedByte(Struct, frozen=True):
    """A byte that is the whole number nearest to a value, and a zero point on top.

    Attributes:
        value: The value, a float32.
        zero: The zero point.
        may_be_nan: Whether the value may be NaN; a sum of integers times a number is not.
    """

    value: PrimExpr
    zero: int
    may_be_nan: bool


def rounded_byte(expr: CastExpr) -> RoundedByte | None:
    """Return what a cast rounds to a byte; ``None`` if it rounds nothing."""
    value, zero = expr.value, 0
    if expr.dtype not in (DType.INT8, DType.UINT8) or value.dtype is not DType.FLOAT32:
        return None
    if isinstance(value, Binary) and value.op is BinaryOp.ADD:
        number = value.b.value if isinstance(value.b, CastExpr) else value.b
        if not isinstance(number, IntImm | FloatImm) or number.value != int(number.value):
            return None
        value, zero = value.a, int(number.value)
    if not isinstance(value, CallIntrinsic) or value.intrinsic is not Intrinsic.ROUND:
        return None
    (inner,) = value.args
    if abs(zero) > 255:
        return None
    scaled = inner.a if isinstance(inner, Binary) and inner.op is BinaryOp.MUL else None
    integer = isinstance(scaled, CastExpr) and scaled.value.dtype.is_integer
    return RoundedByte(inner, zero, may_be_nan=not integer)


class ExpressionWriter(Struct):
    """Writes expressions of one function.

    Attributes:
        functions: Collects the small functions it calls.
        names: Names taken in the function.
        lines: Statements written so far.
        indent: In front of the next statement.
        buffers: Pointer of each buffer in scope.
        variables: Name of each variable in scope.
        counters: Variables that hold positions: loop variables, and sums of them.
        natural: Variables that are never negative.
        used: Buffers and variables that something read or wrote.
    """

    functions: Functions
    names: Names
    lines: list[str] = field(default_factory=list[str])
    indent: str = "    "
    buffers: dict[Buffer, str] = field(default_factory=dict[Buffer, str])
    variables: dict[TirVar, str] = field(default_factory=dict[TirVar, str])
    counters: set[TirVar] = field(default_factory=set[TirVar])
    natural: set[TirVar] = field(default_factory=set[TirVar])
    used: set[Buffer | TirVar] = field(default_factory=set[Buffer | TirVar])
    _uses: dict[PrimExpr, int] = field(default_factory=dict[PrimExpr, int])
    _known: list[dict[tuple[PrimExpr, bool], str]] = field(
        default_factory=list[dict[tuple[PrimExpr, bool], str]]
    )
    _pure: dict[PrimExpr, bool] = field(default_factory=dict[PrimExpr, bool])

    @property
    def spelling(self) -> Spelling:
        """Of the language."""
        return self.functions.spelling

    def write(self, line: str) -> None:
        """Add a statement."""
        self.lines.append(f"{self.indent}{line}")

    @contextmanager
    def statement(self, *roots: PrimExpr) -> Generator[None]:
        """Share what occurs twice in the expressions of one statement."""
        self._uses = _count_uses(roots)
        self._known.append({})
        yield
        self._known.pop()

    @contextmanager
    def block(self) -> Generator[None]:
        """Indent; what is known inside is forgotten behind."""
        self.indent += "    "
        self._known.append({})
        yield
        self._known.pop()
        self.indent = self.indent[4:]

    def type_of(self, expr: PrimExpr) -> str:
        """Return the type of a variable that holds an expression."""
        return self.spelling.values[expr.dtype]

    def value(self, expr: PrimExpr) -> str:
        """Return an operand with the value of a scalar expression, of its register type.

        Raises:
            VerifyError: The expression is a vector, or reads what is not in scope.
            UnsupportedError: The language has no operation for it.
        """
        match expr:
            case IntImm():
                return int_literal(expr.value, expr.dtype)
            case FloatImm():
                return float_literal(expr.value, expr.dtype)
            case TirVar():
                name = self.variable(expr)
                return f"({self.type_of(expr)}){name}" if expr in self.counters else name
            case _:
                return self._shared(expr, position=False)

    def variable(self, var: TirVar) -> str:
        """Return the name of a variable.

        Raises:
            VerifyError: It is not bound here.
        """
        if var not in self.variables:
            raise VerifyError(f"variable '{var.name}' is used outside its loop")
        self.used.add(var)
        return self.variables[var]

    def position(self, expr: PrimExpr) -> str:
        """Return an operand of the index type: what an access or a loop counts with."""
        match expr:
            case IntImm():
                return str(expr.value) if expr.value >= 0 else f"({expr.value})"
            case TirVar() if expr in self.counters:
                return self.variable(expr)
            case Binary() if expr.op in PLAIN or self.is_position(expr):
                return self._shared(expr, position=True)
            case _:
                return f"({self.spelling.index}){self.value(expr)}"

    def is_position(self, expr: PrimExpr) -> bool:
        """Whether an expression is made of loop variables and constants alone."""
        known = self._pure.get(expr)
        if known is None:
            match expr:
                case IntImm():
                    known = expr.dtype is INDEX
                case TirVar():
                    known = expr in self.counters
                case Binary():
                    known = expr.op in _POSITIONS and all(map(self.is_position, children(expr)))
                case _:
                    known = False
            self._pure[expr] = known
        return known

    def is_natural(self, expr: PrimExpr) -> bool:
        """Whether a position is certainly not negative."""
        match expr:
            case IntImm():
                return expr.value >= 0
            case TirVar():
                return expr in self.natural
            case Binary(op=BinaryOp.ADD | BinaryOp.MUL | BinaryOp.FLOOR_DIV | BinaryOp.MIN):
                return self.is_natural(expr.a) and self.is_natural(expr.b)
            case Binary(op=BinaryOp.FLOOR_MOD):
                return self.is_natural(expr.b)
            case Binary(op=BinaryOp.MAX):
                return self.is_natural(expr.a) or self.is_natural(expr.b)
            case _:
                return False

    def element(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> str:
        """Return an element of a buffer as C names it.

        Raises:
            VerifyError: The buffer is not in scope, or the rank is wrong.
        """
        if buffer not in self.buffers:
            raise VerifyError(f"buffer '{buffer.name}' is used outside its allocation")
        if len(indices) != len(buffer.shape):
            raise VerifyError(
                f"{len(indices)} indices for '{buffer.name}' of rank {len(buffer.shape)}"
            )
        self.used.add(buffer)
        terms: list[str] = []
        stride = 1
        for at, size in zip(reversed(indices), reversed(buffer.shape), strict=True):
            if not (isinstance(at, IntImm) and at.value == 0):
                text = self.position(at)
                terms.append(text if stride == 1 else f"{text} * {stride}")
            stride *= size
        return f"{self.buffers[buffer]}[{bare(' + '.join(reversed(terms))) or '0'}]"

    def stored(self, buffer: Buffer, value: PrimExpr) -> str:
        """Return a value as an element of a buffer holds it."""
        if isinstance(value, Load) and value.dtype is buffer.dtype and value.dtype in HALVES:
            return self.element(value.buffer, value.indices)
        text = self.value(value)
        if buffer.dtype in HALVES:
            return f"{self.functions.store_float16(buffer.dtype)}({text})"
        kind = self.spelling.memory[buffer.dtype]
        same = kind == self.type_of(value) and buffer.dtype.bits >= 32
        return text if same else f"({kind}){text}"

    def _shared(self, expr: PrimExpr, *, position: bool) -> str:
        key = (expr, position)
        for known in reversed(self._known):
            if key in known:
                return known[key]
        text = self._sum(expr) if position and isinstance(expr, Binary) else self._operation(expr)
        if self._uses.get(expr, 1) > 1 or len(text) > LONGEST:
            kind = self.spelling.index if position else self.type_of(expr)
            name = self.names.fresh("at" if position else "t")
            self.write(f"const {kind} {name} = {bare(text)};")
            text = name
        self._known[-1][key] = text
        return text

    def _sum(self, expr: Binary) -> str:
        """A position: nothing in it overflows, since it is the place of something."""
        a, b = expr.a, expr.b
        if expr.op in EXTREMES:
            function = self.functions.extreme_index(expr.op)
            return f"{function}({self.position(a)}, {self.position(b)})"
        if expr.op in PLAIN:
            return f"({self.position(a)} {expr.op.value} {self.position(b)})"
        is_open = self.spelling.size and not isinstance(b, IntImm)
        if is_open and self.is_natural(a) and self.is_natural(b):
            function = self.functions.open_index(expr.op)
            return f"{function}({self.position(a)}, {self.position(b)})"
        if not isinstance(b, IntImm) or b.value <= 0:
            return f"({self.spelling.index}){self.value(expr)}"
        if self.is_natural(a):
            sign = "/" if expr.op is BinaryOp.FLOOR_DIV else "%"
            return f"({self.position(a)} {sign} {self.position(b)})"
        function = self.functions.floor_index(expr.op)
        return f"{function}({self.position(a)}, {self.position(b)})"

    def _operation(self, expr: PrimExpr) -> str:
        if expr.lanes > 1:
            raise VerifyError("a vector stands where a scalar is wanted")
        match expr:
            case Binary():
                return self._binary_chain(expr)
            case Select():
                self._load_first(expr.a, expr.b)
                condition, a, b = (self.value(part) for part in children(expr))
                return narrowed(self.functions, f"({condition} ? {a} : {b})", expr.dtype)
            case IfThenElse():
                return self._branch(expr)
            case CastExpr():
                byte = rounded_byte(expr) if self.spelling.for_m_profile else None
                if byte is not None:
                    return self._rounded_byte(byte, expr.dtype)
                return convert(self.functions, self.value(expr.value), expr.value.dtype, expr.dtype)
            case CallIntrinsic():
                args = [self.value(arg) for arg in expr.args]
                return apply_intrinsic(self.functions, expr.intrinsic, expr.args[0].dtype, args)
            case CallTarget():
                return self._target_call(expr)
            case Load():
                text = self.element(expr.buffer, expr.indices)
                if expr.dtype in HALVES:
                    return f"{self.functions.load_float16(expr.dtype)}({text})"
                return text
            case ReduceLanes():
                return self._reduce(expr)
            case Read():
                raise VerifyError(f"tensor '{expr.tensor.name}' was never lowered to a buffer")
            case Ramp() | Broadcast() | IntImm() | FloatImm() | TirVar():
                return self.value(expr)
            case _:
                assert_never(expr)

    def _rounded_byte(self, byte: RoundedByte, target: DType) -> str:
        name = function_of(self.functions, Intrinsic.ROUND, DType.FLOAT32)
        function = self.functions.round_to_byte(target, name, may_be_nan=byte.may_be_nan)
        return f"{function}({self.value(byte.value)}, {byte.zero})"

    def _load_first(self, *sides: PrimExpr) -> None:
        """Give loads of sides that are both evaluated a variable: no loop over lanes has vectors
        where a compiler must not load unless a condition holds.
        """
        nodes = list(post_order(*sides))
        if not any(isinstance(node, IfThenElse) for node in nodes):
            self._uses.update((node, 2) for node in nodes if isinstance(node, Load))

    def _binary_chain(self, expr: Binary) -> str:
        """Walk down the left side without recursion: sums of a thousand terms lean left."""
        spine = [expr]
        while isinstance(spine[-1].a, Binary) and self._uses.get(spine[-1].a, 1) == 1:
            if spine[-1].op in COMPARISONS:
                break
            spine.append(spine[-1].a)
        text = ""
        for node in reversed(spine):
            text = self._binary(node, text)
            if node is not expr and len(text) > LONGEST:
                name = self.names.fresh("t")
                self.write(f"const {self.type_of(node)} {name} = {bare(text)};")
                text = name
        return text

    def _binary(self, expr: Binary, left: str) -> str:
        """Return ``a op b``; ``left`` is the text of ``a`` where it is known."""
        op, dtype = expr.op, expr.a.dtype
        if op in COMPARISONS and self.is_position(expr.a) and self.is_position(expr.b):
            return f"({self.position(expr.a)} {op.value} {self.position(expr.b)})"
        zero = isinstance(expr.a, FloatImm) and expr.a.value == 0.0
        if op is BinaryOp.SUB and dtype.is_float and zero:
            return f"(-{self.value(expr.b)})"
        a, b = left or self.value(expr.a), self.value(expr.b)
        if op in EXTREMES and isinstance(expr.b, FloatImm) and expr.b.value == expr.b.value:
            a, b = b, a  # a number on the left needs no second look for NaN
        return combine(self.functions, op, dtype, a, b)

    def _branch(self, expr: IfThenElse) -> str:
        condition = self.value(expr.condition)
        sides: list[tuple[str, list[str]]] = []
        outside = self.lines
        for side in (expr.a, expr.b):
            self.lines = []
            with self.block():
                sides.append((self.value(side), self.lines))
        self.lines = outside
        (a, before_a), (b, before_b) = sides
        if not before_a and not before_b:
            return narrowed(self.functions, f"({condition} ? {a} : {b})", expr.dtype)
        name = self.names.fresh("chosen")
        self.write(f"{self.type_of(expr)} {name};")
        self.write(f"if ({condition}) {{")
        inside = f"{self.indent}    {name} ="
        self.lines += [*before_a, f"{inside} {bare(a)};", f"{self.indent}}} else {{"]
        self.lines += [*before_b, f"{inside} {bare(b)};", f"{self.indent}}}"]
        return name

    def _reduce(self, expr: ReduceLanes) -> str:
        lane, vector = TirVar("lane"), expr.value
        name, counter = self.names.fresh("all"), self.names.fresh("lane")
        first = self.value(lane_of(vector, IntImm(0)))
        self.write(f"{self.type_of(expr)} {name} = {first};")
        self.variables[lane] = counter
        self.counters.add(lane)
        self.natural.add(lane)
        index = self.spelling.index
        self.write(f"for ({index} {counter} = 1; {counter} < {vector.lanes}; ++{counter}) {{")
        with self.block():
            item = self.value(lane_of(vector, lane))
            self.write(
                f"{name} = {bare(combine(self.functions, expr.op, expr.dtype, name, item))};"
            )
        self.write("}")
        return name

    def check_function(self, kind: str, function: str) -> None:
        """Check that a function called by name is one of the language.

        Raises:
            UnsupportedError: It is not.
        """
        known = self.spelling.functions
        if kind != self.spelling.kind or function not in known:
            raise UnsupportedError(
                f"the code generator '{self.spelling.kind}' has no function '{function}' "
                f"of '{kind}'",
                hint=f"one of {', '.join(sorted(known))}" if known else "",
            )

    def _target_call(self, call: CallTarget) -> str:
        self.check_function(call.kind, call.function)
        return f"{call.function}({', '.join(self.value(arg) for arg in call.args)})"


def _count_uses(roots: tuple[PrimExpr, ...]) -> dict[PrimExpr, int]:
    uses: dict[PrimExpr, int] = {}
    for node in post_order(*roots):
        for part in children(node):
            uses[part] = uses.get(part, 0) + 1
    return uses
