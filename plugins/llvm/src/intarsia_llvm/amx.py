# SPDX-License-Identifier: Apache-2.0
"""AMX, the matrix unit of x86, as procedures that loops call by name.

Tile registers 0 to 3 are sums (2 x 2), 4 and 5 data, 6 and 7 weights: all eight. A register is 16
rows of 64 bytes. (Intel 64 and IA-32 Architectures Software Developer's Manual, part 1, chapter
18.)
"""

from __future__ import annotations

from msgspec import Struct

from intarsia.plugin import CodegenSignature
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Load, PrimExpr, index
from intarsia_ir.tir.stmt import Invoke, Stmt
from intarsia_loops.cpu.matrix_unit import UnitOperands
from intarsia_runtime.dtype import DType

ROWS = 16
"""Rows of a register, of 64 bytes each."""

CONFIGURE, RELEASE = "llvm.amx.configure", "llvm.amx.release"
CLEAR, MULTIPLY, WRITE = "llvm.amx.clear", "llvm.amx.multiply", "llvm.amx.write"
MULTIPLY_BF16 = f"{MULTIPLY}.bf16"
_EXCHANGE = "exchange"

_GRIDS = tuple((down, across) for down in (1, 2) for across in (1, 2))


class Amx(Struct, frozen=True):
    """The matrix unit of :mod:`intarsia_loops.cpu.matrix_unit`: of bytes, or with sums of float32
    of pairs of bfloat16.
    """

    rows: int = ROWS
    words: int = 16
    lanes: int = 16
    sums: DType = DType.INT32
    byte_vectors: int = 2

    def configure(self, rows: int | PrimExpr, words: int) -> Stmt:
        """Configure all registers: ``rows`` of data, ``words`` of weights."""
        return Invoke("llvm", CONFIGURE, (), (index(rows), index(words)))

    def clear(self, grid: tuple[int, int]) -> Stmt:
        """Set sums to zero."""
        return Invoke("llvm", _of(CLEAR, grid), ())

    def multiply(self, operands: UnitOperands) -> Stmt:
        """Load registers of data and of weights, and add all their products."""
        return self._multiply(operands, self._multiply_name, (), ())

    def exchange(self, operands: UnitOperands, sums: Buffer, rows: int) -> Stmt:
        """The same, each register of sums stored and cleared before."""
        name = f"{self._multiply_name}.{_EXCHANGE}"
        return self._multiply(operands, name, (_first(sums),), (index(rows),))

    @property
    def _multiply_name(self) -> str:
        return MULTIPLY_BF16 if self.sums.is_float else MULTIPLY

    def _multiply(
        self,
        operands: UnitOperands,
        name: str,
        places: tuple[Load, ...],
        values: tuple[PrimExpr, ...],
    ) -> Stmt:
        left, streamed = operands.left, operands.streamed
        addresses = (*(address for address, _ in left), *operands.right, *places)
        strides = tuple(index(stride) for _, stride in left)
        flags = (index(int(streamed.left)), index(int(streamed.right)))
        function = _of(name, operands.grid)
        segments = _segments(operands.grid, operands.segments)
        return Invoke("llvm", function, addresses, (*strides, *flags, *values, segments))

    def write(
        self, sums: Buffer, rows: int, grid: tuple[int, int], segments: PrimExpr | None = None
    ) -> Stmt:
        """Store sums."""
        values = (index(rows), _segments(grid, segments))
        return Invoke("llvm", _of(WRITE, grid), (_first(sums),), values)

    def release(self) -> Stmt:
        """Return the unit to its first state, which nobody has to save."""
        return Invoke("llvm", RELEASE, ())


def _first(sums: Buffer) -> Load:
    return Load(sums, (index(0), index(0)), sums.dtype, 1)


def _segments(grid: tuple[int, int], segments: PrimExpr | None) -> PrimExpr:
    return index(grid[0]) if segments is None else segments


def _of(name: str, grid: tuple[int, int]) -> str:
    return f"{name}.{grid[0]}x{grid[1]}"


def is_exchange(function: str) -> bool:
    """Whether a procedure stores sums before it adds products."""
    return f".{_EXCHANGE}." in function


def grid_of(function: str) -> tuple[int, int]:
    """Return how many registers of sums a procedure works on, down and across."""
    down, across = function.rsplit(".", 1)[1].split("x")
    return int(down), int(across)


PROCEDURES = {
    CONFIGURE: CodegenSignature(2),
    RELEASE: CodegenSignature(0),
    **{_of(CLEAR, grid): CodegenSignature(0) for grid in _GRIDS},
    **{
        _of(name, grid): CodegenSignature(2 * grid[0] + grid[1] + 3)
        for name in (MULTIPLY, MULTIPLY_BF16)
        for grid in _GRIDS
    },
    **{
        _of(f"{name}.{_EXCHANGE}", grid): CodegenSignature(2 * grid[0] + grid[1] + 5)
        for name in (MULTIPLY, MULTIPLY_BF16)
        for grid in _GRIDS
    },
    **{_of(WRITE, grid): CodegenSignature(3) for grid in _GRIDS},
}
"""Name to what it takes."""
