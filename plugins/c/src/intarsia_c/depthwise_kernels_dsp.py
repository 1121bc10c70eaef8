# SPDX-License-Identifier: Apache-2.0
"""The form of depthwise kernels for DSP instructions; see :mod:`.depthwise_kernels`."""

from __future__ import annotations

from .byte_results import indented, scalar_byte_lines, two_byte_lines
from .depthwise_shape import DepthwiseShape

_IN_REGISTERS = 6  # words of weights
_ROWS = 3  # of windows of which two rows of results are computed together


def dsp_depthwise(shape: DepthwiseShape) -> list[str]:
    """Lines of a function, for blocks of four channels."""
    channels, (rows, columns) = shape.size[2], shape.output
    together = 2 if _has_two_rows(shape) else 1
    row = columns * channels
    return [
        *indented(1, _padding(shape)),
        f"    for (intptr_t c = 0; c < {channels}; c += 4) {{",
        f"        int32_t pairs[{4 * shape.kernel[1] * shape.pairs}];",
        *indented(2, _weights_of_two_rows(shape) if together == 2 else _weights(shape)),
        f"        for (intptr_t y = 0; y < {rows}; y += {together}) {{",
        f"            const intptr_t top = y * {shape.strides[0]} - {shape.padding[0]};",
        *indented(3, _strip(shape, shape.kernel[0] + together - 1)),
        "            for (intptr_t i = 0; i < 4; ++i) {",
        f"                {shape.result.element} *to = out + y * {row} + c + i;",
        *indented(4, _next_row(shape, row) if together == 2 else []),
        "                const float scale = scales[c + i];",
        "                const int32_t first = start[c + i];",
        f"                const int32_t *a = strip + i * {shape.pairs};",
        f"                const int32_t *w = pairs + i * {shape.pairs};",
        *indented(4, _rows(shape, together)),
        "            }",
        "        }",
        "    }",
    ]


def _has_two_rows(shape: DepthwiseShape) -> bool:
    """Whether two rows of results are computed together, from words of four rows."""
    near = shape.strides[0] == shape.dilation[0] == 1
    return near and shape.kernel[0] == _ROWS and shape.kernel[1] <= _ROWS and shape.output[0] > 1


def _next_row(shape: DepthwiseShape, row: int) -> list[str]:
    """Lines that find the second row; behind the last one, the first row overwrites it."""
    if shape.output[0] % 2:
        return [f"const intptr_t next = y + 1 < {shape.output[0]} ? {row} : 0;"]
    return [f"const intptr_t next = {row};"]


def _weights(shape: DepthwiseShape) -> list[str]:
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
        lines.append(f"        pairs[(j * 4 + i) * {pairs} + {q}] = {value};")
    return [*lines, "    }", "}"]


def _weights_of_two_rows(shape: DepthwiseShape) -> list[str]:
    """Lines that make words of taps 0 and 1, and of 1 and 2, that lie below each other."""
    kw, channels = shape.kernel[1], shape.size[2]
    places = [f"w + {k * kw * channels}" for k in (0, 1, 1, 2)]
    return [
        "{",
        "    int32_t *d = pairs;",
        "    const int8_t *w = weights + c;",
        f"    for (intptr_t j = {kw}; j > 0; --j) {{",
        *indented(2, _column(places, signed=True)),
        f"        w += {channels};",
        "        d += 8;",
        "    }",
        "}",
    ]


def _inside(shape: DepthwiseShape) -> tuple[int, int]:
    """Return the columns of the strip before the image, and those in it."""
    before = min(shape.padding[1], shape.columns)
    return before, max(0, min(shape.size[1], shape.columns - shape.padding[1]))


def _padding(shape: DepthwiseShape) -> list[str]:
    """Lines that write the columns of padding, which all strips have."""
    before, inside = _inside(shape)
    words = 4 * shape.pairs
    blank = f"{shape.zero & 0xFFFF | (shape.zero & 0xFFFF) << 16:#x}"
    behind = before + inside
    lines: list[str] = []
    for begin, end in ((0, before), (behind, shape.columns)):
        if begin < end:
            lines += [
                f"for (intptr_t k = {begin * words}; k < {end * words}; ++k) {{",
                f"    strip[k] = (int32_t){blank}U;",
                "}",
            ]
    return lines


def _strip(shape: DepthwiseShape, rows: int) -> list[str]:
    """Lines that write the columns of a strip that are in the image."""
    height, width, channels = shape.size
    before, inside = _inside(shape)
    apart, words = shape.dilation[0], 4 * shape.pairs
    element = "int8_t" if shape.signed else "uint8_t"
    steady = [f"p + {r * apart * width * channels}" for r in range(rows)]
    return [
        f"int32_t *d = strip + {before * words};",
        f"if (top >= 0 && top <= {height - 1 - (rows - 1) * apart}) {{",
        f"    const {element} *p = image + top * {width * channels} + c;",
        f"    for (intptr_t k = {inside}; k > 0; --k) {{",
        *indented(2, _column(steady, signed=shape.signed)),
        f"        p += {channels};",
        f"        d += {words};",
        "    }",
        "} else {",
        f"    static const uint32_t blank = {shape.zero & 255:#x}U * 0x01010101U;",
        f"    const {element} *p[{rows}];",
        f"    intptr_t step[{rows}];",
        f"    for (intptr_t r = 0; r < {rows}; ++r) {{",
        f"        const intptr_t line = top + r * {apart};",
        f"        const int inside = line >= 0 && line < {height};",
        f"        p[r] = inside ? image + line * {width * channels} + c : (const void *)&blank;",
        f"        step[r] = inside ? {channels} : 0;",
        "    }",
        f"    for (intptr_t k = {inside}; k > 0; --k) {{",
        *indented(2, _column([f"p[{r}]" for r in range(rows)], signed=shape.signed)),
        *(f"        p[{r}] += step[{r}];" for r in range(rows)),
        f"        d += {words};",
        "    }",
        "}",
    ]


def _column(rows: list[str], *, signed: bool) -> list[str]:
    """Lines that write the words of a column of four channels, whose rows begin at ``rows``."""
    pairs, unpack = -(-len(rows) // 2), "sxtb16" if signed else "uxtb16"
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


def _rows(shape: DepthwiseShape, together: int) -> list[str]:
    """Lines that compute a row of results of one channel, or two, whose words begin at ``a``."""
    (_, kw), pairs, columns = shape.kernel, shape.pairs, shape.output[1]
    if kw * pairs > _IN_REGISTERS or pairs > 2:
        return _long_row(shape)
    words = (f"w{j * pairs + q} = w[{j * 4 * pairs + q}]" for j in range(kw) for q in range(pairs))
    lines = [f"const int32_t {', '.join(words)};"]
    if together == 2:
        return lines + _turns(shape, columns, _two_rows(shape), 1)
    if columns > 1:
        lines += _turns(shape, columns // 2, _pixels(shape, 2), 2)
    if columns % 2:
        lines += ["{", *indented(1, _pixels(shape, 1)), "}"]
    return lines


def _turns(shape: DepthwiseShape, count: int, body: list[str], pixels: int) -> list[str]:
    """Lines of a loop over pixels, which moves the pointers on."""
    return [
        f"for (intptr_t x = {count}; x > 0; --x) {{",
        *indented(1, body),
        f"    to += {pixels * shape.size[2]};",
        f"    a += {pixels * 4 * shape.pairs * shape.strides[1]};",
        "}",
    ]


def _long_row(shape: DepthwiseShape) -> list[str]:
    """Lines of a row whose weights do not fit into registers."""
    (_, kw), pairs = shape.kernel, shape.pairs
    terms = [
        f"s = __smlad(a[{4 * j * pairs * shape.dilation[1] + q}], w[{4 * j * pairs + q}], s);"
        for j in range(kw)
        for q in range(pairs)
    ]
    stored = ["{", *indented(1, scalar_byte_lines(shape.result, "s", "scale", "*to")), "}"]
    return _turns(shape, shape.output[1], ["int32_t s = first;", *terms, *stored], 1)


def _two_rows(shape: DepthwiseShape) -> list[str]:
    """Lines for a pixel of two rows: rows 0 and 1 of the image are a word, and rows 2 and 3.

    The upper result is 0 and 1 times taps 0 and 1, and 2 times tap 2; the lower one is 1 times tap
    0, and 2 and 3 times taps 1 and 2. Weights are words of taps 0 and 1 and of taps 1 and 2.
    """
    code: list[str] = []
    for j in range(shape.kernel[1]):
        low, high = ("first", "first") if j == 0 else ("s", "u")
        code += [
            f"ldrd %[t0], %[t1], [%[a], #{32 * j * shape.dilation[1]}]",
            f"smlad %[s], %[t0], %[w{2 * j}], %[{low}]",
            f"smlatb %[u], %[t0], %[w{2 * j}], %[{high}]",
            f"smlabt %[s], %[t1], %[w{2 * j + 1}], %[s]",
            f"smlad %[u], %[t1], %[w{2 * j + 1}], %[u]",
        ]
    # The lower one is stored first: behind the last row it has the place of the upper one.
    stored = two_byte_lines(shape.result, ("u", "s"), "scale", ["to[next]", "*to"])
    return [*_statement(shape, code, ("s", "u")), *stored]


def _pixels(shape: DepthwiseShape, count: int) -> list[str]:
    """Lines for a pixel, or for two, that share columns."""
    (_, kw), pairs = shape.kernel, shape.pairs
    step, apart = shape.strides[1], shape.dilation[1]
    names = ("s", "u")[:count]
    begun: set[str] = set()
    code: list[str] = []
    for column in range((count - 1) * step + (kw - 1) * apart + 1):
        taps = [(column - n * step) / apart for n in range(count)]
        used = [(names[n], int(j)) for n, j in enumerate(taps) if j.is_integer() and 0 <= j < kw]
        if used:
            load = "ldrd %[t0], %[t1]" if pairs == 2 else "ldr %[t0]"
            code.append(f"{load}, [%[a], #{16 * pairs * column}]")
        for name, j in used:
            for q in range(pairs):
                total = name if name in begun else "first"
                begun.add(name)
                code.append(f"smlad %[{name}], %[t{q}], %[w{j * pairs + q}], %[{total}]")
    if count == 1:
        stored = ["{", *indented(1, scalar_byte_lines(shape.result, "s", "scale", "*to")), "}"]
    else:
        places = ["*to", f"to[{shape.size[2]}]"]
        stored = two_byte_lines(shape.result, ("s", "u"), "scale", places)
    return [*_statement(shape, code, names), *stored]


def _statement(shape: DepthwiseShape, code: list[str], sums: tuple[str, ...]) -> list[str]:
    """Lines of one statement: it has the registers that it needs, and no others."""
    names = [*sums, *("t0", "t1")[: shape.pairs]]
    outputs = ", ".join(f'[{name}] "=&r"({name})' for name in names)
    inputs = ['[a] "r"(a)', '[first] "r"(first)']
    inputs += [f'[w{k}] "r"(w{k})' for k in range(shape.kernel[1] * shape.pairs)]
    return [
        f"int32_t {', '.join(names)};",
        "__asm__(",
        *(f'    "{line}\\n\\t"' for line in code),
        f"    : {outputs}",
        f"    : {', '.join(inputs)}",
        '    : "memory");',
    ]
