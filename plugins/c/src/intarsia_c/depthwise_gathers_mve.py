# SPDX-License-Identifier: Apache-2.0
"""Depthwise windows of up to 4x4 taps with MVE: all taps of a channel are one vector.

A strip has 64 bytes for each column of a block of 16 channels: for each channel a word, whose bytes
lie below each other in the image (``VST4`` interleaves four rows). A window of a channel is then
one gather of four words, and its sum one ``VMLADAV`` with the channel's weights, that stay in a
register; places without a tap have the weight 0. Windows of three rows, one row apart, have two in
a word, so two rows of results share the gathers: 4 pixels of both take 4 gathers, 8 ``VMLADAV`` and
16 instructions that make bytes of them.

Registers: 2 weights + 1 of places + 1 of data, and 2 of sums, that become bytes + 1 of distances of
results = 7 of 8; 4 sums in even scalar registers.
"""

from __future__ import annotations

from .byte_results import indented
from .depthwise_shape import GATHERED_COLUMN_WORDS, DepthwiseShape

_BYTES = 4 * GATHERED_COLUMN_WORDS  # of a column of a strip


def mve_gathered_depthwise(shape: DepthwiseShape) -> list[str]:
    """Lines of a function whose windows are gathered."""
    channels, (rows, columns) = shape.size[2], shape.output
    pairs = _rows_of_results(shape)
    apart = _BYTES * shape.dilation[1]
    element = shape.result.element
    return [
        *indented(1, [_places("taps_at", apart), _places("tap_columns", _BYTES)]),
        *indented(1, [_places("pixels_at", channels)]),
        f"    int8_t taps[{4 * _BYTES}];",
        *indented(1, _blank_columns(shape)),
        f"    for (intptr_t c = 0; c < {channels}; c += 16) {{",
        f"        const mve_pred16_t some = vctp8q((uint32_t)({channels} - c));",
        *indented(2, _weights(shape)),
        f"        for (intptr_t y = 0; y < {rows}; y += {pairs}) {{",
        *indented(3, _strip(shape)),
        f"            for (intptr_t h = 0; h < 16 && c + h < {channels}; ++h) {{",
        "                const int8x16_t w0 = vreinterpretq_s8_u32(vldrwq_gather_offset_u32(",
        "                    (const uint32_t *)(const void *)(taps + 4 * h), "
        "vldrwq_u32(tap_columns)));",
        *(
            ["                const int8x16_t w1 = vreinterpretq_s8_u32("
             "vshlq_n_u32(vreinterpretq_u32_s8(w0), 8));"]
            if pairs == 2 else []
        ),
        f"                const int32_t first = start[c + h]"
        f"{'' if shape.signed else ' + 128 * vaddvq_s8(w0)'};",
        "                int32_t scale;",
        "                __builtin_memcpy(&scale, scales + c + h, 4);",
        "                uint32x4_t at = vaddq_n_u32(vldrwq_u32(taps_at), "
        "(uint32_t)((const int8_t *)strip + 4 * h));",
        "                const uint32x4_t to_at = vldrwq_u32(pixels_at);",
        f"                {element} *to = out + y * {columns * channels} + c + h;",
        *indented(4, _pixels(shape, pairs)),
        "            }",
        "        }",
        "    }",
    ]  # fmt: skip


def _places(name: str, apart: int) -> str:
    """Return the line that declares four places."""
    places = ", ".join(f"{apart * n}U" for n in range(4))
    return f"static const uint32_t {name}[4] = {{{places}}};"


def _rows_of_results(shape: DepthwiseShape) -> int:
    """Return how many rows of results a word of four rows serves."""
    whole = shape.kernel[0] < 4 and shape.strides[0] == shape.dilation[0] == 1
    return 2 if whole and shape.output[0] > 1 else 1


def _blank_columns(shape: DepthwiseShape) -> list[str]:
    """Lines that write the columns of padding, which all strips have."""
    left = min(shape.padding[1], shape.columns)
    right = shape.columns - left - _inside(shape)
    lines: list[str] = []
    for begin, count in ((0, left), (shape.columns - right, right)):
        if count:
            lines += [
                f"for (intptr_t k = 0; k < {4 * count}; ++k) {{",
                f"    vstrbq_s8((int8_t *)strip + {_BYTES * begin} + 16 * k, "
                f"vdupq_n_s8((int8_t){_blank(shape)}));",
                "}",
            ]
    return lines


def _blank(shape: DepthwiseShape) -> int:
    """Return the zero point as a strip has it."""
    return (shape.zero & 255) ^ (0 if shape.signed else 128)


def _inside(shape: DepthwiseShape) -> int:
    """Return the columns of a strip that are in the image."""
    return max(0, min(shape.size[1], shape.columns - shape.padding[1]))


def _weights(shape: DepthwiseShape) -> list[str]:
    """Lines that interleave the rows of taps of the block, and zeros for those that are none."""
    (kh, kw), channels = shape.kernel, shape.size[2]
    lines = ["int8x16x4_t v;"]
    for j in range(4):
        for r in range(4):
            place = f"weights + {(r * kw + j) * channels} + c"
            value = f"vldrbq_z_s8({place}, some)" if r < kh and j < kw else "vdupq_n_s8(0)"
            lines.append(f"v.val[{r}] = {value};")
        lines.append(f"vst4q_s8(taps + {_BYTES * j}, v);")
    return lines


def _strip(shape: DepthwiseShape) -> list[str]:
    """Lines that interleave four rows of the image; those outside are the zero point."""
    height, width, channels = shape.size
    rows = shape.kernel[0] + _rows_of_results(shape) - 1
    flip = "{}" if shape.signed else "veorq_s8({}, vdupq_n_s8(INT8_MIN))"
    load = "vldrbq_z_s8(p[{}], some)" if channels % 16 else "vldrbq_s8(p[{}])"
    return [
        "const int8_t *p[4];",
        "intptr_t step[4];",
        "int8_t blank[16];",
        f"vstrbq_s8(blank, vdupq_n_s8((int8_t){shape.zero & 255}));",
        "for (intptr_t r = 0; r < 4; ++r) {",
        f"    const intptr_t i = y * {shape.strides[0]} + r * {shape.dilation[0]}"
        f" - {shape.padding[0]};",
        f"    const int inside = r < {rows} && i >= 0 && i < {height};",
        f"    p[r] = inside ? (const int8_t *)image + i * {width * channels} + c : blank;",
        f"    step[r] = inside ? {channels} : 0;",
        "}",
        f"int8_t *d = (int8_t *)strip + {_BYTES * min(shape.padding[1], shape.columns)};",
        f"for (intptr_t k = {_inside(shape)}; k > 0; --k) {{",
        *(f"    v.val[{r}] = {flip.format(load.format(r))};" for r in range(4)),
        "    vst4q_s8(d, v);",
        *(f"    p[{r}] += step[{r}];" for r in range(4)),
        f"    d += {_BYTES};",
        "}",
    ]


def _pixels(shape: DepthwiseShape, pairs: int) -> list[str]:
    """Lines that compute a row of results of a channel, or two, four pixels at a time."""
    columns, channels = shape.output[1], shape.size[2]
    lines: list[str] = []
    if columns >= 4:
        lines += [
            f"for (intptr_t x = {columns // 4}; x > 0; --x) {{",
            *indented(1, _four(shape, pairs, "")),
            f"    at = vaddq_n_u32(at, {4 * _BYTES * shape.strides[1]}U);",
            f"    to += {4 * channels};",
            "}",
        ]
    if columns % 4:
        lines += [
            "{",
            f"    const mve_pred16_t part = vctp32q({columns % 4});",
            *indented(1, _four(shape, pairs, "part")),
            "}",
        ]
    return lines


def _four(shape: DepthwiseShape, pairs: int, predicate: str) -> list[str]:
    """Lines that compute four pixels; stores mask those behind the last one."""
    step = _BYTES * shape.strides[1]
    code: list[str] = []
    for low in (0, 1):
        for n, place in enumerate((low, low + 2)):
            code.append(f"vldrw.u32 %q[x], [%q[at], #{step * place}]")
            code += [f"vmladav.s8 %[s{2 * r + n}], %q[x], %q[w{r}]" for r in range(pairs)]
        code += [
            f"vmov %q[t{r}][{low + 2}], %q[t{r}][{low}], %[s{2 * r}], %[s{2 * r + 1}]"
            for r in range(pairs)
        ]
    for text in (
        "vadd.i32 {0}, {0}, %[first]",
        "vcvt.f32.s32 {0}, {0}",
        "vmul.f32 {0}, {0}, %[scale]",
        "vcvtn.s32.f32 {0}, {0}",
    ):
        code += [text.format(f"%q[t{r}]") for r in range(pairs)]
    code += [f"vqmovn{'bt'[r]}.s32 %q[x], %q[t{r}]" for r in range(pairs)]
    code += ["vqadd.s16 %q[x], %q[x], %[zero]"] if shape.result.has_zero else []
    narrow = "vqmovun" if shape.result.kind == "u" else "vqmovn"
    code.append(f"{narrow}b.s16 %q[t0], %q[x]")
    outputs = ['[x] "=&w"(x)', *(f'[t{r}] "=&w"(t{r})' for r in range(pairs))]
    outputs += [f'[s{n}] "=&Te"(s{n})' for n in range(2 * pairs)]
    inputs = ['[at] "w"(at)', *(f'[w{r}] "w"(w{r})' for r in range(pairs))]
    inputs += ['[first] "r"(first)', '[scale] "r"(scale)']
    inputs += ['[zero] "r"(zero)'] if shape.result.has_zero else []
    return [
        f"int32_t {', '.join(f's{n}' for n in range(2 * pairs))};",
        f"uint32x4_t x, {', '.join(f't{r}' for r in range(pairs))};",
        "__asm__(",
        *(f'    "{line}\\n\\t"' for line in code),
        f"    : {', '.join(outputs)}",
        f"    : {', '.join(inputs)}",
        '    : "memory");',
        *_stores(shape, pairs, predicate),
    ]


def _stores(shape: DepthwiseShape, pairs: int, predicate: str) -> list[str]:
    """Lines that store four pixels of one row, or of two."""
    form, last = ("_p", f", {predicate}") if predicate else ("", "")
    store = f"vstrbq_scatter_offset{form}_u32((uint8_t *)({{}}), to_at, {{}}{last});"
    lines = [store.format("to", "t0")]
    if pairs == 2:
        row = shape.output[1] * shape.size[2]
        second = store.format(f"to + {row}", "vshrq_n_u32(t0, 16)")
        odd = shape.output[0] % 2
        lines += [f"if (y + 1 < {shape.output[0]}) {{", f"    {second}", "}"] if odd else [second]
    return lines
