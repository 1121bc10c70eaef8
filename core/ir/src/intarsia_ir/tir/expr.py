# SPDX-License-Identifier: Apache-2.0
"""Expressions of the loop IR: typed scalars and vectors over loop variables and buffers.

``dtype`` is the element type and ``lanes`` the vector width (1 for a scalar). Python operators
build expressions: ``a + b``, ``a < b``; integers and floats on one side are converted to the type
of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, TypeAlias

from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import VerifyError
from intarsia_runtime.size import Dim, Size, SizeOp

from .intrinsic import Intrinsic

if TYPE_CHECKING:
    from .buffer import Buffer
    from .tensor import Tensor

INDEX = DType.INT64
"""Element type of every loop variable and index."""


class BinaryOp(Enum):
    """A binary operator; the value is its spelling in text.

    Integer arithmetic wraps. ``FLOOR_DIV`` and ``FLOOR_MOD`` round towards minus infinity and
    ``TRUNC_DIV``/``TRUNC_MOD`` towards zero; for integers, division by zero gives 0 and
    ``INT_MIN / -1`` wraps, so no input can trap. ``MIN``/``MAX`` of floats propagate NaN as NumPy
    does.
    """

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"  # floats only
    FLOOR_DIV = "//"
    FLOOR_MOD = "%"
    TRUNC_DIV = "truncdiv"
    TRUNC_MOD = "truncmod"
    MIN = "min"
    MAX = "max"
    AND = "&"
    OR = "|"
    XOR = "^"
    SHL = "<<"
    SHR = ">>"
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    # Members are compared by identity; Enum's own hash takes ten times as long.
    __hash__ = object.__hash__


COMPARISONS = frozenset(
    {BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE}
)


class Arithmetic:
    """Python operators for expressions; a mixin of every node."""

    __slots__ = ()

    def __add__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.ADD, self, other)

    def __radd__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.ADD, other, self)

    def __sub__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.SUB, self, other)

    def __rsub__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.SUB, other, self)

    def __mul__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.MUL, self, other)

    def __rmul__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.MUL, other, self)

    def __truediv__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.DIV, self, other)

    def __rtruediv__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.DIV, other, self)

    def __floordiv__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.FLOOR_DIV, self, other)

    def __mod__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.FLOOR_MOD, self, other)

    def __lt__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.LT, self, other)

    def __le__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.LE, self, other)

    def __gt__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.GT, self, other)

    def __ge__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.GE, self, other)

    def __and__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.AND, self, other)

    def __or__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.OR, self, other)

    def __xor__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.XOR, self, other)

    def __rshift__(self, other: Operand) -> PrimExpr:
        return binary(BinaryOp.SHR, self, other)

    def __neg__(self) -> PrimExpr:
        return binary(BinaryOp.SUB, 0, self)


@dataclass(frozen=True, slots=True, eq=False)
class IntImm(Arithmetic):
    """An integer or bool constant."""

    value: int
    dtype: DType = INDEX
    lanes: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class FloatImm(Arithmetic):
    """A floating-point constant."""

    value: float
    dtype: DType = DType.FLOAT32
    lanes: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class TirVar(Arithmetic):
    """A loop variable or scalar parameter; compared by identity."""

    name: str
    dtype: DType = INDEX
    lanes: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Arithmetic):
    """``a op b``; both operands have the same element type and lanes; comparisons give bool."""

    op: BinaryOp
    a: PrimExpr
    b: PrimExpr
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class Select(Arithmetic):
    """``condition ? a : b``; both sides may be evaluated, so neither may load out of bounds."""

    condition: PrimExpr
    a: PrimExpr
    b: PrimExpr
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class IfThenElse(Arithmetic):
    """``condition ? a : b`` with only the chosen side evaluated; guards loads at padded edges."""

    condition: PrimExpr
    a: PrimExpr
    b: PrimExpr
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class CastExpr(Arithmetic):
    """``value`` as another element type.

    Float to integer truncates and saturates, NaN gives 0; bool is ``value != 0``.
    """

    value: PrimExpr
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class CallIntrinsic(Arithmetic):
    """A machine function of scalars, applied per lane."""

    intrinsic: Intrinsic
    args: tuple[PrimExpr, ...]
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class CallTarget(Arithmetic):
    """A function of one code generator by its own name, e.g. ``llvm.fma`` of the LLVM backend."""

    kind: str
    function: str
    args: tuple[PrimExpr, ...]
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class Load(Arithmetic):
    """An element of a buffer; with a :class:`Ramp` as the last index, ``lanes`` elements."""

    buffer: Buffer
    indices: tuple[PrimExpr, ...]
    dtype: DType
    lanes: int


@dataclass(frozen=True, slots=True, eq=False)
class Read(Arithmetic):
    """An element of a tensor expression; ``intarsia_loops`` inlines it or makes a :class:`Load`."""

    tensor: Tensor
    indices: tuple[PrimExpr, ...]
    dtype: DType
    lanes: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Ramp(Arithmetic):
    """The vector ``base, base + stride, ...`` of ``lanes`` elements."""

    base: PrimExpr
    stride: int
    lanes: int
    dtype: DType = INDEX


@dataclass(frozen=True, slots=True, eq=False)
class Broadcast(Arithmetic):
    """A scalar in every lane."""

    value: PrimExpr
    lanes: int
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class ReduceLanes(Arithmetic):
    """Combine the lanes of a vector into a scalar with ``op`` (ADD, MUL, MIN, MAX, AND, OR)."""

    op: BinaryOp
    value: PrimExpr
    dtype: DType
    lanes: int = 1


PrimExpr: TypeAlias = (
    IntImm
    | FloatImm
    | TirVar
    | Binary
    | Select
    | IfThenElse
    | CastExpr
    | CallIntrinsic
    | CallTarget
    | Load
    | Read
    | Ramp
    | Broadcast
    | ReduceLanes
)
Operand: TypeAlias = "Arithmetic | int | float"


def const(value: float, dtype: DType) -> PrimExpr:
    """Return a constant of element type ``dtype``; of a size that only the run knows, its value."""
    if isinstance(value, Dim):
        return cast(_size_expr(value), dtype)
    return FloatImm(float(value), dtype) if dtype.is_float else IntImm(int(value), dtype)


def index(value: PrimExpr | Size) -> PrimExpr:
    """Return an index expression from a size or an expression."""
    if isinstance(value, int):
        return IntImm(value)
    return _size_expr(value) if isinstance(value, Dim) else value


@cache
def size_variable(name: str) -> TirVar:
    """Return the one variable that stands for a size variable in every kernel."""
    return TirVar(name)


@lru_cache(maxsize=4096)
def _size_expr(size: Dim) -> PrimExpr:
    """Return the expression that computes a size; one object for each size, which passes share."""
    total: PrimExpr = IntImm(0)
    for atoms, factor in size.terms:
        term: PrimExpr | None = None
        for atom in atoms:
            part = size_variable(atom) if isinstance(atom, str) else _size_operation(atom)
            term = part if term is None else term * part
        if term is None:
            total = total + factor
        elif factor < 0:
            total = total - (term if factor == -1 else term * -factor)
        else:
            total = total + (term if factor == 1 else term * factor)
    return total


_SIZE_OPERATORS = {
    "//": BinaryOp.FLOOR_DIV,
    "%": BinaryOp.FLOOR_MOD,
    "min": BinaryOp.MIN,
    "max": BinaryOp.MAX,
}


def _size_operation(operation: SizeOp) -> PrimExpr:
    a, b = operation.a, operation.b
    if isinstance(b, int) and operation.op in ("min", "max"):
        a, b = b, a  # always the number first, so that kernels of other numbers look alike
    return binary(_SIZE_OPERATORS[operation.op], index(a), index(b))


def _typed(value: Operand, like: Operand) -> PrimExpr:
    if isinstance(value, Arithmetic):
        return value  # type: ignore[return-value]  # Arithmetic is the mixin of PrimExpr only
    if isinstance(value, Dim):
        return _size_expr(value)
    if not isinstance(like, Arithmetic):
        raise VerifyError("an expression of two Python numbers has no element type")
    model: PrimExpr = like  # type: ignore[assignment]  # Arithmetic is the mixin of PrimExpr only
    scalar = const(value, model.dtype)
    return Broadcast(scalar, model.lanes, model.dtype) if model.lanes > 1 else scalar


def _same_lanes(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    if a.lanes == b.lanes:
        return a, b
    if a.lanes == 1:
        return Broadcast(a, b.lanes, a.dtype), b
    if b.lanes == 1:
        return a, Broadcast(b, a.lanes, b.dtype)
    raise VerifyError(f"vectors of {a.lanes} and {b.lanes} lanes do not combine")


def binary(op: BinaryOp, a: Operand, b: Operand) -> PrimExpr:
    """Apply a binary operator; folds index arithmetic with 0 and 1 and of two constants.

    Raises:
        VerifyError: The element types differ.
    """
    left, right = _typed(a, b), _typed(b, a)
    if left.lanes != right.lanes:
        left, right = _same_lanes(left, right)
    if left.dtype is not right.dtype:
        raise VerifyError(f"operands of '{op.value}' are {left.dtype} and {right.dtype}")
    if isinstance(left, IntImm) or isinstance(right, IntImm):
        folded = _fold(op, left, right)
        if folded is not None:
            return folded
    dtype = DType.BOOL if op in COMPARISONS else left.dtype
    return Binary(op, left, right, dtype, left.lanes)


def _fold(op: BinaryOp, a: PrimExpr, b: PrimExpr) -> PrimExpr | None:
    """Fold integer identities; ``None`` when nothing folds."""
    if a.dtype is not INDEX:
        return None
    x = a.value if isinstance(a, IntImm) else None
    y = b.value if isinstance(b, IntImm) else None
    if x is not None and y is not None:
        return _fold_constants(op, x, y)
    if x not in (0, 1) and y not in (0, 1):
        return None
    match op, x, y:
        case (BinaryOp.ADD, 0, _):
            return b
        case (BinaryOp.ADD | BinaryOp.SUB, _, 0):
            return a
        case (BinaryOp.MUL, 1, _):
            return b
        case (BinaryOp.MUL | BinaryOp.FLOOR_DIV, _, 1):
            return a
        case (BinaryOp.MUL, 0, _) | (BinaryOp.MUL, _, 0) | (BinaryOp.FLOOR_MOD, _, 1):
            return IntImm(0)
        case _:
            return None


def _fold_constants(op: BinaryOp, x: int, y: int) -> PrimExpr | None:
    match op:
        case BinaryOp.ADD:
            return IntImm(x + y)
        case BinaryOp.SUB:
            return IntImm(x - y)
        case BinaryOp.MUL:
            return IntImm(x * y)
        case BinaryOp.FLOOR_DIV if y != 0:
            return IntImm(x // y)
        case BinaryOp.FLOOR_MOD if y != 0:
            return IntImm(x % y)
        case BinaryOp.MIN:
            return IntImm(min(x, y))
        case BinaryOp.MAX:
            return IntImm(max(x, y))
        case BinaryOp.LT | BinaryOp.LE | BinaryOp.GT | BinaryOp.GE | BinaryOp.EQ | BinaryOp.NE:
            holds = {
                BinaryOp.LT: x < y,
                BinaryOp.LE: x <= y,
                BinaryOp.GT: x > y,
                BinaryOp.GE: x >= y,
                BinaryOp.EQ: x == y,
                BinaryOp.NE: x != y,
            }[op]
            return IntImm(int(holds), DType.BOOL)
        case _:
            return None


def intrinsic(function: Intrinsic, *args: PrimExpr) -> PrimExpr:
    """Apply a machine function.

    Predicates give bool, what reads bits the other type of the width, others the type of the first
    operand.
    """
    first = args[0]
    return CallIntrinsic(function, args, function.result(first.dtype), first.lanes)


def select(condition: PrimExpr, a: Operand, b: Operand) -> PrimExpr:
    """Choose per lane; both sides are evaluated."""
    left, right = _same_lanes(_typed(a, b), _typed(b, a))
    return Select(condition, left, right, left.dtype, max(left.lanes, condition.lanes))


def if_then_else(condition: PrimExpr, a: Operand, b: Operand) -> PrimExpr:
    """Choose, evaluating only the chosen side."""
    left, right = _same_lanes(_typed(a, b), _typed(b, a))
    return IfThenElse(condition, left, right, left.dtype, left.lanes)


def cast(value: PrimExpr, dtype: DType) -> PrimExpr:
    """Convert to an element type; the same object if it has that type already."""
    return value if value.dtype is dtype else CastExpr(value, dtype, value.lanes)


def minimum(a: Operand, b: Operand) -> PrimExpr:
    """The smaller of two; NaN if either is NaN."""
    return binary(BinaryOp.MIN, a, b)


def maximum(a: Operand, b: Operand) -> PrimExpr:
    """The larger of two; NaN if either is NaN."""
    return binary(BinaryOp.MAX, a, b)


def equal(a: Operand, b: Operand) -> PrimExpr:
    """``a == b`` (``==`` itself compares nodes)."""
    return binary(BinaryOp.EQ, a, b)


def all_of(conditions: Sequence[PrimExpr]) -> PrimExpr:
    """Logical and of scalar conditions; true when there are none."""
    result: PrimExpr = IntImm(1, DType.BOOL)
    for number, condition in enumerate(conditions):
        result = condition if number == 0 else binary(BinaryOp.AND, result, condition)
    return result
