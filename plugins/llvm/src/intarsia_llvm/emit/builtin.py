# SPDX-License-Identifier: Apache-2.0
"""Machine functions that LLVM has itself, and reductions over lanes."""

from __future__ import annotations

from intarsia_ir.tir.expr import BinaryOp, CallIntrinsic, ReduceLanes
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UnsupportedError

from .arithmetic import emit_binary
from .conversions import emit_rounded
from .spelling import float_text, overload, register_type, splat, vector_type
from .writer import FunctionWriter

NATIVE = {
    Intrinsic.ABS: "llvm.fabs",
    Intrinsic.CEIL: "llvm.ceil",
    Intrinsic.FLOOR: "llvm.floor",
    Intrinsic.FMA: "llvm.fma",
    Intrinsic.ROUND: "llvm.roundeven",
    Intrinsic.SQRT: "llvm.sqrt",
    Intrinsic.TRUNC: "llvm.trunc",
}
"""Intrinsics that become one LLVM intrinsic; all others need a rule."""


def emit_intrinsic(w: FunctionWriter, call: CallIntrinsic, args: list[str]) -> str:
    """Write a machine function that has no rule.

    Raises:
        UnsupportedError: LLVM has no such function for the type.
    """
    first = call.args[0]
    kind = register_type(first.dtype, first.lanes)
    if call.intrinsic is Intrinsic.ISNAN and first.dtype.is_float:
        return w.emit(f"fcmp uno {kind} {args[0]}, {args[0]}")
    if call.intrinsic is Intrinsic.ISINF and first.dtype.is_float:
        size = emit_native_call(w, "llvm.fabs", kind, overload(first.dtype, first.lanes), args)
        scalar = register_type(first.dtype)
        infinity = splat(float_text(float("inf"), scalar), scalar, first.lanes)
        return w.emit(f"fcmp oeq {kind} {size}, {infinity}")
    if call.intrinsic.keeps_bits:
        return w.emit(f"bitcast {kind} {args[0]} to {register_type(call.dtype, call.lanes)}")
    if call.intrinsic is Intrinsic.ABS and first.dtype.is_integer:
        if first.dtype.is_unsigned:
            return args[0]
        name = w.declarations.use(
            kind, f"llvm.abs.{overload(first.dtype, first.lanes)}", (kind, "i1")
        )
        return w.emit(f"call {kind} {name}({kind} {args[0]}, i1 false)")
    if call.intrinsic not in NATIVE or not first.dtype.is_float:
        raise UnsupportedError(f"intrinsic '{call.intrinsic.value}' of {first.dtype}")
    name = NATIVE[call.intrinsic]
    value = emit_native_call(w, name, kind, overload(first.dtype, first.lanes), args)
    return emit_rounded(w, value, first.dtype, first.lanes)


def emit_native_call(w: FunctionWriter, name: str, kind: str, suffix: str, args: list[str]) -> str:
    """Write a call of LLVM's function for one type: ``kind`` of all operands, as in ``suffix``."""
    if name == "llvm.roundeven" and w.declarations.bare:
        name = "llvm.rint"  # C libraries of boards have no roundeven; nobody changes the mode there
    function = w.declarations.use(kind, f"{name}.{suffix}", (kind,) * len(args))
    return w.emit(f"call {kind} {function}({', '.join(f'{kind} {arg}' for arg in args)})")


_FLOAT_REDUCE = {
    BinaryOp.ADD: ("fadd", -0.0),
    BinaryOp.MUL: ("fmul", 1.0),
    BinaryOp.MIN: ("fminimum", None),
    BinaryOp.MAX: ("fmaximum", None),
}
_INT_REDUCE = {
    BinaryOp.ADD: "add",
    BinaryOp.MUL: "mul",
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
}


def emit_reduction(w: FunctionWriter, expr: ReduceLanes, value: str) -> str:
    """Write a combination of all lanes; sums pair up lanes rather than go from left to right.

    Raises:
        UnsupportedError: The operator does not combine lanes of this type.
    """
    lanes, dtype = expr.value.lanes, expr.dtype
    scalar, kind = register_type(dtype), register_type(dtype, lanes)
    suffix = overload(dtype, lanes)
    if dtype.is_float and expr.op in _FLOAT_REDUCE:
        name, start = _FLOAT_REDUCE[expr.op]
        if start is None and (w.declarations.bare or lanes & (lanes - 1)):
            return _fold_lanes(w, expr, value)
        if start is None:
            return _fold_halves(w, expr, value)
        symbol = f"llvm.vector.reduce.{name}.{suffix}"
        function = w.declarations.use(scalar, symbol, (scalar, kind))
        first = f"{scalar} {float_text(start, scalar)}"
        result = w.emit(f"call reassoc {scalar} {function}({first}, {kind} {value})")
        return emit_rounded(w, result, dtype, 1)
    if not dtype.is_float and expr.op in _INT_REDUCE:
        name = _INT_REDUCE[expr.op]
        if dtype is DType.BOOL:
            name = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(name, name)
        elif expr.op in (BinaryOp.MIN, BinaryOp.MAX):
            name = ("s" if dtype.is_signed else "u") + name
        function = w.declarations.use(scalar, f"llvm.vector.reduce.{name}.{suffix}", (kind,))
        return w.emit(f"call {scalar} {function}({vector_type(scalar, lanes)} {value})")
    raise UnsupportedError(f"'{expr.op.value}' over the lanes of a vector of {dtype}")


_REGISTER_LANES = 16


def _fold_halves(w: FunctionWriter, expr: ReduceLanes, value: str) -> str:
    """Find an extreme by halves: one comparison each below a register, NaN being looked for once.

    LLVM's reductions order zeros by their signs, which takes longer than all the rest.
    """
    dtype, lanes = expr.dtype, expr.value.lanes
    scalar, nan = register_type(dtype), ""
    compare = "olt" if expr.op is BinaryOp.MIN else "ogt"
    while lanes > 1:
        kind, half = register_type(dtype, lanes), register_type(dtype, lanes // 2)
        if lanes <= _REGISTER_LANES and not nan:
            flags = w.emit(f"fcmp uno {kind} {value}, {value}")
            whole = w.emit(f"bitcast {vector_type('i1', lanes)} {flags} to i{lanes}")
            nan = w.emit(f"icmp ne i{lanes} {whole}, 0")
        parts = [_half(w, value, kind, lanes, first) for first in (0, lanes // 2)]
        lanes //= 2
        if nan:
            flag = w.emit(f"fcmp {compare} {half} {parts[0]}, {parts[1]}")
            value = w.emit(
                f"select {vector_type('i1', lanes)} {flag}, {half} {parts[0]}, {half} {parts[1]}"
            )
        else:
            value = emit_binary(w, expr.op, parts[0], parts[1], dtype, lanes)
    wrong = float_text(float("nan"), scalar)
    return w.emit(f"select i1 {nan}, {scalar} {wrong}, {scalar} {value}")


def _half(w: FunctionWriter, value: str, kind: str, lanes: int, first: int) -> str:
    if lanes == 2:
        return w.emit(f"extractelement {kind} {value}, i64 {first}")
    mask = ", ".join(f"i32 {lane}" for lane in range(first, first + lanes // 2))
    return w.emit(f"shufflevector {kind} {value}, {kind} poison, <{lanes // 2} x i32> <{mask}>")


def _fold_lanes(w: FunctionWriter, expr: ReduceLanes, value: str) -> str:
    """Combine lanes one by one: without a unit for floats LLVM calls what C libraries lack yet."""
    kind = register_type(expr.dtype, expr.value.lanes)
    total = ""
    for lane in range(expr.value.lanes):
        element = w.emit(f"extractelement {kind} {value}, i64 {lane}")
        total = emit_binary(w, expr.op, total, element, expr.dtype, 1) if total else element
    return total
