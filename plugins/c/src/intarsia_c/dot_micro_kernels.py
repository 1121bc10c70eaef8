# SPDX-License-Identifier: Apache-2.0
"""Dot micro-kernels of bytes as C functions: MVE and DSP forms of Arm's M profile, plain C.

A function adds the products of a tile: each of some rows of data with each of some rows of weights,
along K. Operands are packed as Int8x4: four neighbouring bytes are a 32-bit word, and words of the
weights of several columns lie interleaved (``cpu/packing.py``). Data counts as unsigned: signed
bytes are offset by 128. The compiler's own macros choose the form, so one source serves every
processor.

Registers of the 2 x 2 tile: with ``SMLAD`` (Cortex-M4, M7, M33) 4 sums + 4 unpacked halves of A + 2
of B = 10 of 13, beside the pointers; with MVE 2 A + 1 B + 1 vector of offsets = 4 of 8 vectors, and
6 scalar sums. CMSIS-NN's ``arm_nn_mat_mult_nt_t_s8`` has a tile of 2 x 2 for ``SMLAD``, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import PrimExpr
from intarsia_ir.tir.stmt import Stmt

from .tile_functions import NamedTile, TileFunctions, kind_of

DOTS = TileFunctions(
    "ix_dots_", "int32_t *sums", "const int32_t *right", "const void *left", "quads"
)
"""The functions of this module."""


def dot_micro_kernel(
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
    return DOTS.call(sums, left, right, words, kind_of(signed=signed))


def print_dot_micro_kernel(shape: NamedTile) -> str:
    """Return the text of a function of :data:`DOTS`."""
    rows, columns = shape.rows, shape.columns
    tile = _Tile(shape.signed, rows, columns, shape.width)
    lines = [f"static inline void {DOTS.declaration(shape)}", "{"]
    lines += [f"    const uint8_t *a{r} = left{r};" for r in range(rows)]
    lines += [
        f"    int32_t s{r}{c} = sums[{r * columns + c}];"
        for r in range(rows)
        for c in range(columns)
    ]
    lines += ["#if defined(__ARM_FEATURE_MVE)", *tile.mve()]
    lines += ["#elif defined(IX_SIMD32)", *tile.dsp()]
    lines += ["#else", *tile.plain(), "#endif"]
    lines += [
        f"    sums[{r * columns + c}] = s{r}{c};" for r in range(rows) for c in range(columns)
    ]
    return "\n".join([*lines, "}", ""])


class _Tile:
    """The loops of one function in each form.

    Args:
        signed: Whether data is signed.
        rows: Of data.
        columns: Of weights, that are accumulated.
        width: Of weights, that lie interleaved.
    """

    def __init__(self, signed: bool, rows: int, columns: int, width: int) -> None:
        self.signed = signed
        self.rows, self.columns, self.width = range(rows), range(columns), width

    def _next(self, words: int) -> list[str]:
        """Lines that move all pointers on."""
        moves = [f"        a{r} += {4 * words};" for r in self.rows]
        return [*moves, f"        right += {self.width * words};", "    }"]

    def plain(self) -> list[str]:
        """One product after the other."""
        lines = ["    for (; quads > 0; --quads) {"]
        lines += [f"        const uint32_t w{c} = (uint32_t)right[{c}];" for c in self.columns]
        flip = " ^ 0x80" if self.signed else ""
        for byte_number in range(4):
            lines += [
                f"        const int32_t x{r}{byte_number} = a{r}[{byte_number}]{flip};"
                for r in self.rows
            ]
            for c in self.columns:
                byte = f"w{c} >> {8 * byte_number}" if byte_number else f"w{c}"
                lines.append(
                    f"        const int32_t y{c}{byte_number} = (int8_t)(uint8_t)({byte});"
                )
                lines += [
                    f"        s{r}{c} += x{r}{byte_number} * y{c}{byte_number};" for r in self.rows
                ]
        return lines + self._next(1)

    def dsp(self) -> list[str]:
        """Two products at a time: bytes 0 and 2, then 1 and 3.

        ``UXTB16`` and ``SXTB16`` turn a word by a byte and unpack it in one instruction, which
        compilers do not see in the functions of ACLE: 19 instructions for the 16 products of a tile
        of 2 x 2 beside the loop, instead of 23.
        """
        return [
            "    for (; quads > 1; quads -= 2) {",
            *self._dsp_step(0),
            *self._dsp_step(1),
            *self._next(2),
            "    if (quads > 0) {",
            *self._dsp_step(0),
            "    }",
        ]

    def _dsp_step(self, step: int) -> list[str]:
        """Lines for one word of each row and column, so many words on."""
        flip = " ^ 0x80808080U" if self.signed else ""
        lines: list[str] = []
        for r in self.rows:
            at = f"a{r} + {4 * step}" if step else f"a{r}"
            lines += [
                f"uint32_t x{r};",
                f"int16x2_t e{r}, o{r};",
                f"__builtin_memcpy(&x{r}, {at}, 4);",
                *([f"x{r} = x{r}{flip};"] if flip else []),
                *_unpack("uxtb16", f"x{r}", f"e{r}", f"o{r}"),
            ]
        for c in self.columns:
            lines += [
                f"const uint32_t w{c} = (uint32_t)right[{step * self.width + c}];",
                f"int16x2_t f{c}, p{c};",
                *_unpack("sxtb16", f"w{c}", f"f{c}", f"p{c}"),
            ]
            lines += [f"s{r}{c} = __smlad(e{r}, f{c}, s{r}{c});" for r in self.rows]
            lines += [f"s{r}{c} = __smlad(o{r}, p{c}, s{r}{c});" for r in self.rows]
        return ["        {", *(f"            {line}" for line in lines), "        }"]

    def mve(self) -> list[str]:
        """Sixteen at a time; unsigned data moved down by 128, which the sum of the weights undoes.

        Vectors of weights are gathered, since those of several rows lie interleaved. Only the last
        vectors of a row are predicated: each access with a predicate is an instruction more.
        """
        steps = ", ".join(f"{self.width * lane}U" for lane in range(4))
        return [
            f"    const uint32_t steps[4] = {{{steps}}};",
            "    const uint32x4_t at = vldrwq_u32(steps);",
            *(f"    int32_t t{c} = 0;" for c in self.columns),
            "    for (; quads >= 4; quads -= 4) {",
            *self._mve_step(""),
            *self._next(4),
            "    if (quads > 0) {",
            "        const mve_pred16_t p = vctp32q((uint32_t)quads);",
            *self._mve_step("p"),
            "    }",
            *(f"    s{r}{c} += t{c} * 128;" for r in self.rows for c in self.columns),
        ]

    def _mve_step(self, predicate: str) -> list[str]:
        """Lines for four words of each row and column, those of a predicate if there is one."""
        form, last = ("_z", f", {predicate}") if predicate else ("", "")
        lines: list[str] = []
        for r in self.rows:
            data = f"vldrbq{form}_s8((const int8_t *)a{r}{last})"
            lines.append(
                f"        const int8x16_t x{r} = {data};"
                if self.signed
                else f"        const int8x16_t x{r} = veorq_s8({data}, vdupq_n_s8(INT8_MIN));"
            )
        for c in self.columns:
            base = f"right + {c}" if c else "right"
            gathered = f"vldrwq_gather_shifted_offset{form}_s32({base}, at{last})"
            lines.append(f"        const int8x16_t y{c} = vreinterpretq_s8_s32({gathered});")
            lines += [f"        s{r}{c} = vmladavaq_s8(s{r}{c}, x{r}, y{c});" for r in self.rows]
            lines.append(f"        t{c} = vaddvaq_s8(t{c}, y{c});")
        return lines


def _unpack(instruction: str, word: str, even: str, odd: str) -> list[str]:
    """Lines that make two pairs of 16 bits of the bytes of a word."""
    operands = f'"=r"({{}}) : "r"({word})'
    return [
        f'__asm__("{instruction} %0, %1" : {operands.format(even)});',
        f'__asm__("{instruction} %0, %1, ror #8" : {operands.format(odd)});',
    ]
