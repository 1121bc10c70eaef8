# SPDX-License-Identifier: Apache-2.0
"""Panels of unpacked rows, as C functions: what :mod:`.row_kernels` multiplies.

A panel has places for one, two or four rows of ``words`` Int8x4 words. Its form is that of the
processor: words of two 16-bit numbers, rows interleaved, for the DSP instructions; bytes with sign,
vectors of rows interleaved, for MVE; bytes without sign in plain C. Padding of windows is written,
so products need no bounds.
"""

from __future__ import annotations

import re

from msgspec import Struct

_PACK = re.compile(r"ix_pack_([ui])8_([124])")
_WINDOW = re.compile(
    r"ix_window_([ui])8_([124])_h(\d+)w(\d+)c(\d+)_k(\d+)x(\d+)_s(\d+)_d(\d+)x(\d+)_z(\d+)"
)
_VECTOR = 16


class Geometry(Struct, frozen=True):
    """Windows of an image, as the name of a function has them.

    Attributes:
        size: Rows, columns and channels of the input.
        kernel: Rows and columns of taps.
        step: Columns from a window to the next one.
        dilation: Distance of taps.
        zero: What padding holds, as an unsigned byte.
    """

    size: tuple[int, int, int]
    kernel: tuple[int, int]
    step: int
    dilation: tuple[int, int]
    zero: int

    @property
    def words(self) -> int:
        """Int8x4 words of a window."""
        return self.kernel[0] * self.kernel[1] * self.size[2] // 4


def pack_name(panel: int, *, signed: bool) -> str:
    """Return the name of the function that unpacks rows behind each other."""
    return f"ix_pack_{'i' if signed else 'u'}8_{panel}"


def window_name(panel: int, shape: Geometry, *, signed: bool) -> str:
    """Return the name of the function that unpacks windows."""
    (height, width, channels), (kh, kw), (dh, dw) = shape.size, shape.kernel, shape.dilation
    return (
        f"ix_window_{'i' if signed else 'u'}8_{panel}_h{height}w{width}c{channels}"
        f"_k{kh}x{kw}_s{shape.step}_d{dh}x{dw}_z{shape.zero}"
    )


def panel_words(panel: int, words: int) -> int:
    """Return the 32-bit words that a panel of some rows needs in any form."""
    return panel * max(2 * words, -(-4 * words // _VECTOR) * _VECTOR // 4)


def panel_arguments(name: str) -> int | None:
    """Return how many arguments a function takes; ``None`` if the name is of no panel."""
    if _PACK.fullmatch(name):
        return 4
    return 5 if _WINDOW.fullmatch(name) else None


def print_panel(name: str) -> str:
    """Return the text of a function whose name is one of this module's."""
    match = _PACK.fullmatch(name)
    if match:
        return _print_pack(name, match[1], int(match[2]))
    match = _WINDOW.fullmatch(name)
    assert match is not None  # as of every name that this module makes
    h, w, c, kh, kw, step, dh, dw, zero = (int(group) for group in match.groups()[2:])
    shape = Geometry((h, w, c), (kh, kw), step, (dh, dw), zero)
    return _print_window(name, match[1], int(match[2]), shape)


def panel_helpers(name: str) -> frozenset[str]:
    """Return the names of the helpers that a function calls, see :func:`print_panel_helper`."""
    match = _PACK.fullmatch(name)
    if match:
        return frozenset({f"ix_put_{match[1]}8_{match[2]}"})
    match = _WINDOW.fullmatch(name)
    if match is None:
        return frozenset()
    return frozenset({f"ix_put_{match[1]}8_{match[2]}", f"ix_blank_{match[2]}"})


def print_panel_helper(name: str) -> str:
    """Return the text of a helper: it writes some words of one row of a panel."""
    panel = int(name[-1])
    return _print_blank(name, panel) if "blank" in name else _print_put(name, "_i8" in name, panel)


def _print_put(name: str, signed: bool, panel: int) -> str:
    """Copy ``words`` words of data to word ``at`` of a row."""
    element = "int8_t" if signed else "uint8_t"
    flip = "    x ^= 0x80808080U;\n    " if signed else ""
    move = "{}" if signed else "veorq_s8({}, vdupq_n_s8(INT8_MIN))"
    load, part = (
        move.format(f"vldrbq{form}_s8((const int8_t *)data{last})")
        for form, last in (("", ""), ("_z", ", p"))
    )
    return f"""\
static inline void {name}(int32_t *row, const {element} *data, intptr_t at, intptr_t words)
{{
#if defined(__ARM_FEATURE_MVE)
    if (at % 4 == 0) {{
        int8_t *to = (int8_t *)row + {4 * panel} * at;
        for (; words >= 4; words -= 4) {{
            vstrbq_s8(to, {load});
            to += {16 * panel};
            data += 16;
        }}
        if (words > 0) {{
            const mve_pred16_t p = vctp32q((uint32_t)words);
            vstrbq_p_s8(to, {part}, p);
        }}
        return;
    }}
    for (; words > 0; words -= 4) {{
        const mve_pred16_t p = vctp32q((uint32_t)words);
        const uint32x4_t word = vidupq_n_u32((uint32_t)at, 1);
        const uint32x4_t to = vaddq_u32(vshlq_n_u32(word, 2),
                                        vmulq_n_u32(vshrq_n_u32(word, 2), {16 * panel - 16}U));
        vstrwq_scatter_offset_p_s32(row, to, vreinterpretq_s32_s8({part}), p);
        at += 4;
        data += 16;
    }}
#elif defined(IX_SIMD32)
    int32_t *to = row + {2 * panel} * at;
    for (; words > 0; --words) {{
        uint32_t x;
        int32_t even, odd;
        __builtin_memcpy(&x, data, 4);
    {flip}    __asm__("uxtb16 %0, %1" : "=r"(even) : "r"(x));
        __asm__("uxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(x));
        to[0] = even;
        to[1] = odd;
        to += {2 * panel};
        data += 4;
    }}
#else
    uint8_t *to = (uint8_t *)row + 4 * at;
    for (intptr_t i = 0; i < 4 * words; ++i) {{
        to[i] = (uint8_t)({"(uint8_t)data[i] ^ 0x80U" if signed else "data[i]"});
    }}
#endif
}}
"""


def _print_blank(name: str, panel: int) -> str:
    """Fill ``words`` words of a row with an unsigned byte."""
    return f"""\
static inline void {name}(int32_t *row, int32_t zero, intptr_t at, intptr_t words)
{{
#if !defined(__ARM_FEATURE_MVE) && defined(IX_SIMD32)
    int32_t *to = row + {2 * panel} * at;
    for (; words > 0; --words) {{
        to[0] = to[1] = zero | zero << 16;
        to += {2 * panel};
    }}
#else
    uint8_t *to = (uint8_t *)row;
    for (intptr_t i = 4 * at; i < 4 * (at + words); ++i) {{
#if defined(__ARM_FEATURE_MVE)
        to[i + i / 16 * {16 * panel - 16}] = (uint8_t)(zero ^ 0x80);
#else
        to[i] = (uint8_t)zero;
#endif
    }}
#endif
}}
"""


def _row_of(words: str) -> str:
    """Lines that find row ``r`` of a panel."""
    return f"""\
#if !defined(__ARM_FEATURE_MVE) && defined(IX_SIMD32)
        int32_t *row = panel + 2 * r;
#elif defined(__ARM_FEATURE_MVE)
        int32_t *row = panel + 4 * r;
#else
        int32_t *row = panel + r * {words};
#endif"""


def _print_pack(name: str, kind: str, panel: int) -> str:
    element = "int8_t" if kind == "i" else "uint8_t"
    return f"""\
static inline void {name}(int32_t *panel, const {element} *data, intptr_t words, intptr_t rows)
{{
    for (intptr_t r = 0; r < rows; ++r) {{
{_row_of("((words + 3) / 4 * 4)")}
        ix_put_{kind}8_{panel}(row, data + 4 * words * r, 0, words);
    }}
}}
"""


def _print_window(name: str, kind: str, panel: int, shape: Geometry) -> str:
    """Write windows whose first taps are at ``(y, x)`` and each ``step`` columns to the right.

    ``image`` is the first element of an image; taps outside it are the zero point.
    """
    element = "int8_t" if kind == "i" else "uint8_t"
    height, width, channels = shape.size
    (kh, kw), (dh, dw) = shape.kernel, shape.dilation
    # Without dilation the taps of a row of the window are one run.
    run, runs = (kw, 1) if dw == 1 else (1, kw)
    pixel = channels // 4
    put, blank = f"ix_put_{kind}8_{panel}", f"ix_blank_{panel}"
    return f"""\
IX_KERNEL {name}(int32_t *panel, const {element} *image, intptr_t y, intptr_t x,
          intptr_t rows)
{{
    for (intptr_t r = 0; r < rows; ++r) {{
{_row_of(str(-(-shape.words // 4) * 4))}
        intptr_t at = 0;
        for (intptr_t k = 0; k < {kh}; ++k) {{
            const intptr_t line = y + k * {dh};
            for (intptr_t j = 0; j < {runs}; ++j) {{
                const intptr_t first = x + j * {dw};
                const {element} *from = image + (line * {width} + first) * {channels};
                if (line >= 0 && line < {height} && first >= 0 && first <= {width - run}) {{
                    {put}(row, from, at, {run * pixel});
                }} else {{
                    intptr_t low = first < 0 ? -first : 0;
                    intptr_t high = first > {width - run} ? {width} - first : {run};
                    if (line < 0 || line >= {height} || low >= {run} || high <= 0) {{
                        low = high = {run};
                    }}
                    {blank}(row, {shape.zero}, at, low * {pixel});
                    if (high > low) {{
                        {put}(row, from + low * {channels}, at + low * {pixel},
                              (high - low) * {pixel});
                    }}
                    {blank}(row, {shape.zero}, at + high * {pixel}, ({run} - high) * {pixel});
                }}
                at += {run * pixel};
            }}
        }}
        x += {shape.step};
    }}
}}
"""
