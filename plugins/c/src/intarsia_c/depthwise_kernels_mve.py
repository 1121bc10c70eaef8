# SPDX-License-Identifier: Apache-2.0
"""Depthwise kernels for the vectors of Arm's M profile; see :mod:`.depthwise_kernels`."""

from __future__ import annotations

from .byte_results import Bytes, indented
from .depthwise_shape import DepthwiseShape


def mve_depthwise(shape: DepthwiseShape) -> list[str]:
    """Lines of a function, for blocks of sixteen channels."""
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
