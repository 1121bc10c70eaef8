# SPDX-License-Identifier: Apache-2.0
"""Products of some rows of bytes with all columns of weights, as C functions.

A kernel first unpacks up to four rows into a *panel*, once for all columns, then goes through the
weights::

    ix_start_*     start[c] = bias[c], and what the form of the sums lacks
    ix_pack_*      panel = rows that lie behind each other      (row_panels.py)
    ix_window_*    panel = the windows of neighbouring results, padded
    ix_rows_*      sums[r, c] = start[c] + row r of the panel . column c
    ix_bytes_*     the same, and out[r, c] = saturate(round(float(sum) * scale[c]) + zero)

Each is written with the vectors of Arm's M profile (MVE), with its DSP instructions, and plain; the
compiler's macros choose, so one source serves every processor. Weights are packed Int8x4 words,
``[blocks, K / 4, width]``. Data counts as unsigned: signed bytes are offset by 128.

- DSP: the panel holds 16-bit pairs, ``[K / 4, rows, 2]`` words, so that the loop unpacks weights
  only. For 16 products of 4 rows x 1 column: 1 load + 2 ``SXTB16`` of weights, 2 ``LDM`` of four
  words of the panel, 8 ``SMLAD``: 13 instructions. Registers: 4 sums + 2 halves of the weight + 4
  of the panel + 2 pointers + the end = 13 of 14. CMSIS-NN's convolution unpacks columns of im2col
  for all channels, too; two of them. Short rows are written out, and begin without a ``MOV`` of
  the start for each row; a ``VMOV`` moves two sums to the registers of floats, or two results back.
- MVE: the panel holds signed bytes, vectors of the rows interleaved: 5 loads + 4 ``VMLADAVA`` for
  64 products. Unsigned data are 128 less there; ``start`` has 128 times the sum of the weights.
  Rows of up to 64 bytes, whose words are in the name, take four columns of a row together.
"""

from __future__ import annotations

import re

from .byte_results import SCALAR_UNIT, Bytes, byte_lines, indented, scalar_byte_lines
from .row_kernels_mve import RowKernel, mve_rows

_NAME = re.compile(r"ix_(?:rows|bytes_([ui])8(_0)?)_([1-4])of([1-4])x([1-4])(?:k(\d+))?")
_PANEL_REGISTERS = ("r4", "r5", "r6", "r8")  # ascending, as LDM wants; r7 may be a frame pointer
_PANEL_ROWS = 4
_FEW_WORDS = 16  # of a row that is four vectors
_WRITTEN_OUT = 9  # of a row that takes 117 instructions with DSP
_START = re.compile(r"ix_start(_one)?_([1-4])(_bias)?")


def rows_name(rows: int, panel: int, width: int) -> str:
    """Return the name of the function that writes sums."""
    return f"ix_rows_{rows}of{panel}x{width}"


def bytes_name(rows: int, panel: int, width: int, result: Bytes, words: int) -> str:
    """Return the name of the function that writes bytes.

    Few ``words`` of a row of full panels are part of it.
    """
    few = rows == panel == _PANEL_ROWS and width == 1 and words <= _FEW_WORDS
    return f"ix_bytes_{result.name}_{rows}of{panel}x{width}{f'k{words}' if few else ''}"


def start_name(panel: int, width: int, *, has_bias: bool) -> str:
    """Return the name of the function that writes what sums start from."""
    return f"ix_start{'_one' if panel == 1 else ''}_{width}{'_bias' if has_bias else ''}"


def row_kernel_arguments(name: str) -> int | None:
    """Return how many arguments a function takes; ``None`` if the name is of no row kernel."""
    match = _START.fullmatch(name)
    if match:
        return 5 if match[3] else 4
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return 6 if match[1] is None else 8


def print_row_kernel(name: str) -> str:
    """Return the text of a function whose name is one of this module's."""
    match = _START.fullmatch(name)
    if match:
        has_bias, is_one = match[3] is not None, match[1] is not None
        return _print_start(name, int(match[2]), has_bias=has_bias, is_one=is_one)
    match = _NAME.fullmatch(name)
    assert match is not None  # as of every name that this module makes
    rows, panel, width, words = (int(number or 0) for number in match.groups()[2:])
    result = None if match[1] is None else Bytes(match[1], match[2] is None)
    kernel = RowKernel(rows, panel, width, result, words)
    scales, zero = "", ""
    if result is not None:
        scales, zero = " const float *scales,", ", int32_t zero"
    lines = [
        f"IX_KERNEL {name}({kernel.element} *out,{scales} const int32_t *start,",
        "          const int32_t *right, const int32_t *panel, intptr_t words,",
        f"          intptr_t columns{zero})",
        "{",
        "#if defined(__ARM_FEATURE_MVE)",
        *mve_rows(kernel),
        "#elif defined(IX_SIMD32)",
        *_dsp(kernel),
        "#else",
        *_plain(kernel),
        "#endif",
        *([] if result is None or result.has_zero else ["    (void)zero;"]),
        "}",
        "",
    ]
    return "\n".join(lines)


def _print_start(name: str, width: int, *, has_bias: bool, is_one: bool) -> str:
    """Write what the sums of ``columns`` columns start from, zeros behind the last one.

    The weights of a single row are added up where they are multiplied.
    """
    bias = "const int32_t *bias, " if has_bias else ""
    contiguous = """\
        intptr_t bytes = 4 * words;
        for (; bytes >= 16; bytes -= 16) {
            sum = vaddvaq_s8(sum, vldrbq_s8(w));
            w += 16;
        }
        if (bytes > 0) {
            sum = vaddvaq_s8(sum, vldrbq_z_s8(w, vctp8q((uint32_t)bytes)));
            w += bytes;
        }"""
    interleaved = f"""\
        const int8_t *w = (const int8_t *)(right + c / {width} * {width} * words + c % {width});
        for (intptr_t k = 0; k < words; ++k) {{
            sum += w[0] + w[1] + w[2] + w[3];
            w += {4 * width};
        }}"""
    sums = contiguous if width == 1 else interleaved
    vectors = "0" if is_one else "defined(__ARM_FEATURE_MVE)"
    pointer = "    const int8_t *w = (const int8_t *)right;" if width == 1 else ""
    return f"""\
static inline void {name}(int32_t *start, {bias}const int32_t *right, intptr_t words,
                          intptr_t columns)
{{
#if {vectors}
{pointer}
#endif
    for (intptr_t c = 0; c < columns; ++c) {{
        start[c] = {"bias[c]" if has_bias else "0"};
#if {vectors}
        int32_t sum = 0;
{sums}
        start[c] += 128 * sum;
#endif
    }}
    for (intptr_t c = columns; c % {width} != 0; ++c) {{
        start[c] = 0;
    }}
    (void)right;
    (void)words;
}}
"""


def _dsp(kernel: RowKernel) -> list[str]:
    """A block of columns at a time; two words of K a turn, or all of few."""
    rows, width = range(kernel.rows), range(kernel.width)
    if 0 < kernel.words <= _WRITTEN_OUT:
        products = _dsp_step(kernel, kernel.words, begins=True)
        sums = [f"int32_t s{kernel.rows - 1}0 = start[c];"]
        sums += [f"int32_t s{r}0;" for r in rows[:-1]]
    else:
        products = ["do {", *indented(1, _dsp_step(kernel, 2)), "} while (a != end);"]
        if kernel.words == 0:
            products = ["while (a != end) {", *products[1:-1], "}", "if (words & 1) {"]
            products += [*indented(1, _dsp_step(kernel, 1)), "}"]
        elif kernel.words % 2:
            products += _dsp_step(kernel, 1)
        sums = [f"int32_t s{r}{j} = start[c + {j}];" for r in rows for j in width]
    turns = kernel.words // 2 if kernel.words else "words / 2"
    return [
        f"    const int32_t *const end = panel + {turns} * {4 * kernel.panel};",
        "    intptr_t c = 0;",
        *(["    (void)words;", "    (void)end;"] if kernel.words else []),
        "    while (c < columns) {",
        "        const int32_t *a = panel;",
        *indented(2, [*sums, *products, *_dsp_stores(kernel)]),
        "    }",
    ]


def _dsp_stores(kernel: RowKernel) -> list[str]:
    """Lines that store the sums of a block of columns, and move ``c`` on."""
    lines: list[str] = []
    for column in range(kernel.width):
        block = _dsp_column(kernel, column)
        if kernel.result is not None and kernel.rows in (2, 4):
            pairs = _dsp_pairs(kernel.result, [f"s{r}{column}" for r in range(kernel.rows)])
            block = [f"#if {SCALAR_UNIT}", *pairs, "#else", *block, "#endif"]
        if kernel.width > 1:
            block = ["if (c < columns) {", *indented(1, block), "}"]
        lines += [*block, "++c;"]
    return lines


def _dsp_column(kernel: RowKernel, column: int) -> list[str]:
    """Lines that store the sums of a column, one row after the other."""
    scale = ["const float scale = scales[c];"] if kernel.result is not None else []
    stored = [*scale, f"{kernel.element} *to = out + c;"]
    for r in range(kernel.rows):
        if r:
            stored.append("to += columns;")
            stored.append('__asm__("" : "+r"(to)); /* one pointer, not one for each row */')
        if kernel.result is None:
            stored.append(f"*to = s{r}{column};")
        else:
            lines = scalar_byte_lines(kernel.result, f"s{r}{column}", "scale", "*to")
            stored += ["{", *indented(1, lines), "}"]
    return ["{", *indented(1, stored), "}"]


def _dsp_pairs(result: Bytes, sums: list[str]) -> list[str]:
    """Lines that store two or four sums; a ``VMOV`` moves two to the registers of floats or back.

    Six instructions a byte, seven with a zero point.
    """
    rows = range(len(sums))
    code = [f"vmov s{r}, s{r + 1}, %[{sums[r]}], %[{sums[r + 1]}]" for r in rows[::2]]
    code.append("vldmia %[scales]!, {s4}")
    code += [f"vcvt.f32.s32 s{r}, s{r}" for r in rows]
    code += [f"vmul.f32 s{r}, s{r}, s4" for r in rows]
    code += [f"vcvtr.s32.f32 s{r}, s{r}" for r in rows]
    code += [f"vmov %[{sums[r]}], %[{sums[r + 1]}], s{r}, s{r + 1}" for r in rows[::2]]
    if result.has_zero:
        code += [f"qadd %[{name}], %[{name}], %[zero]" for name in sums]
    saturate = "ssat" if result.kind == "i" else "usat"
    code += [f"{saturate} %[{name}], #8, %[{name}]" for name in sums]
    code.append(f"strb %[{sums[1]}], [%[to], %[columns]]")
    if len(sums) > 2:
        code += [
            f"strb %[{sums[2]}], [%[to], %[columns], lsl #1]",
            f"add %[{sums[1]}], %[to], %[columns]",
            f"strb %[{sums[3]}], [%[{sums[1]}], %[columns], lsl #1]",
        ]
    code.append(f"strb %[{sums[0]}], [%[to]], #1")
    outputs = ", ".join(f'[{name}] "+r"({name})' for name in sums)
    outputs += ', [scales] "+r"(scales), [to] "+r"(out)'
    inputs = ['[columns] "r"(columns)', *(['[zero] "r"(zero)'] if result.has_zero else [])]
    floats = ", ".join(f'"s{r}"' for r in [*rows, 4])
    return [
        "__asm__ volatile(",
        *(f'    "{line}\\n\\t"' for line in code),
        f"    : {outputs}",
        f"    : {', '.join(inputs)}",
        f'    : {floats}, "memory");',
    ]


def _dsp_step(kernel: RowKernel, words: int, *, begins: bool = False) -> list[str]:
    """Lines for some words of each row and column; they move the pointers on.

    One statement has the registers that it needs, and no others: compilers would load words of the
    next step early, and spill two pointers for them. Several columns are only those of one row.
    Where it ``begins``, the last row has what all sums start from.
    """
    columns, rows = range(kernel.width), range(kernel.rows)
    code: list[str] = []
    for word in range(words):
        starts = f"s{kernel.rows - 1}0" if begins and word == 0 else None
        code += _dsp_word(kernel, starts)
    outputs = ['[a] "+r"(a)', '[w] "+r"(right)', '[f] "=&r"(f)', '[p] "=&r"(p)']
    outputs += [
        f'[s{r}{c}] "{"=&r" if begins and r < kernel.rows - 1 else "+r"}"(s{r}{c})'
        for r in rows
        for c in columns
    ]
    clobbered = ", ".join(f'"{name}"' for name in _PANEL_REGISTERS[: 2 * min(2, kernel.rows)])
    return [
        "{",
        "    int32_t f, p;",
        "    __asm__(",
        *(f'        "{line}\\n\\t"' for line in code),
        f"        : {', '.join(outputs)}",
        "        :",
        f'        : {clobbered}, "cc", "memory");',
        "}",
    ]


def _dsp_word(kernel: RowKernel, starts: str | None) -> list[str]:
    """Instructions for one word of each row and column, whose sums may start from a register."""
    columns = range(kernel.width)
    unpacked = ["ldr %[f], [%[w]], #4", "sxtb16 %[p], %[f], ror #8", "sxtb16 %[f], %[f]"]
    code: list[str] = []
    for first in range(0, kernel.rows, 2):
        pair = range(first, min(first + 2, kernel.rows))
        names = _PANEL_REGISTERS[: 2 * len(pair)]
        loaded = f"ldmia %[a]!, {{{', '.join(names)}}}"

        products = [
            [
                f"smlad %[s{r}{c}], {names[2 * (r - first) + half]}, %[{weight}], "
                f"%[{starts if starts and not half else f's{r}{c}'}]"
                for half, weight in enumerate("fp")
                for r in pair
            ]
            for c in columns
        ]
        if kernel.width == 1:
            code += [*([] if first else unpacked), loaded, *products[0]]
        else:
            code += [loaded, *(line for each in products for line in (*unpacked, *each))]
    skipped = 8 * (kernel.panel - kernel.rows)
    return [*code, f"adds %[a], #{skipped}"] if skipped else code


def _plain(kernel: RowKernel) -> list[str]:
    """One column of all rows after the other, byte by byte."""
    rows, width = range(kernel.rows), kernel.width
    stored_lines: list[str] = []
    for r in rows:
        place = f"out[c{f' + {r} * columns' if r else ''}]"
        if kernel.result is None:
            stored_lines.append(f"{place} = s{r};")
        else:
            lines = byte_lines(kernel.result, f"s{r}", "scales[c]", place)
            stored_lines += ["{", *indented(1, lines), "}"]
    return [
        "    const intptr_t apart = (words + 3) / 4 * 16;",
        "    for (intptr_t c = 0; c < columns; ++c) {",
        f"        const int8_t *w = (const int8_t *)(right + c / {width} * {width} * words"
        f" + c % {width});",
        "        const uint8_t *a = (const uint8_t *)panel;",
        *(f"        int32_t s{r} = start[c];" for r in rows),
        "        for (intptr_t k = 0; k < words; ++k) {",
        "            for (intptr_t i = 0; i < 4; ++i) {",
        *(f"                s{r} += a[i + {r} * apart] * w[i];" for r in rows),
        "            }",
        "            a += 4;",
        f"            w += {4 * width};",
        "        }",
        *indented(2, stored_lines),
        "    }",
        "    (void)apart;",
    ]
