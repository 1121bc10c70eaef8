# SPDX-License-Identifier: Apache-2.0
"""Names and signatures of functions that multiply a tile: rows of data by columns of weights.

A name says what its function multiplies, ``ix_vector_dots_u8_4x16of32``: the family, bytes that are
signed or not, rows, columns, and how many columns of packed weights lie side by side. A function
adds to ``sums[rows, columns]``::

    void name(int32_t *sums, const int32_t *right, const void *left0, ..., intptr_t steps)
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, PrimExpr, index
from intarsia_ir.tir.stmt import Invoke, Stmt
from intarsia_loops.cpu.loops import address_of

_COUNT = r"([1-9]\d*)"


class NamedTile(Struct, frozen=True):
    """What one function multiplies.

    Attributes:
        name: Of the function.
        rows: Of data.
        columns: Of weights, that are accumulated.
        width: Columns of weights that lie side by side.
        signed: Whether bytes of data are signed.
    """

    name: str
    rows: int
    columns: int
    width: int
    signed: bool


class TileFunctions(Struct, frozen=True):
    """A family of functions.

    Attributes:
        family: What names begin with.
        sums: Declaration of the pointer to the sums.
        weights: That of the pointer to the first weight.
        data: That of the pointers to the first element of each row, less its number.
        steps: Name of the count of steps along K.
    """

    family: str
    sums: str
    weights: str
    data: str
    steps: str

    def call(
        self, sums: Buffer, left: Sequence[PrimExpr], right: PrimExpr, steps: PrimExpr | int,
        kind: str = "",
    ) -> Stmt:  # fmt: skip
        """Return the call that adds the products of a tile.

        Args:
            sums: ``[rows, columns]``; written and read.
            left: The first element of each row of data; loads.
            right: The first of the weights; a load.
            steps: Along K.
            kind: ``i8_`` or ``u8_`` of bytes.
        """
        rows, columns = sums.shape
        weights = address_of(right)
        name = f"{self.family}{kind}{rows}x{columns}of{weights.buffer.shape[-1]}"
        zero = IntImm(0)
        total = Load(sums, (zero, zero), sums.dtype, 1)
        return Invoke("c", name, (total, weights, *map(address_of, left)), (index(steps),))

    def shape(self, name: str) -> NamedTile | None:
        """Return what a function multiplies; ``None`` if its name is of another family."""
        match = re.fullmatch(rf"{self.family}([ui]8_)?{_COUNT}x{_COUNT}of{_COUNT}", name)
        if match is None:
            return None
        return NamedTile(name, int(match[2]), int(match[3]), int(match[4]), match[1] == "i8_")

    def arguments(self, name: str) -> int | None:
        """Return how many arguments a function takes; ``None`` if its name is of another family."""
        shape = self.shape(name)
        return None if shape is None else 3 + shape.rows

    def declaration(self, shape: NamedTile) -> str:
        """Return the name of a function and its parameters."""
        data = [f"{self.data}{row}" for row in range(shape.rows)]
        steps = f"intptr_t {self.steps}"
        return f"{shape.name}({', '.join([self.sums, self.weights, *data, steps])})"


def kind_of(*, signed: bool) -> str:
    """Return the part of a name that says whether bytes of data are signed."""
    return "i8_" if signed else "u8_"
