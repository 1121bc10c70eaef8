# SPDX-License-Identifier: Apache-2.0
"""Depthwise convolution of an image of bytes as one C function: MVE, DSP instructions, plain C.

All sizes are part of the name, so compilers know them. Channels are cut into blocks, and the rows
that a row of results reads are copied for a block, with the zero point around them::

    for block of channels:
      for row of results:
        strip = its rows of the input, unpacked, padded
        for channels of the block, for pixel: result = byte(start + taps . weights)

- DSP: blocks of 4 channels (``depthwise_kernels_dsp.py``). The strip has, for a channel, words of
  two taps that lie below each other, ``[columns, 4, KH / 2]``, so ``SMLAD`` adds two taps; the last
  row of an odd window is a word of two channels, and the weight of the other is 0. Windows of three
  rows, one row apart, have four rows in two words, and two rows of results share them: 3 ``LDRD`` +
  6 ``SMLAD``, 3 ``SMLABT`` and 3 ``SMLATB`` for two results of 3x3. Others take two pixels at a
  time, which share columns. 6 weights + 2 words + 2 sums, the start and the place = 12 registers.
  CMSIS-NN's ``arm_depthwise_conv_s8_opt`` packs two taps of im2col, too.
- MVE: blocks of 16 channels. Windows of up to 4x4 taps are gathered (``depthwise_gathers_mve.py``).
  For larger ones, 8 channels are computed together in 16 bits, even and odd channels accumulated
  apart in 32 (``VMULLB``, ``VMULLT``): 4 accumulators of two pixels + a weight + data + 2 products
  = 8 of 8 vectors (``depthwise_kernels_mve.py``).
- Plain: bounds of each window, no strip.
"""

from __future__ import annotations

import re

from .byte_results import VECTOR_UNIT, Bytes, byte_lines, indented
from .depthwise_gathers_mve import mve_gathered_depthwise
from .depthwise_kernels_dsp import dsp_depthwise
from .depthwise_kernels_mve import mve_depthwise
from .depthwise_shape import DepthwiseShape

_NAME = re.compile(
    r"ix_depthwise_([ui])8_([ui])8(_0)?_h(\d+)w(\d+)c(\d+)_o(\d+)x(\d+)_k(\d+)x(\d+)"
    r"_s(\d+)x(\d+)_p(\d+)x(\d+)_d(\d+)x(\d+)_z(\d+)"
)
_START = re.compile(r"ix_depthwise_start(_bias)?")


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
    has_vectors = shape.has_vectors
    vectors = mve_gathered_depthwise if shape.is_gathered else mve_depthwise
    lines = [
        f"IX_KERNEL {shape.name}(",
        f"    {shape.result.element} *out, const float *scales, const int32_t *start,",
        f"    const int8_t *weights, const {element} *image, int32_t *strip, int32_t zero)",
        "{",
        *([head, *vectors(shape), "#elif" if has_vectors else "#if"] if has_vectors else ["#if"]),
        "#else",
        *_plain(shape),
        "#endif",
        "    (void)strip;",
        "    (void)zero;",
        "}",
        "",
    ]
    at = lines.index("#elif" if has_vectors else "#if")
    lines[at] += " defined(IX_SIMD32)"
    lines[at + 1 : at + 1] = dsp_depthwise(shape)
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
