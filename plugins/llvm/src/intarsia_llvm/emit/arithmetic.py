# SPDX-License-Identifier: Apache-2.0
"""Binary operators."""

from __future__ import annotations

from intarsia_ir.tir.expr import BinaryOp
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from .conversions import emit_rounded
from .remainder import emit_remainder
from .spelling import float_text, int_text, overload, register_type, splat, vector_type
from .writer import FunctionWriter

_FLOAT = {
    BinaryOp.ADD: "fadd contract",
    BinaryOp.SUB: "fsub contract",
    BinaryOp.MUL: "fmul contract",
    BinaryOp.DIV: "fdiv",
}
_INT = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.XOR: "xor",
}
_FCMP = {
    BinaryOp.EQ: "oeq",
    BinaryOp.NE: "une",
    BinaryOp.LT: "olt",
    BinaryOp.LE: "ole",
    BinaryOp.GT: "ogt",
    BinaryOp.GE: "oge",
}
_ICMP = {
    BinaryOp.EQ: "eq",
    BinaryOp.NE: "ne",
    BinaryOp.LT: "lt",
    BinaryOp.LE: "le",
    BinaryOp.GT: "gt",
    BinaryOp.GE: "ge",
}


def emit_binary(
    w: FunctionWriter,
    op: BinaryOp,
    a: str,
    b: str,
    dtype: DType,
    lanes: int,
    *,
    never_nan: str = "",
) -> str:
    """Write ``a op b`` on values of element type ``dtype``.

    Args:
        w: Where to write.
        op: The operator.
        a: Left value.
        b: Right value.
        dtype: Element type of the operands.
        lanes: Their width.
        never_nan: ``a`` or ``b`` if that one is known not to be NaN.

    Raises:
        UnsupportedError: The operator has no meaning for the type.
    """
    kind = register_type(dtype, lanes)
    if dtype.is_float:
        if op in _FCMP:
            return w.emit(f"fcmp {_FCMP[op]} {kind} {a}, {b}")
        if op in _FLOAT:
            return emit_rounded(w, w.emit(f"{_FLOAT[op]} {kind} {a}, {b}"), dtype, lanes)
        if op in (BinaryOp.MIN, BinaryOp.MAX):
            return _float_extreme(w, op, a, b, kind, never_nan)
        return _float_division(w, op, a, b, dtype, lanes)

    def write(text: str, *operands: str) -> str:  # indices are computed again and again
        return w.once(text, *operands) if lanes == 1 else w.emit(text)

    if op in _ICMP:
        return write(f"icmp {_predicate(op, dtype)} {kind} {a}, {b}", a, b)
    if dtype is DType.BOOL and op in (BinaryOp.ADD, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX):
        return w.emit(f"{'or' if op in (BinaryOp.ADD, BinaryOp.MAX) else 'and'} {kind} {a}, {b}")
    if op in _INT:
        return write(f"{_INT[op]} {kind} {a}, {b}", a, b)
    if op in (BinaryOp.MIN, BinaryOp.MAX):
        compare = _predicate(BinaryOp.LT if op is BinaryOp.MIN else BinaryOp.GT, dtype)
        flag = write(f"icmp {compare} {kind} {a}, {b}", a, b)
        return write(f"select {_flags(lanes)} {flag}, {kind} {a}, {kind} {b}", flag, a, b)
    if op in (BinaryOp.SHL, BinaryOp.SHR):
        return _shift(w, op, a, b, dtype, lanes)
    if op is not BinaryOp.DIV:
        return _int_division(w, op, a, b, dtype, lanes)
    raise UnsupportedError(f"operator '{op.value}' on {dtype} has no meaning")


def _flags(lanes: int) -> str:
    return vector_type("i1", lanes)


def _predicate(op: BinaryOp, dtype: DType) -> str:
    name = _ICMP[op]
    return name if name in ("eq", "ne") else ("s" if dtype.is_signed else "u") + name


def _float_extreme(
    w: FunctionWriter, op: BinaryOp, a: str, b: str, kind: str, never_nan: str
) -> str:
    """One comparison picks; a NaN on the left needs a second look, so a number goes to the left."""
    if never_nan and never_nan == b:
        a, b = b, a
    lanes = int(kind[1:].split(" ")[0]) if kind.startswith("<") else 1
    if not never_nan and not w.declarations.bare:
        name = "llvm.minimum" if op is BinaryOp.MIN else "llvm.maximum"
        scalar = "f32" if "float" in kind else "f64"
        suffix = f"v{lanes}{scalar}" if lanes > 1 else scalar
        function = w.declarations.use(kind, f"{name}.{suffix}", (kind, kind))
        return w.emit(f"call nsz {kind} {function}({kind} {a}, {kind} {b})")
    compare = "olt" if op is BinaryOp.MIN else "ogt"
    flag = w.emit(f"fcmp {compare} {kind} {a}, {b}")
    chosen = w.emit(f"select {_flags(lanes)} {flag}, {kind} {a}, {kind} {b}")
    if never_nan:
        return chosen
    flag = w.emit(f"fcmp uno {kind} {a}, {a}")
    return w.emit(f"select {_flags(lanes)} {flag}, {kind} {a}, {kind} {chosen}")


def _float_division(
    w: FunctionWriter, op: BinaryOp, a: str, b: str, dtype: DType, lanes: int
) -> str:
    kind = register_type(dtype, lanes)
    if op in (BinaryOp.FLOOR_DIV, BinaryOp.TRUNC_DIV):
        quotient = w.emit(f"fdiv {kind} {a}, {b}")
        name = "llvm.floor" if op is BinaryOp.FLOOR_DIV else "llvm.trunc"
        function = w.declarations.use(kind, f"{name}.{overload(dtype, lanes)}", (kind,))
        return emit_rounded(w, w.emit(f"call {kind} {function}({kind} {quotient})"), dtype, lanes)
    if op not in (BinaryOp.FLOOR_MOD, BinaryOp.TRUNC_MOD):
        raise UnsupportedError(f"operator '{op.value}' on {dtype} has no meaning")
    rest = emit_remainder(w, a, b, register_type(dtype), lanes)
    if op is BinaryOp.TRUNC_MOD:
        return rest
    zero = splat(float_text(0.0, register_type(dtype)), register_type(dtype), lanes)
    flags = _flags(lanes)
    nonzero = w.emit(f"fcmp une {kind} {rest}, {zero}")
    negative = w.emit(f"fcmp olt {kind} {rest}, {zero}")
    wants = w.emit(f"fcmp olt {kind} {b}, {zero}")
    differs = w.emit(f"xor {flags} {negative}, {wants}")
    adjust = w.emit(f"and {flags} {nonzero}, {differs}")
    moved = emit_rounded(w, w.emit(f"fadd {kind} {rest}, {b}"), dtype, lanes)
    return w.emit(f"select {flags} {adjust}, {kind} {moved}, {kind} {rest}")


def _shift(w: FunctionWriter, op: BinaryOp, a: str, b: str, dtype: DType, lanes: int) -> str:
    """Shifts by the width or more give 0, or the sign."""
    kind, flags = register_type(dtype, lanes), _flags(lanes)
    name = "shl" if op is BinaryOp.SHL else "ashr" if dtype.is_signed else "lshr"
    limit = splat(str(dtype.bits - 1), register_type(dtype), lanes)
    over = w.emit(f"icmp ugt {kind} {b}, {limit}")
    amount = w.emit(f"select {flags} {over}, {kind} {limit}, {kind} {b}")
    shifted = w.emit(f"{name} {kind} {a}, {amount}")
    if name == "ashr":
        return shifted
    return w.emit(f"select {flags} {over}, {kind} zeroinitializer, {kind} {shifted}")


def _int_division(w: FunctionWriter, op: BinaryOp, a: str, b: str, dtype: DType, lanes: int) -> str:
    """Division that cannot trap: by zero it gives 0, and the smallest value by -1 wraps."""
    kind, flags = register_type(dtype, lanes), _flags(lanes)
    scalar = register_type(dtype)
    one, zero = splat("1", scalar, lanes), splat("0", scalar, lanes)
    by_zero = w.emit(f"icmp eq {kind} {b}, {zero}")
    unsafe = by_zero
    if dtype.is_signed:
        lowest = splat(int_text(1 << (dtype.bits - 1), dtype), scalar, lanes)
        minus = w.emit(f"icmp eq {kind} {b}, {splat('-1', scalar, lanes)}")
        extreme = w.emit(f"icmp eq {kind} {a}, {lowest}")
        wraps = w.emit(f"and {flags} {minus}, {extreme}")
        unsafe = w.emit(f"or {flags} {by_zero}, {wraps}")
    divisor = w.emit(f"select {flags} {unsafe}, {kind} {one}, {kind} {b}")
    sign = "s" if dtype.is_signed else "u"
    rest = w.emit(f"{sign}rem {kind} {a}, {divisor}")
    quotient = w.emit(f"{sign}div {kind} {a}, {divisor}")
    if dtype.is_signed and op in (BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD):
        mixed = w.emit(f"xor {kind} {rest}, {divisor}")
        opposite = w.emit(f"icmp slt {kind} {mixed}, {zero}")
        uneven = w.emit(f"icmp ne {kind} {rest}, {zero}")
        adjust = w.emit(f"and {flags} {opposite}, {uneven}")
        lower = w.emit(f"sub {kind} {quotient}, {one}")
        quotient = w.emit(f"select {flags} {adjust}, {kind} {lower}, {kind} {quotient}")
        moved = w.emit(f"add {kind} {rest}, {divisor}")
        rest = w.emit(f"select {flags} {adjust}, {kind} {moved}, {kind} {rest}")
    result = quotient if op in (BinaryOp.FLOOR_DIV, BinaryOp.TRUNC_DIV) else rest
    return w.emit(f"select {flags} {by_zero}, {kind} {zero}, {kind} {result}")


def emit_index_division(
    w: FunctionWriter, op: BinaryOp, a: str, divisor: int, *, negative: bool
) -> str:
    """Write ``a // divisor`` or ``a % divisor`` of an index that may be ``negative`` or not."""
    floor = op is BinaryOp.FLOOR_DIV
    if divisor & (divisor - 1) == 0:
        if floor:
            return w.once(f"ashr i64 {a}, {divisor.bit_length() - 1}", a)
        return w.once(f"and i64 {a}, {divisor - 1}", a)
    if not negative:
        return w.once(f"{'udiv' if floor else 'urem'} i64 {a}, {divisor}", a)
    rest = w.once(f"srem i64 {a}, {divisor}", a)
    below = w.once(f"icmp slt i64 {rest}, 0", rest)
    if floor:
        quotient = w.once(f"sdiv i64 {a}, {divisor}", a)
        borrow = w.once(f"sext i1 {below} to i64", below)
        return w.once(f"add i64 {quotient}, {borrow}", quotient, borrow)
    carry = w.once(f"select i1 {below}, i64 {divisor}, i64 0", below)
    return w.once(f"add i64 {rest}, {carry}", rest, carry)


def emit_natural_division(
    w: FunctionWriter, op: BinaryOp, a: str, b: str, *, may_be_zero: bool
) -> str:
    """Write ``a // b`` or ``a % b`` of indices that are not negative; by zero it gives 0."""
    name = "udiv" if op is BinaryOp.FLOOR_DIV else "urem"
    if not may_be_zero:
        return w.once(f"{name} i64 {a}, {b}", a, b)
    by_zero = w.once(f"icmp eq i64 {b}, 0", b)
    divisor = w.once(f"select i1 {by_zero}, i64 1, i64 {b}", by_zero, b)
    result = w.once(f"{name} i64 {a}, {divisor}", a, divisor)
    if op is BinaryOp.FLOOR_MOD:
        return result  # by 1 it leaves 0
    return w.once(f"select i1 {by_zero}, i64 0, i64 {result}", by_zero, result)


def emit_division_call(w: FunctionWriter, op: BinaryOp, a: str, b: str) -> str:
    """Write ``a // b`` or ``a % b`` of any indices: 17 instructions, which a function has once."""
    name = "intarsia.floor_div" if op is BinaryOp.FLOOR_DIV else "intarsia.floor_mod"
    if name not in w.declarations.lines:
        own = FunctionWriter(w.declarations)
        result = _int_division(own, op, "%a", "%b", DType.INT64, 1)
        head = f"define internal i64 @{name}(i64 %a, i64 %b) noinline memory(none) #0 {{"
        w.declarations.lines[name] = "\n".join([head, *own.lines, f"  ret i64 {result}", "}"])
    return w.once(f"call i64 @{name}(i64 {a}, i64 {b})", a, b)
