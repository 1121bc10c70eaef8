# SPDX-License-Identifier: Apache-2.0
"""The remainder of floats, as C's ``fmod``: exact, and for most operands without a call.

Of numbers of 24 bits, the quotient ``x / y`` rounded to float64 is at most one off the true one
once both are cut to whole numbers. Below 2**29 in size, that times ``y`` has 53 bits: the product
and the difference to ``x`` are exact in float64, so what is left to mend is one ``y`` too much.
"""

from __future__ import annotations

from intarsia_runtime.dtype import DType

from .signs import copy_sign
from .spelling import float_text, splat, vector_type
from .writer import FunctionWriter

_LARGEST = 2.0**29


def emit_remainder(w: FunctionWriter, a: str, b: str, scalar: str, lanes: int) -> str:
    """Write ``a - b * trunc(a / b)``, exact and with the sign of ``a``.

    Args:
        w: Where to write.
        a: Of register type ``float`` or ``double``.
        b: The same.
        scalar: That type.
        lanes: Width of both.
    """
    kind = vector_type(scalar, lanes)
    if scalar != "float" or w.declarations.bare:
        return w.emit(f"frem {kind} {a}, {b}")
    fast, is_exact = _short(w, a, b, lanes)
    before, slow, end = w.label, w.fresh_label(), w.fresh_label()
    w.do(f"br i1 {is_exact}, label %{end}, label %{slow}")
    w.start_block(slow)
    called = w.emit(f"frem {kind} {a}, {b}")
    w.do(f"br label %{end}")
    w.start_block(end)
    return w.emit(f"phi {kind} [ {fast}, %{before} ], [ {called}, %{slow} ]")


def _short(w: FunctionWriter, a: str, b: str, lanes: int) -> tuple[str, str]:
    """Return the remainder by float64, and whether it is right in all lanes."""
    kind, wide = vector_type("float", lanes), vector_type("double", lanes)
    flags, zero = vector_type("i1", lanes), splat(float_text(0.0, "double"), "double", lanes)
    x, y = (w.emit(f"fpext {kind} {value} to {wide}") for value in (a, b))
    quotient = w.emit(f"fdiv {wide} {x}, {y}")
    whole = _call(w, "llvm.trunc", lanes, quotient)
    rest = w.emit(f"fsub {wide} {x}, {w.emit(f'fmul {wide} {whole}, {y}')}")
    product = w.emit(f"fmul {wide} {rest}, {x}")
    is_beyond = w.emit(f"fcmp olt {wide} {product}, {zero}")
    mended = w.emit(f"fadd {wide} {rest}, {copy_sign(w, (y, x), DType.FLOAT64, lanes)}")
    rest = w.emit(f"select {flags} {is_beyond}, {wide} {mended}, {wide} {rest}")
    signed = copy_sign(w, (rest, x), DType.FLOAT64, lanes)
    largest = splat(float_text(_LARGEST, "double"), "double", lanes)
    is_small = w.emit(f"fcmp olt {wide} {_call(w, 'llvm.fabs', lanes, quotient)}, {largest}")
    is_number = w.emit(f"fcmp ord {wide} {rest}, {zero}")
    exact = w.emit(f"and {flags} {is_small}, {is_number}")
    if lanes > 1:
        name = f"llvm.vector.reduce.and.v{lanes}i1"
        exact = w.emit(f"call i1 {w.declarations.use('i1', name, (flags,))}({flags} {exact})")
    return w.emit(f"fptrunc {wide} {signed} to {kind}"), exact


def _call(w: FunctionWriter, name: str, lanes: int, *args: str) -> str:
    wide = vector_type("double", lanes)
    suffix = "f64" if lanes == 1 else f"v{lanes}f64"
    function = w.declarations.use(wide, f"{name}.{suffix}", (wide,) * len(args))
    return w.emit(f"call {wide} {function}({', '.join(f'{wide} {arg}' for arg in args)})")
