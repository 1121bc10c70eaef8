# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution of an image of bytes as one C function: MVE, DSP instructions, plain C.

All sizes are part of the name, so compilers know them. Channels are cut into blocks, and the rows
that a row of results reads are copied for a block, with the zero point around them::

    for block of channels:
      for row of results:
        strip = its rows of the input, unpacked, padded
        for channels of the block, for pixel: result = byte(start + taps . weights)

- DSP: blocks of 4 channels. The strip has, for each channel, words of two taps that lie below each
  other, ``[columns, 4, KH / 2]``, so ``SMLAD`` adds two taps; the last row of an odd window is a
  word of two channels, and the weight of the other is 0. For 3x3: 3 ``LDRD`` + 6 ``SMLAD`` a
  result; the strip takes 20 instructions for 4 channels of a column. 6 weights + 2 words + sum,
  start and 4 for loops = 14 registers. CMSIS-NN's ``arm_depthwise_conv_s8_opt`` packs two taps of
  im2col, too.
- MVE: blocks of 16 channels, of which 8 are computed together in 16 bits, even and odd channels
  accumulated apart in 32 (``VMULLB``, ``VMULLT``): 4 accumulators of two pixels + a weight + data +
  2 products = 8 of 8 vectors.
- Plain: bounds of each window, no strip.
"""

from __future__ import annotations

import re

from msgspec import Struct

from .byte_results import VECTOR_UNIT, Bytes, byte_lines, indented, scalar_byte_lines

_NAME = re.compile(
    r"ix_depthwise_([ui])8_([ui])8(_0)?_h(\d+)w(\d+)c(\d+)_o(\d+)x(\d+)_k(\d+)x(\d+)"
    r"_s(\d+)x(\d+)_p(\d+)x(\d+)_d(\d+)x(\d+)_z(\d+)"
)
_START = re.compile(r"ix_depthwise_start(_bias)?")
_IN_REGISTERS = 6
_MOST_TAPS = 64
_MOST_REACH = 7  # columns that an offset of a load of bytes reaches: below 128 bytes


class DepthwiseShape(Struct, frozen=True):
    """A depthwise convolution, as the name of a function has it.

    Attributes:
        signed: Whether data are signed.
        result: Type of results.
        size: Rows, columns and channels of the input.
        output: Rows and columns of results.
        kernel: Rows and columns of taps.
        strides: Rows and columns between windows.
        padding: Rows and columns before the input.
        dilation: Distance of taps.
        zero: Zero point of the data.
    """

    signed: bool
    result: Bytes
    size: tuple[int, int, int]
    output: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    zero: int

    @property
    def columns(self) -> int:
        """Columns of the input that a row of results reads."""
        reach = (self.kernel[1] - 1) * self.dilation[1] + 1
        return (self.output[1] - 1) * self.strides[1] + reach

    @property
    def pairs(self) -> int:
        """Words of two taps in a column of a window."""
        return -(-self.kernel[0] // 2)

    @property
    def strip_words(self) -> int:
        """32-bit words of a strip, in any form."""
        return self.columns * 4 * max(self.pairs, self.kernel[0])

    @property
    def is_supported(self) -> bool:
        """Whether there is a function: channels come in words, and taps can be written out."""
        return self.size[2] % 4 == 0 and self.kernel[0] * self.kernel[1] <= _MOST_TAPS

    @property
    def name(self) -> str:
        """Name of the function."""
        pairs = (self.kernel, self.strides, self.padding, self.dilation)
        numbers = "".join(f"_{letter}{a}x{b}" for letter, (a, b) in zip("kspd", pairs, strict=True))
        (height, width, channels), (rows, columns) = self.size, self.output
        return (
            f"ix_depthwise_{'i' if self.signed else 'u'}8_{self.result.name}"
            f"_h{height}w{width}c{channels}_o{rows}x{columns}{numbers}_z{self.zero & 255}"
        )


def start_of_depthwise(*, has_bias: bool) -> str:
    """Return the name of the function that writes ``bias - zero * sum of weights``."""
    return f"ix_depthwise_start{'_bias' if has_bias else ''}"


def depthwise_kernel_arguments(name: str) -> int | None:
    """Return how many arguments a function takes; ``None`` if the name is of none here."""
    match = _START.fullmatch(name)
    if match:
        return 6 if match[1] else 5
    return 7 if _NAME.fullmatch(name) else None


def print_depthwise_kernel(name: str) -> str:
    """Return the text of a function whose name is one of this module's."""
    match = _START.fullmatch(name)
    if match:
        return _print_start(name, has_bias=match[1] is not None)
    match = _NAME.fullmatch(name)
    assert match is not None  # as of every name that DepthwiseShape makes
    signed = match[1] == "i"
    h, w, c, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw, zero = (int(n) for n in match.groups()[3:])
    return _print(
        DepthwiseShape(
            signed, Bytes(match[2], match[3] is None), (h, w, c), (oh, ow), (kh, kw), (sh, sw),
            (ph, pw), (dh, dw), zero - 256 if signed and zero > 127 else zero,
        )
    )  # fmt: skip


def _print_start(name: str, *, has_bias: bool) -> str:
    bias = "const int32_t *bias, " if has_bias else ""
    return f"""\
static inline void {name}(int32_t *start, {bias}const int8_t *weights, intptr_t channels,
                          intptr_t taps, int32_t zero)
{{
    for (intptr_t c = 0; c < channels; ++c) {{
        int32_t sum = 0;
        for (intptr_t k = 0; k < taps; ++k) {{
            sum += weights[k * channels + c];
        }}
        start[c] = {"bias[c]" if has_bias else "0"} - zero * sum;
    }}
}}
"""


def _print(shape: DepthwiseShape) -> str:
    element = "int8_t" if shape.signed else "uint8_t"
    head = f"#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__) && {VECTOR_UNIT}"
    reach = (shape.kernel[1] - 1) * shape.dilation[1]
    has_vectors = shape.size[2] % 8 == 0 and reach <= _MOST_REACH
    lines = [
        f"IX_KERNEL {shape.name}(",
        f"    {shape.result.element} *out, const float *scales, const int32_t *start,",
        f"    const int8_t *weights, const {element} *image, int32_t *strip, int32_t zero)",
        "{",
        *([head, *_mve(shape), "#elif" if has_vectors else "#if"] if has_vectors else ["#if"]),
        "#else",
        *_plain(shape),
        "#endif",
        "    (void)strip;",
        "    (void)zero;",
        "}",
        "",
    ]
    at = lines.index("#elif" if has_vectors else "#if")
    lines[at] += " defined(__ARM_FEATURE_SIMD32) && defined(__GNUC__)"
    lines[at + 1 : at + 1] = _dsp(shape)
    return "\n".join(lines)


def _plain(shape: DepthwiseShape) -> list[str]:
    """One result after the other; taps outside the input are the zero point."""
    (height, width, channels), (rows, columns) = shape.size, shape.output
    (kh, kw), (sh, sw), (dh, dw) = shape.kernel, shape.strides, shape.dilation
    return [
        f"    for (intptr_t y = 0; y < {rows}; ++y) {{",
        f"        for (intptr_t x = 0; x < {columns}; ++x) {{",
        f"            for (intptr_t c = 0; c < {channels}; ++c) {{",
        "                int32_t s = start[c];",
        f"                for (intptr_t k = 0; k < {kh * kw}; ++k) {{",
        f"                    const intptr_t i = y * {sh} + k / {kw} * {dh} - {shape.padding[0]};",
        f"                    const intptr_t j = x * {sw} + k % {kw} * {dw} - {shape.padding[1]};",
        f"                    const int inside = i >= 0 && i < {height} && j >= 0 && j < {width};",
        f"                    s += (inside ? image[(i * {width} + j) * {channels} + c]"
        f" : {shape.zero}) *",
        f"                         weights[k * {channels} + c];",
        "                }",
        *indented(4, byte_lines(shape.result, "s", "scales[c]",
                                f"out[(y * {columns} + x) * {channels} + c]")),
        "            }",
        "        }",
        "    }",
    ]  # fmt: skip


def _dsp(shape: DepthwiseShape) -> list[str]:
    channels, (rows, columns) = shape.size[2], shape.output
    return [
        f"    for (intptr_t c = 0; c < {channels}; c += 4) {{",
        f"        int32_t pairs[4][{shape.kernel[1] * shape.pairs}];",
        *indented(2, _dsp_weights(shape)),
        f"        for (intptr_t y = 0; y < {rows}; ++y) {{",
        f"            const intptr_t top = y * {shape.strides[0]} - {shape.padding[0]};",
        *indented(3, _dsp_strip(shape)),
        "            for (intptr_t i = 0; i < 4; ++i) {",
        f"                {shape.result.element} *to = out + y * {columns * channels} + c + i;",
        "                const float scale = scales[c + i];",
        "                const int32_t first = start[c + i];",
        f"                const int32_t *a = strip + i * {shape.pairs};",
        *indented(4, _dsp_row(shape)),
        "            }",
        "        }",
        "    }",
    ]


def _dsp_weights(shape: DepthwiseShape) -> list[str]:
    """Lines that make words of the weights of two taps below each other, of four channels."""
    (kh, kw), channels, pairs = shape.kernel, shape.size[2], shape.pairs
    lines = ["for (intptr_t i = 0; i < 4; ++i) {", f"    for (intptr_t j = 0; j < {kw}; ++j) {{"]
    for q in range(pairs):
        low = f"weights[({2 * q * kw} + j) * {channels} + c + i]"
        if 2 * q + 1 < kh:
            high = f"weights[({(2 * q + 1) * kw} + j) * {channels} + c + i]"
            value = f"(int32_t)((uint16_t){low} | (uint32_t){high} << 16)"
        else:
            value = f"(int32_t)(i < 2 ? (uint16_t){low} : (uint32_t){low} << 16)"
        lines.append(f"        pairs[i][j * {pairs} + {q}] = {value};")
    return [*lines, "    }", "}"]


def _dsp_strip(shape: DepthwiseShape) -> list[str]:
    """Lines that write the strip: columns before the input, those inside, those behind."""
    height, width, channels = shape.size
    (kh, _), left = shape.kernel, shape.padding[1]
    before, inside = min(left, shape.columns), max(0, min(width, shape.columns - left))
    reach = (kh - 1) * shape.dilation[0] + 1
    words = 4 * shape.pairs
    blank = f"{shape.zero & 0xFFFF | (shape.zero & 0xFFFF) << 16:#x}"
    lines = ["int32_t *d = strip;"]

    def padding(count: int) -> list[str]:
        if not count:
            return []
        return [
            f"for (intptr_t k = 0; k < {count * words}; ++k) {{",
            f"    *d++ = (int32_t){blank}U;",
            "}",
        ]

    element = "int8_t" if shape.signed else "uint8_t"
    source = f"image + top * {width * channels} + c"
    steady = [f"p{r} + {r * shape.dilation[0] * width * channels}" for r in range(kh)]
    return [
        *lines,
        *padding(before),
        f"if (top >= 0 && top <= {height - reach}) {{",
        f"    const {element} *p = {source};",
        f"    for (intptr_t k = {inside}; k > 0; --k) {{",
        *indented(2, _dsp_column(shape, [text.replace(f"p{r}", "p") for r, text in
                                         enumerate(steady)])),
        f"        p += {channels};",
        f"        d += {words};",
        "    }",
        "} else {",
        f"    static const uint32_t blank = {shape.zero & 255:#x}U * 0x01010101U;",
        f"    const {element} *p[{kh}];",
        f"    intptr_t step[{kh}];",
        f"    for (intptr_t r = 0; r < {kh}; ++r) {{",
        f"        const intptr_t line = top + r * {shape.dilation[0]};",
        f"        const int inside = line >= 0 && line < {height};",
        f"        p[r] = inside ? image + line * {width * channels} + c : (const void *)&blank;",
        f"        step[r] = inside ? {channels} : 0;",
        "    }",
        f"    for (intptr_t k = {inside}; k > 0; --k) {{",
        *indented(2, _dsp_column(shape, [f"p[{r}]" for r in range(kh)])),
        *(f"        p[{r}] += step[{r}];" for r in range(kh)),
        f"        d += {words};",
        "    }",
        "}",
        *padding(shape.columns - before - inside),
    ]  # fmt: skip


def _dsp_column(shape: DepthwiseShape, rows: list[str]) -> list[str]:
    """Lines that write the words of a column of four channels, whose rows begin at ``rows``."""
    pairs, unpack = shape.pairs, "sxtb16" if shape.signed else "uxtb16"
    lines: list[str] = []
    for r, place in enumerate(rows):
        lines += [
            f"int32_t x{r}, e{r}, o{r};",
            f"__builtin_memcpy(&x{r}, {place}, 4);",
            f'__asm__("{unpack} %0, %1" : "=r"(e{r}) : "r"(x{r}));',
            f'__asm__("{unpack} %0, %1, ror #8" : "=r"(o{r}) : "r"(x{r}));',
        ]
    for q in range(pairs):
        a, b = 2 * q, 2 * q + 1
        for i, half in enumerate("eoeo"):
            to = f"d[{i * pairs + q}]"
            if b == len(rows):
                lines.append(f"{to} = {half}{a};")
                continue
            code = "pkhbt %0, %1, %2, lsl #16" if i < 2 else "pkhtb %0, %2, %1, asr #16"
            operands = f'"r"({half}{a}), "r"({half}{b})'
            lines.append(f'__asm__("{code}" : "=r"(t{i}{q}) : {operands});')
            lines.insert(0, f"int32_t t{i}{q};")
            lines.append(f"{to} = t{i}{q};")
    return ["{", *indented(1, lines), "}"]


def _dsp_row(shape: DepthwiseShape) -> list[str]:
    """Lines that compute a row of results of one channel, whose words begin at ``a``."""
    (_, kw), pairs, channels = shape.kernel, shape.pairs, shape.size[2]
    apart = 4 * pairs * shape.dilation[1]
    count = kw * pairs
    stored = [
        "{", *indented(1, scalar_byte_lines(shape.result, "s", "scale", "*to")), "}",
        f"to += {channels};", f"a += {4 * pairs * shape.strides[1]};",
    ]  # fmt: skip
    loop = f"for (intptr_t x = {shape.output[1]}; x > 0; --x) {{"
    if count > _IN_REGISTERS or pairs > 2:
        terms = [
            f"s = __smlad(a[{j * apart + q}], pairs[i][{j * pairs + q}], s);"
            for j in range(kw)
            for q in range(pairs)
        ]
        return [loop, *indented(1, ["int32_t s = first;", *terms, *stored]), "}"]
    code: list[str] = []
    for j in range(kw):
        load = "ldrd %[t0], %[t1]" if pairs == 2 else "ldr %[t0]"
        code.append(f"{load}, [%[a], #{4 * j * apart}]")
        for q in range(pairs):
            total = "s" if code[-1].startswith("smlad") or j else "first"
            code.append(f"smlad %[s], %[t{q}], %[w{j * pairs + q}], %[{total}]")
    inputs = ['[a] "r"(a)', '[first] "r"(first)']
    inputs += [f'[w{k}] "r"(w{k})' for k in range(count)]
    temporaries = ["t0", "t1"][:pairs]
    outputs = ", ".join(f'[{name}] "=&r"({name})' for name in ("s", *temporaries))
    return [
        f"const int32_t {', '.join(f'w{k} = pairs[i][{k}]' for k in range(count))};",
        loop,
        f"    int32_t s, {', '.join(temporaries)};",
        "    __asm__(",
        *(f'        "{line}\\n\\t"' for line in code),
        f"        : {outputs}",
        f"        : {', '.join(inputs)}",
        '        : "memory");',
        *indented(1, stored),
        "}",
    ]


def _mve(shape: DepthwiseShape) -> list[str]:
    (height, width, channels), (rows, columns) = shape.size, shape.output
    (kh, kw), left = shape.kernel, shape.padding[1]
    count = kh * kw
    line = 16 * shape.columns
    element = "int8_t" if shape.signed else "uint8_t"
    inside = max(0, min(width, shape.columns - left))
    return [
        f"    for (intptr_t c = 0; c < {channels}; c += 16) {{",
        f"        const mve_pred16_t some = vctp8q((uint32_t)({channels} - c));",
        f"        const int8x16_t blank = vdupq_n_s8((int8_t){shape.zero & 255});",
        f"        for (intptr_t y = 0; y < {rows}; ++y) {{",
        "            int8_t *d = (int8_t *)strip;",
        f"            for (intptr_t r = 0; r < {kh}; ++r) {{",
        f"                const intptr_t i = y * {shape.strides[0]} + r * {shape.dilation[0]}"
        f" - {shape.padding[0]};",
        f"                if (i < 0 || i >= {height}) {{",
        f"                    for (intptr_t k = {shape.columns}; k > 0; --k) {{",
        "                        vstrbq_s8(d, blank);",
        "                        d += 16;",
        "                    }",
        "                    continue;",
        "                }",
        f"                const {element} *p = image + i * {width * channels} + c;",
        *indented(4, _mve_blank(min(left, shape.columns))),
        f"                for (intptr_t k = {inside}; k > 0; --k) {{",
        "                    vstrbq_s8(d, vldrbq_z_s8((const int8_t *)p, some));",
        f"                    p += {channels};",
        "                    d += 16;",
        "                }",
        *indented(4, _mve_blank(shape.columns - min(left, shape.columns) - inside)),
        "            }",
        f"            for (intptr_t h = 0; h < 16 && c + h < {channels}; h += 8) {{",
        f"                const {element} *a = (const {element} *)strip + h;",
        f"                int8_t taps[{8 * count}];",
        "                const int8_t *w = weights + c + h;",
        f"                for (intptr_t k = 0; k < {count}; ++k) {{",
        f"                    vstrbq_s16(taps + 8 * k, vldrbq_s16(w + k * {channels}));",
        "                }",
        f"                {shape.result.element} *to = out + y * {columns * channels} + c + h;",
        *indented(4, _mve_row(shape, line)),
        "            }",
        "        }",
        "    }",
    ]


def _mve_blank(count: int) -> list[str]:
    return [line for _ in range(count) for line in ("vstrbq_s8(d, blank);", "d += 16;")]


def _mve_row(shape: DepthwiseShape, line: int) -> list[str]:
    """Lines that compute a row of results of eight channels: two pixels at a time, then one."""
    columns = shape.output[1]
    out: list[str] = []
    if columns >= 2:
        body = _mve_pixels(shape, line, 2)
        out += [f"for (intptr_t x = {columns // 2}; x > 0; --x) {{", *indented(1, body), "}"]
    if columns % 2:
        out += ["{", *indented(1, _mve_pixels(shape, line, 1)), "}"]
    return out


def _mve_pixels(shape: DepthwiseShape, line: int, count: int) -> list[str]:
    """Lines that compute eight channels of one or two pixels.

    A tap is one statement: compilers would load all taps first, and spill them.
    """
    (kh, kw), channels, step = shape.kernel, shape.size[2], 16 * shape.strides[1]
    lines = [
        "const int32x4x2_t first = vld2q_s32(start + c + h);",
        *(f"int32x4_t e{n} = first.val[0], o{n} = first.val[1];" for n in range(count)),
    ]
    load = "vldrb.s16" if shape.signed else "vldrb.u16"
    outputs = ['[y] "=&w"(y)', '[x] "=&w"(x)', '[t] "=&w"(t)']
    outputs += [f'[{name}{n}] "+w"({name}{n})' for n in range(count) for name in "eo"]
    inputs = [f'[a{n}] "l"(a + {n * step} + r * {line})' for n in range(count)]
    joined = ", ".join(inputs)
    lines.append("intptr_t r = 0;")
    for r in range(kh):
        for j in range(kw):
            code = [f"vldrb.s16 %q[y], [%[w], #{8 * j}]"]
            for n in range(count):
                code += [
                    f"{load} %q[x], [%[a{n}], #{16 * j * shape.dilation[1]}]",
                    "vmullb.s16 %q[t], %q[x], %q[y]",
                    f"vadd.i32 %q[e{n}], %q[e{n}], %q[t]",
                    "vmullt.s16 %q[t], %q[x], %q[y]",
                    f"vadd.i32 %q[o{n}], %q[o{n}], %q[t]",
                ]
            lines += [
                "{",
                "    int16x8_t x, y;",
                "    int32x4_t t;",
                "    __asm__(",
                *(f'        "{text}\\n\\t"' for text in code),
                f"        : {', '.join(outputs)}",
                f'        : {joined}, [w] "l"(taps + {8 * r * kw})',
                '        : "memory");',
                "}",
            ]
        lines.append("++r;")
    lines.append("const float32x4x2_t scale = vld2q_f32(scales + c + h);")
    for n in range(count):
        lines += _mve_bytes(shape.result, n, f"to + {n * channels}")
    return [*lines, f"to += {count * channels};", f"a += {count * step};"]


def _mve_bytes(result: Bytes, n: int, out: str) -> list[str]:
    """Lines that store eight bytes of the accumulators ``e`` and ``o`` of a pixel."""
    low, high = result.limits
    lines = [f"int16x8_t b{n} = vdupq_n_s16(0);"]
    for value, place, move in (("e", 0, "vqmovnbq_s32"), ("o", 1, "vqmovntq_s32")):
        scaled = f"vmulq_f32(vcvtq_f32_s32({value}{n}), scale.val[{place}])"
        lines.append(f"b{n} = {move}(b{n}, vcvtnq_s32_f32({scaled}));")
    if result.has_zero:
        lines.append(f"b{n} = vqaddq_n_s16(b{n}, (int16_t)zero);")
    clamped = f"vmaxq_s16(vminq_s16(b{n}, vdupq_n_s16({high})), vdupq_n_s16({low}))"
    return [*lines, f"vstrbq_s16((int8_t *)({out}), {clamped});"]
