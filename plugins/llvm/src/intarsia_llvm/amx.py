# SPDX-License-Identifier: Apache-2.0
"""AMX, the matrix unit of x86, as procedures that loops call by name.

Tile registers 0 to 3 are sums (2 x 2), 4 and 5 data, 6 and 7 weights: all eight. A register is 16
rows of 64 bytes. (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter
18.)
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from intarsia.plugin import CodegenSignature
from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import Load, index
from intarsia_ir.tir.stmt import Invoke, Stmt
from intarsia_runtime.dtype import DType

ROWS = 16
"""Rows of a register, of 64 bytes each."""

CONFIGURE, RELEASE = "llvm.amx.configure", "llvm.amx.release"
CLEAR, MULTIPLY, WRITE = "llvm.amx.clear", "llvm.amx.multiply", "llvm.amx.write"
MULTIPLY_BF16 = f"{MULTIPLY}.bf16"

_GRIDS = tuple((down, across) for down in (1, 2) for across in (1, 2))


class Amx(Struct, frozen=True):
    """The matrix unit of :mod:`intarsia_loops.cpu.matrix_unit`: of bytes, or with sums of float32
    of pairs of bfloat16.
    """

    rows: int = ROWS
    words: int = 16
    lanes: int = 16
    sums: DType = DType.INT32

    def configure(self, rows: int, words: int) -> Stmt:
        """Configure all registers: ``rows`` of data, ``words`` of weights."""
        return Invoke("llvm", CONFIGURE, (), (index(rows), index(words)))

    def clear(self, grid: tuple[int, int]) -> Stmt:
        """Set sums to zero."""
        return Invoke("llvm", _of(CLEAR, grid), ())

    def multiply(self, left: Sequence[tuple[Load, int]], right: Load, across: int) -> Stmt:
        """Load registers of data and of weights, and add all their products."""
        addresses = (*(address for address, _ in left), right)
        strides = tuple(index(stride) for _, stride in left)
        name = MULTIPLY_BF16 if self.sums.is_float else MULTIPLY
        return Invoke("llvm", _of(name, (len(left), across)), addresses, strides)

    def write(self, sums: Buffer, rows: int, grid: tuple[int, int]) -> Stmt:
        """Store sums."""
        first = Load(sums, (index(0), index(0)), sums.dtype, 1)
        return Invoke("llvm", _of(WRITE, grid), (first,), (index(rows),))

    def release(self) -> Stmt:
        """Return the unit to its first state, which nobody has to save."""
        return Invoke("llvm", RELEASE, ())


def _of(name: str, grid: tuple[int, int]) -> str:
    return f"{name}.{grid[0]}x{grid[1]}"


def grid_of(function: str) -> tuple[int, int]:
    """Return how many registers of sums a procedure works on, down and across."""
    down, across = function.rsplit(".", 1)[1].split("x")
    return int(down), int(across)


PROCEDURES = {
    CONFIGURE: CodegenSignature(2),
    RELEASE: CodegenSignature(0),
    **{_of(CLEAR, grid): CodegenSignature(0) for grid in _GRIDS},
    **{
        _of(name, grid): CodegenSignature(2 * grid[0] + 1)
        for name in (MULTIPLY, MULTIPLY_BF16)
        for grid in _GRIDS
    },
    **{_of(WRITE, grid): CodegenSignature(2) for grid in _GRIDS},
}
"""Name to what it takes."""
