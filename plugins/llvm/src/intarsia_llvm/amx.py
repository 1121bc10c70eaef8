# SPDX-License-Identifier: Apache-2.0
"""AMX: the matrix unit of x86 processors, as procedures that loops call by name.

Of its eight registers, 0 to 3 are sums, row by row, 4 and 5 data, 6 and 7 weights. (Intel 64 and
IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.)
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from intarsia.dtype import DType
from intarsia.plugin import Signature
from intarsia.tir.buffer import Buffer
from intarsia.tir.expr import Load, index
from intarsia.tir.stmt import Invoke, Stmt

ROWS = 16
"""Rows of a register, of 64 bytes each."""

CONFIGURE, RELEASE = "llvm.amx.configure", "llvm.amx.release"
CLEAR, MULTIPLY, WRITE = "llvm.amx.clear", "llvm.amx.multiply", "llvm.amx.write"
PAIRS = f"{MULTIPLY}.bf16"

_SHAPES = tuple((down, across) for down in (1, 2) for across in (1, 2))


class Amx(Struct, frozen=True):
    """The matrix unit of :mod:`intarsia.lower.cpu.matrix_unit`: of bytes, or with sums of float32
    of pairs of bfloat16.
    """

    rows: int = ROWS
    quads: int = 16
    lanes: int = 16
    sums: DType = DType.INT32

    def configure(self, rows: int, quads: int) -> Stmt:
        """Configure all registers: ``rows`` of data, ``quads`` of weights."""
        return Invoke("llvm", CONFIGURE, (), (index(rows), index(quads)))

    def clear(self, shape: tuple[int, int]) -> Stmt:
        """Set sums to zero."""
        return Invoke("llvm", _of(CLEAR, shape), ())

    def multiply(self, left: Sequence[tuple[Load, int]], right: Load, across: int) -> Stmt:
        """Load registers of data and of weights, and add all their products."""
        places = (*(place for place, _ in left), right)
        strides = tuple(index(stride) for _, stride in left)
        name = PAIRS if self.sums.is_float else MULTIPLY
        return Invoke("llvm", _of(name, (len(left), across)), places, strides)

    def write(self, sums: Buffer, rows: int, shape: tuple[int, int]) -> Stmt:
        """Store sums."""
        first = Load(sums, (index(0), index(0)), sums.dtype, 1)
        return Invoke("llvm", _of(WRITE, shape), (first,), (index(rows),))

    def release(self) -> Stmt:
        """Return the unit to its first state, which nobody has to save."""
        return Invoke("llvm", RELEASE, ())


def _of(name: str, shape: tuple[int, int]) -> str:
    return f"{name}.{shape[0]}x{shape[1]}"


def shape_of(function: str) -> tuple[int, int]:
    """Return how many registers of sums a procedure works on, down and across."""
    down, across = function.rsplit(".", 1)[1].split("x")
    return int(down), int(across)


PROCEDURES = {
    CONFIGURE: Signature(2),
    RELEASE: Signature(0),
    **{_of(CLEAR, shape): Signature(0) for shape in _SHAPES},
    **{
        _of(name, shape): Signature(2 * shape[0] + 1)
        for name in (MULTIPLY, PAIRS)
        for shape in _SHAPES
    },
    **{_of(WRITE, shape): Signature(2) for shape in _SHAPES},
}
"""Name to what it takes."""
