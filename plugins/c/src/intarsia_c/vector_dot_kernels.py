# SPDX-License-Identifier: Apache-2.0
"""Dot micro-kernels of bytes as C functions for processors with vectors: x86's intrinsics, plain C.

A function adds the products of a tile, rows of data by vectors of columns, along K. Operands are
packed as Int8x4: four neighbouring bytes of a row are a 32-bit word, and words of the weights of
all columns of a block lie side by side (``cpu/packing.py``). Data counts as unsigned: signed bytes
are offset by 128. All layers share the functions, so a compiler sees each tile once.

``VPDPBUSD`` takes the words as they are. Before it, words are two pairs of 16 bits: the even bytes,
masked or shifted, and the odd ones. ``PMADDWD`` multiplies them exactly; ``PMADDUBSW`` would
saturate. Even and odd bytes take their turns, so that 6 x 2 sums + 2 vectors of weights + 1 of data
+ 1 product are the 16 registers of SSE2 and AVX2. Columns beyond that are another pass over K.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.stmt import Stmt

from .dot_micro_kernels import DOTS
from .tile_functions import NamedTile, kind_of

VECTOR_DOTS = replace(DOTS, family="ix_vector_dots_")
"""The functions of this module."""

_PLAIN_COLUMNS = 8
"""Columns of a pass in plain C: two registers of 128 bits, one of 256."""
_MOST_TWO_WIDE = 6
"""Rows up to which a pass has two vectors of columns."""

VECTOR_INCLUDES = """\
#if defined(__SSE2__)
#include <immintrin.h>
#endif
"""
"""What the functions need of the compiler's headers."""


class _InstructionSet(Struct, frozen=True):
    """An instruction set.

    Attributes:
        macro: The compiler defines it.
        bits: Of a vector.
        dot: The intrinsic that adds four products of bytes; pairs of 16 bits if empty.
    """

    macro: str
    bits: int
    dot: str = ""

    @property
    def lanes(self) -> int:
        """Sums in a vector."""
        return self.bits // 32

    def op(self, name: str) -> str:
        """Return the name of an intrinsic; ``si`` stands for all bits."""
        whole = name.endswith("_si")
        prefix = "_mm" if self.bits == 128 else f"_mm{self.bits}"
        return f"{prefix}_{name}{self.bits}" if whole else f"{prefix}_{name}"


_FORMS = (
    _InstructionSet("__AVX512VNNI__", 512, "_mm512_dpbusd_epi32"),
    _InstructionSet("__AVX512BW__", 512),
    _InstructionSet("__AVXVNNI__", 256, "_mm256_dpbusd_avx_epi32"),
    _InstructionSet("__AVX2__", 256),
    _InstructionSet("__SSE2__", 128),
)
"""The best first."""


def vector_dot_kernel(
    sums: Buffer, left: Sequence[PrimExpr], right: PrimExpr, words: PrimExpr | int, *, signed: bool
) -> Stmt:
    """Return the call that adds the products of a tile to ``sums[rows, columns]``.

    Args:
        sums: int32; written and read.
        left: The first Int8x4 word of each row.
        right: The first word of the first column of weights; a load.
        words: Int8x4 words of a row.
        signed: Whether data is signed.
    """
    return VECTOR_DOTS.call(sums, left, right, words, kind_of(signed=signed))


def print_vector_dot_kernel(shape: NamedTile) -> str:
    """Return the text of a function of :data:`VECTOR_DOTS`."""
    rows, columns = shape.rows, shape.columns
    tile = _VectorTile(shape.signed, rows, columns, shape.width)
    lines = [f"IX_KERNEL {VECTOR_DOTS.declaration(shape)}", "{"]
    lines += [f"    const uint8_t *const a{r} = left{r};" for r in range(rows)]
    directive = "if"
    for form in _FORMS:
        if columns % form.lanes == 0:
            lines += [f"#{directive} defined({form.macro})", *tile.vectors(form)]
            directive = "elif"
    plain = tile.plain()
    lines += plain if directive == "if" else ["#else", *plain, "#endif"]
    return "\n".join([*lines, "}", ""])


class _VectorTile:
    """The loops of one function in each form.

    Args:
        signed: Whether data is signed.
        rows: Of data.
        columns: Of weights, that are accumulated.
        width: Of weights, that lie side by side.
    """

    def __init__(self, signed: bool, rows: int, columns: int, width: int) -> None:
        self.signed = signed
        self.rows, self.columns, self.width = range(rows), columns, width

    def vectors(self, form: _InstructionSet) -> list[str]:
        """Return the loops over vectors, a pass over K for some of them."""
        lanes, count = form.lanes, self.columns // form.lanes
        most = 2 if len(self.rows) <= _MOST_TWO_WIDE else 1
        lines: list[str] = []
        for first in range(0, count, most):
            lines += self._pass(form, [lanes * v for v in range(first, min(first + most, count))])
        return lines

    def _pass(self, form: _InstructionSet, columns: Sequence[int]) -> list[str]:
        """Return the loop over K for some vectors, that begin at these columns."""
        kind = f"__m{form.bits}i"
        places = [
            (r, c, f"{kind} *)(sums + {r * self.columns + c})") for r in self.rows for c in columns
        ]
        load, store = form.op("loadu_si"), form.op("storeu_si")
        lines = [f"{kind} s{r}_{c} = {load}((const {place});" for r, c, place in places]
        lines += ["for (intptr_t k = 0; k < quads; ++k) {"]
        lines += [
            f"    const {kind} w{c} = {load}((const {kind} *)(right + k * {self.width} + {c}));"
            for c in columns
        ]
        step = self._dots(form, columns) if form.dot else self._pairs(form, columns)
        lines += [*(f"    {line}" for line in step), "}"]
        lines += [f"{store}(({place}, s{r}_{c});" for r, c, place in places]
        return ["    {", *(f"        {line}" for line in lines), "    }"]

    def _data(self, form: _InstructionSet, row: int) -> list[str]:
        """Return what puts a word of a row in all lanes of ``x``, unsigned."""
        word = f"{form.op('set1_epi32')}(word)"
        if self.signed:
            word = f"{form.op('xor_si')}({word}, {form.op('set1_epi8')}(-128))"
        return [
            "int32_t word;",
            f"__builtin_memcpy(&word, a{row} + 4 * k, 4);",
            f"const __m{form.bits}i x = {word};",
        ]

    def _dots(self, form: _InstructionSet, columns: Sequence[int]) -> list[str]:
        lines: list[str] = []
        for r in self.rows:
            adds = [f"s{r}_{c} = {form.dot}(s{r}_{c}, x, w{c});" for c in columns]
            lines += ["{", *(f"    {line}" for line in (*self._data(form, r), *adds)), "}"]
        return lines

    def _pairs(self, form: _InstructionSet, columns: Sequence[int]) -> list[str]:
        kind, add, multiply = f"__m{form.bits}i", form.op("add_epi32"), form.op("madd_epi16")
        right, left = form.op("srai_epi16"), form.op("slli_epi16")
        even = f"{form.op('and_si')}(x, {form.op('set1_epi16')}(255))"
        lines: list[str] = []
        for pair, weight in (
            (even, f"{right}({left}(w{{}}, 8), 8)"),
            (f"{form.op('srli_epi16')}(x, 8)", f"{right}(w{{}}, 8)"),
        ):
            half = [f"const {kind} h{c} = {weight.format(c)};" for c in columns]
            for r in self.rows:
                adds = [f"s{r}_{c} = {add}(s{r}_{c}, {multiply}(y, h{c}));" for c in columns]
                body = [*self._data(form, r), f"const {kind} y = {pair};", *adds]
                half += ["{", *(f"    {line}" for line in body), "}"]
            lines += ["{", *(f"    {line}" for line in half), "}"]
        return lines

    def plain(self) -> list[str]:
        """Return loops over lanes that a compiler makes vectors of: an array for each vector."""
        whole = self.columns % _PLAIN_COLUMNS == 0
        lanes = _PLAIN_COLUMNS if whole else self.columns
        columns = range(0, self.columns, lanes)
        places = [(f"s{r}_{c}", r * self.columns + c) for r in self.rows for c in columns]
        loop = f"for (int v = 0; v < {lanes}; ++v) {{"
        body = [f"int32_t {name}[{lanes}];" for name, _ in places]
        body += [loop, *(f"    {name}[v] = sums[{at} + v];" for name, at in places), "}"]
        body += ["for (intptr_t k = 0; k < quads; ++k) {", f"    {loop}"]
        flip = " ^ 128" if self.signed else ""
        for c in columns:
            body.append(f"        const int32_t w{c} = right[k * {self.width} + {c} + v];")
            weights = [f"((int32_t)((uint32_t)w{c} << {24 - 8 * i}) >> 24)" for i in range(4)]
            for r in self.rows:
                terms = [f"(a{r}[4 * k + {i}]{flip}) * {weights[i]}" for i in range(4)]
                body.append(f"        s{r}_{c}[v] += {' + '.join(terms)};")
        body += ["    }", "}"]
        body += [loop, *(f"    sums[{at} + v] = {name}[v];" for name, at in places), "}"]
        return ["    {", *(f"        {line}" for line in body), "    }"]
