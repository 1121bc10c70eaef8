# SPDX-License-Identifier: Apache-2.0
"""The form of row kernels for the vectors of Arm's M profile (MVE); see :mod:`.row_kernels`.

Registers: 1 vector of weights + 2 of the panel; 4 sums in even scalar registers, as ``VMLADAVA``
wants them, 2 pointers and the counter of the low-overhead loop.
"""

from __future__ import annotations

from msgspec import Struct

from .byte_results import VECTOR_UNIT, Bytes, byte_lines, indented

_WORDS_OF_A_VECTOR = 4
_COUNTED = (
    "#if defined(__GNUC__) /* a loop of a number, not of the distance of two pointers */",
    '__asm__("" : "+r"(k));',
    "#endif",
)


class RowKernel(Struct, frozen=True):
    """What the name of a function says.

    Attributes:
        rows: Rows of the panel that are multiplied.
        panel: Rows that the panel has places for.
        width: Columns of weights that lie interleaved.
        result: What sums become; ``None`` if they are stored.
        words: Int8x4 words of a row, if they are few enough to be written out; else 0.
    """

    rows: int
    panel: int
    width: int
    result: Bytes | None
    words: int = 0

    @property
    def element(self) -> str:
        """Type of a result."""
        return "int32_t" if self.result is None else self.result.element


def mve_rows(kernel: RowKernel) -> list[str]:
    """A column of all rows after the other, and four columns to bytes; gathers interleaved ones."""
    width, result = kernel.width, kernel.result
    steps = ", ".join(f"{width * lane}U" for lane in range(4))
    gathered = [
        f"    const uint32_t steps[4] = {{{steps}}};",
        "    const uint32x4_t at = vldrwq_u32(steps);",
    ]
    few = kernel.words > 0 and result is not None
    return [
        *(gathered if width > 1 else ["    const int32_t *w = right;"]),
        "    intptr_t c = 0;",
        *(indented(1, _mve_few_words(result, kernel.words)) if few and result else []),
        "    for (; c < columns; c += 4) {",
        "        const intptr_t some = columns - c < 4 ? columns - c : 4;",
        *([] if result is None else [f"        int32_t t[{4 * kernel.rows}];"]),
        "        intptr_t j = 0;",
        *(indented(2, _mve_four_columns(kernel)) if kernel.rows == width == 1 else []),
        "        for (; j < some; ++j) {",
        *indented(3, _mve_column(kernel)),
        "        }",
        *([] if result is None else indented(2, _mve_bytes(kernel.rows, result))),
        "    }",
    ]


def _mve_column(kernel: RowKernel) -> list[str]:
    """Lines that multiply column ``c + j`` with all rows."""
    rows, width = range(kernel.rows), kernel.width
    loop = [
        "for (; k > 0; --k) {",
        *indented(1, _mve_step(kernel, "")),
        f"    a += {16 * kernel.panel};",
        f"    w += {4 * width};",
        "}",
    ]
    if width == 1 and kernel.panel > 1:
        by_hand = ["if (k > 0) {", *indented(1, _mve_loop(kernel)), "}"]
        loop = ["#if defined(__GNUC__)", *by_hand, "#else", *loop, "#endif"]
    place = f"(c + j) / {width} * {width} * words + (c + j) % {width}"
    return [
        "const int8_t *a = (const int8_t *)panel;",
        *([] if width == 1 else [f"const int32_t *w = right + {place};"]),
        *(f"int32_t s{r} = start[c + j];" for r in rows),
        *(["int32_t all = 0;"] if kernel.panel == 1 else []),
        "intptr_t k = words / 4;",
        *_COUNTED,
        *loop,
        "if (words % 4 != 0) {",
        "    const mve_pred16_t p = vctp32q((uint32_t)words % 4);",
        *indented(1, _mve_step(kernel, "p")),
        *(["    w += words % 4;"] if width == 1 else []),
        "}",
        *(["s0 += 128 * all;"] if kernel.panel == 1 else []),
        *(
            f"out[c + j{f' + {r} * columns' if r else ''}] = s{r};"
            if kernel.result is None
            else f"t[{4 * r} + j] = s{r};"
            for r in rows
        ),
    ]


def _mve_step(kernel: RowKernel, predicate: str) -> list[str]:
    """Lines for one vector of a column and of each row."""
    form, last = ("_z", f", {predicate}") if predicate else ("", "")
    load = f"vldrbq{form}_s8((const int8_t *)w{last})"
    if kernel.width > 1:
        gathered = f"vldrwq_gather_shifted_offset{form}_s32(w, at{last})"
        load = f"vreinterpretq_s8_s32({gathered})"
    return [
        f"const int8x16_t y = {load};",
        *(f"s{r} = vmladavaq_s8(s{r}, vldrbq_s8(a + {16 * r}), y);" for r in range(kernel.rows)),
        *(["all = vaddvaq_s8(all, y);"] if kernel.panel == 1 else []),
    ]


def _mve_loop(kernel: RowKernel) -> list[str]:
    """Lines that do ``k`` vectors of a column: one pointer for all rows, and no address to add."""
    code = ["dls lr, %[k]", "1:", "vldrb.u8 q0, [%[w]], #16"]
    for r in [*range(1, kernel.rows), 0]:
        place = f"[%[a], #{16 * r}]" if r else f"[%[a]], #{16 * kernel.panel}"
        code += [f"vldrb.u8 q{1 + r % 2}, {place}", f"vmladava.s8 %[s{r}], q{1 + r % 2}, q0"]
    code.append("le lr, 1b")
    outputs = ['[a] "+r"(a)', '[w] "+r"(w)']
    outputs += [f'[s{r}] "+Te"(s{r})' for r in range(kernel.rows)]
    return [
        "__asm__(",
        *(f'    "{line}\\n\\t"' for line in code),
        f"    : {', '.join(outputs)}",
        '    : [k] "r"(k)',
        '    : "lr", "q0", "q1", "q2", "memory");',
    ]


def _mve_four_columns(kernel: RowKernel) -> list[str]:
    """Lines for four columns of a single row: weights are what a panel is to several rows."""
    columns = range(4)

    def step(predicate: str) -> list[str]:
        form, last = ("_z", f", {predicate}") if predicate else ("", "")
        load = f"vldrbq{form}_s8({{}}{last})"
        return [
            "const int8x16_t x = vldrbq_s8(a);",
            *(f"const int8x16_t y{c} = {load.format(f'w{c}')};" for c in columns),
            *(f"s{c} = vmladavaq_s8(s{c}, x, y{c});" for c in columns),
            *(f"all{c} = vaddvaq_s8(all{c}, y{c});" for c in columns if kernel.panel == 1),
        ]

    out = "t[{}]" if kernel.result is not None else "out[c + {}]"
    return [
        "if (some == 4) {",
        *indented(1, [
            "const int8_t *a = (const int8_t *)panel, *w0 = (const int8_t *)w;",
            *(f"const int8_t *w{c} = w{c - 1} + 4 * words;" for c in columns[1:]),
            *(f"int32_t s{c} = start[c + {c}];" for c in columns),
            *(f"int32_t all{c} = 0;" for c in columns if kernel.panel == 1),
            "intptr_t k = words / 4;",
            *_COUNTED,
            "for (; k > 0; --k) {",
            *indented(1, [*step(""), f"a += {16 * kernel.panel};"]),
            *indented(1, [f"w{c} += 16;" for c in columns]),
            "}",
            "if (words % 4 != 0) {",
            *indented(1, ["const mve_pred16_t p = vctp32q((uint32_t)words % 4);", *step("p")]),
            "}",
            *(f"s{c} += 128 * all{c};" for c in columns if kernel.panel == 1),
            *(f"{out.format(c)} = s{c};" for c in columns),
            "w += 4 * words;",
            "j = 4;",
        ]),
        "}",
    ]  # fmt: skip


def _mve_few_words(result: Bytes, words: int) -> list[str]:
    """Lines that do four columns of four rows at a time, all vectors written out.

    A row is multiplied with four columns, whose sums go from scalar registers to lanes two at a
    time. Vectors: 4 columns + a row, that becomes its sums + start or scale + results of 16 and of
    8 bits = 8 of 8. ``VQMOVN`` narrows two rows into one vector, and two of those into bytes, whose
    words are a column of four rows. 16 results take 56 instructions and 9 for each vector of a row;
    columns of one vector are loaded once.
    """
    vectors = -(-words // _WORDS_OF_A_VECTOR)
    code: list[str] = []
    if words % _WORDS_OF_A_VECTOR:
        # Compilers have no common name for the predicate, so the statement gives it back.
        code = ["vmrs %[p], p0", f"mov %[s0], #{words % 4}", "vctp.32 %[s0]"]
    code += _mve_columns(words, 0) if vectors == 1 else []
    for r in range(4):
        moved = "], #16" if r == 3 else "]"
        for v in range(vectors):
            code += _mve_columns(words, v) if vectors > 1 else []
            code.append(f"vldrw.u32 q4, [%[a], #{16 * (4 * v + r)}]")
            added = "vmladava" if v else "vmladav"
            code += [f"{added}.s8 %[s{c}], q4, q{c}" for c in range(4)]
        code += [
            "vmov q4[2], q4[0], %[s0], %[s2]",
            "vmov q4[3], q4[1], %[s1], %[s3]",
            f"vldrw.u32 q5, [%[start]{moved}",
            "vadd.i32 q4, q4, q5",
            "vcvt.f32.s32 q4, q4",
            f"vldrw.u32 q5, [%[scales]{moved}",
            "vmul.f32 q4, q4, q5",
            "vcvtn.s32.f32 q4, q4",
            f"vqmovn{'bt'[r % 2]}.s32 q6, q4",
            *(_mve_narrow(result, r // 2) if r % 2 else []),
        ]
    code.append("vstrb.32 q7, [%[to]]")
    for shift in (16, 8, 24):  # rows 1, 2 and 3
        code += [f"vshr.u32 q6, q7, #{shift}", "add %[to], %[columns]", "vstrb.32 q6, [%[to]]"]
    code += ["add %[to], %[back]", f"add %[w], #{16 * words}"]
    code += ["vmsr p0, %[p]"] if words % _WORDS_OF_A_VECTOR else []
    return _mve_block(result, code)


def _mve_columns(words: int, vector: int) -> list[str]:
    """Instructions that load a vector of each of four columns."""
    part = words - _WORDS_OF_A_VECTOR * vector < _WORDS_OF_A_VECTOR
    load = "vldrwt.u32" if part else "vldrw.u32"
    loads = [f"{load} q{c}, [%[w], #{4 * words * c + 16 * vector}]" for c in range(4)]
    return ["vpstttt", *loads] if part else loads


def _mve_narrow(result: Bytes, half: int) -> list[str]:
    """Instructions that make bytes of two rows of 16 bits."""
    narrow = "vqmovun" if result.kind == "u" else "vqmovn"
    add = ["vqadd.s16 q6, q6, %[zero]"] if result.has_zero else []
    return [*add, f"{narrow}{'bt'[half]}.s16 q7, q6"]


def _mve_block(result: Bytes, code: list[str]) -> list[str]:
    """Lines around the statement for a block of four columns."""
    outputs = [f'[s{c}] "=&Te"(s{c})' for c in range(4)]
    outputs += [f'[{name}] "+r"({name})' for name in ("w", "start", "scales")]
    outputs += ['[to] "+l"(to)']
    inputs = ['[a] "r"(panel)', '[columns] "r"(columns)', '[back] "r"(4 - 3 * columns)']
    inputs += ['[zero] "r"(zero)'] if result.has_zero else []
    predicate = "vmrs %[p], p0" in code
    outputs += ['[p] "=&r"(p)'] if predicate else []
    vectors = ", ".join(f'"q{n}"' for n in range(8))
    return [
        f"#if defined(__GNUC__) && {VECTOR_UNIT}",
        f"{result.element} *to = out;",
        "for (; c + 4 <= columns; c += 4) {",
        f"    int32_t s0, s1, s2, s3{', p' if predicate else ''};",
        "    __asm__ volatile(",
        *(f'        "{line}\\n\\t"' for line in code),
        f"        : {', '.join(outputs)}",
        f"        : {', '.join(inputs)}",
        f'        : {vectors}, "memory");',
        "}",
        "start -= c;",
        "scales -= c;",
        "#endif",
    ]


def _mve_bytes(rows: int, result: Bytes) -> list[str]:
    """Lines that make bytes of four sums of each row."""
    low, high = result.limits
    value = "vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(vldrwq_s32(t + {})), scale))"
    add = "vqaddq_n_s32({}, zero)" if result.has_zero else "{}"
    lines = [
        "const mve_pred16_t p = vctp32q((uint32_t)some);",
        "const float32x4_t scale = vldrwq_z_f32(scales + c, p);",
    ]
    for r in range(rows):
        place = f"(int8_t *)out + c{f' + {r} * columns' if r else ''}"
        clamped = f"vmaxq_s32(vminq_s32(x{r}, vdupq_n_s32({high})), vdupq_n_s32({low}))"
        lines += [
            f"const int32x4_t x{r} = {add.format(value.format(4 * r))};",
            f"vstrbq_p_s32({place}, {clamped}, p);",
        ]
    one = byte_lines(result, "t[4 * r + i]", "scales[c + i]", "out[c + i + r * columns]")
    return [
        f"#if {VECTOR_UNIT}",
        *lines,
        "#else",
        "for (intptr_t i = 0; i < some; ++i) {",
        f"    for (intptr_t r = 0; r < {rows}; ++r) {{",
        *indented(2, one),
        "    }",
        "}",
        "#endif",
    ]
