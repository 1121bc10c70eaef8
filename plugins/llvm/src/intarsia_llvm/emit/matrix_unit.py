# SPDX-License-Identifier: Apache-2.0
"""Procedures of :mod:`intarsia_llvm.amx` as LLVM's instructions for AMX."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from intarsia_ir.tir.expr import IntImm, Load, PrimExpr
from intarsia_ir.tir.stmt import Invoke
from intarsia_runtime.errors import UnsupportedError

from ..amx import (
    CLEAR,
    CONFIGURE,
    MULTIPLY,
    MULTIPLY_BF16,
    PROCEDURES,
    RELEASE,
    ROWS,
    WRITE,
    grid_of,
)
from .expressions import Expressions
from .writer import FunctionWriter

_DATA, _WEIGHTS = 4, 6  # the first registers of each; sums are before
_ROW_BYTES = 64
_LOADS = ("tileloadd64", "tileloaddt164")  # the second one past the first-level cache
_PERMISSION = "intarsia.amx.permission"
PERMISSION_TEXT = f"""\
declare i64 @syscall(i64, ...)
define internal void @{_PERMISSION}() {{
  call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  ret void
}}
@{_PERMISSION}.place = internal constant ptr @{_PERMISSION}, section ".init_array", align 8
@llvm.used = appending global [1 x ptr] [ptr @{_PERMISSION}.place], section "llvm.metadata"
"""
"""Asks Linux for the registers when the code is loaded: ``arch_prctl(ARCH_REQ_XCOMP_PERM, 18)``."""


def emit_procedure(e: Expressions, call: Invoke) -> None:
    """Write a procedure.

    Raises:
        UnsupportedError: The code generator has none of this name.
    """
    if call.kind != "llvm" or call.function not in PROCEDURES:
        raise UnsupportedError(
            f"the LLVM code generator has no procedure '{call.function}' of '{call.kind}'",
            hint=f"one of {', '.join(sorted(PROCEDURES))}",
        )
    w = e.w
    name = call.function
    if name == CONFIGURE:
        rows, words = call.values
        _configure(e, rows, _number(words))
    elif name == RELEASE:
        _do(w, "tilerelease")
    else:
        down, across = grid_of(name)
        if name.startswith(CLEAR):
            for register in (_sums(s, b) for s in range(down) for b in range(across)):
                _do(w, "tilezero", ("i8", register))
        elif name.startswith(MULTIPLY):
            _multiply(e, call, down, across)
        elif name.startswith(WRITE):
            _write(e, call, down, across)
    w.loaded.clear()
    w.values.clear()


def _sums(segment: int, block: int) -> int:
    return 2 * segment + block


def _configure(e: Expressions, rows: PrimExpr, words: int) -> None:
    """Load a configuration; of rows of the run, that of a table with one for each number."""
    w, known = e.w, rows.value if isinstance(rows, IntImm) else None
    contents = [_configuration(n, words) for n in (range(ROWS + 1) if known is None else [known])]
    text = "".join(f"\\{byte:02x}" for content in contents for byte in content)
    name = f"intarsia.amx.{'any' if known is None else known}x{words}"
    kind = f"[{sum(map(len, contents))} x i8]"
    w.declarations.lines.setdefault(
        name, f'@{name} = private unnamed_addr constant {kind} c"{text}", align 64'
    )
    w.declarations.lines.setdefault(_PERMISSION, PERMISSION_TEXT)
    place = f"@{name}"
    if known is None:
        offset = w.emit(f"mul i64 {e.value(rows)}, {len(contents[0])}")
        place = w.emit(f"getelementptr i8, ptr {place}, i64 {offset}")
    _do(w, "ldtilecfg", ("ptr", place))


def _configuration(rows: int, words: int) -> bytes:
    """Return palette 1; for each register the bytes of a row, and the rows."""
    widths, heights = [_ROW_BYTES] * 8, [rows] * 8
    for register in range(_DATA, _WEIGHTS):
        widths[register] = 4 * words
    for register in range(_WEIGHTS, 8):
        heights[register] = words
    content = bytearray(64)
    content[0] = 1
    for register in range(8):
        content[16 + 2 * register] = widths[register]
        content[48 + register] = heights[register]
    return bytes(content)


def _multiply(e: Expressions, call: Invoke, down: int, across: int) -> None:
    """Load registers and add their products; of an exchange, store and clear sums between.

    The four stores of a tile in a row would fill the scheduler with data that wait for the sums,
    and keep the next loads and products out: 55 cycles a tile on Emerald Rapids, none in turn.
    """
    right, sums = call.places[down : down + across], call.places[down + across :]
    left = [e.address(place.buffer, place.indices) for place in call.places[:down]]
    strides = [e.value(value) for value in call.values[:down]]
    loads = [_LOADS[_number(flag)] for flag in call.values[down : down + 2]]
    weights = [e.address(place.buffer, place.indices) for place in right]
    instruction = "tdpbf16ps" if call.function.startswith(MULTIPLY_BF16) else "tdpbusd"
    store = _stores(e, sums[0], _number(call.values[-2])) if sums else None
    w = e.w

    def multiply(s: int, b: int) -> None:
        if s == 0:
            _do(w, loads[1], ("i8", _WEIGHTS + b), ("ptr", weights[b]), ("i64", _ROW_BYTES))
        if b == 0:
            _do(w, loads[0], ("i8", _DATA + s), ("ptr", left[s]), ("i64", strides[s]))
        if store is not None:
            store(s, b)
            _do(w, "tilezero", ("i8", _sums(s, b)))
        registers = (_sums(s, b), _DATA + s, _WEIGHTS + b)
        _do(w, instruction, *(("i8", register) for register in registers))

    _each(e, call, (down, across), multiply)


def _each(
    e: Expressions, call: Invoke, grid: tuple[int, int], write: Callable[[int, int], None]
) -> None:
    """Write what is done for each register of sums, of the segments that there are in the run."""
    down, across = grid
    for s in range(down):
        with _where_present(e, s, call.values[-1]):
            for b in range(across):
                write(s, b)


@contextmanager
def _where_present(e: Expressions, segment: int, count: PrimExpr) -> Generator[None]:
    if segment == 0 or isinstance(count, IntImm):
        yield
        return
    w = e.w
    present, end = w.fresh_label(), w.fresh_label()
    condition = w.emit(f"icmp sgt i64 {e.value(count)}, {segment}")
    w.do(f"br i1 {condition}, label %{present}, label %{end}")
    w.start_block(present)
    with w.branch():
        yield
    w.do(f"br label %{end}")
    w.start_block(end)


def _stores(e: Expressions, first: Load, rows: int) -> Callable[[int, int], None]:
    """Return what stores a register of sums, each of ``rows`` rows, in a buffer."""
    stride, base = _row_bytes(first), e.address(first.buffer, first.indices)

    def store(s: int, b: int) -> None:
        offset = s * rows * stride + b * _ROW_BYTES
        address = e.w.emit(f"getelementptr i8, ptr {base}, i64 {offset}")
        _do(e.w, "tilestored64", ("i8", _sums(s, b)), ("ptr", address), ("i64", stride))

    return store


def _write(e: Expressions, call: Invoke, down: int, across: int) -> None:
    _each(e, call, (down, across), _stores(e, call.places[0], _number(call.values[0])))


def _row_bytes(address: Load) -> int:
    return address.buffer.shape[-1] * address.buffer.dtype.bytes


def _number(value: PrimExpr) -> int:
    if not isinstance(value, IntImm):
        raise UnsupportedError("registers of AMX are configured by constants")
    return value.value


def _do(w: FunctionWriter, name: str, *operands: tuple[str, object]) -> None:
    """Write a call of one of LLVM's functions for AMX; numbers of registers are immediate."""
    kinds = ["i8 immarg" if kind == "i8" else kind for kind, _ in operands]
    function = w.declarations.use("void", f"llvm.x86.{name}", tuple(kinds))
    w.do(f"call void {function}({', '.join(f'{kind} {value}' for kind, value in operands)})")
