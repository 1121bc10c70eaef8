# SPDX-License-Identifier: Apache-2.0
"""Depthwise micro-kernels of bytes as C functions: MVE of Arm's M profile, and plain C.

A function sums, for some neighbouring channels, the products of the taps of one window with the
weights of each channel. Channels are contiguous, so a vector has one tap of eight of them.
Registers: 2 accumulators (even and odd channels) + data + weights = 4 of 8 MVE vectors. They
take what :mod:`.depthwise_kernels` leaves: channels that come in no words, and sums that stay
floats.
"""

from __future__ import annotations

import re

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import IntImm, Load, PrimExpr, index
from intarsia_ir.tir.stmt import Invoke, Stmt
from intarsia_loops.cpu.packed_operands import DepthwiseMicroKernel, Taps

_NAME = re.compile(r"ix_taps_([ui])8_([1-9][0-9]*)")
_VALUES = ("channels", "rows", "row", "column", "weight_row", "weight_column", "zero")
_POINTERS = 3


def depthwise_micro_kernel(sums: Buffer, taps: Taps) -> Stmt:
    """Return the call that writes the sums of the products of a window's taps."""
    data, weight = _byte(taps.data), _byte(taps.weight)
    name = f"ix_taps_{'i' if data.dtype.is_signed else 'u'}8_{taps.columns}"
    zero = IntImm(0)
    total = Load(sums, (zero, zero), sums.dtype, 1)
    numbers = (*taps.data_steps, *taps.weight_steps, taps.zero)
    values = (index(sums.shape[1]), taps.rows, *(index(number) for number in numbers))
    return Invoke("c", name, (total, weight, data), values)


DEPTHWISE_MICRO_KERNEL = DepthwiseMicroKernel(depthwise_micro_kernel, channels=16)
"""Twice what vectors add at once; the sums still lie on a small stack."""


def depthwise_micro_kernel_arguments(name: str) -> int | None:
    """Return how many arguments a function takes; ``None`` if the name is of no window."""
    return _POINTERS + len(_VALUES) if _NAME.fullmatch(name) else None


def print_depthwise_micro_kernel(name: str) -> str:
    """Return the text of a function whose name is one of :func:`depthwise_micro_kernel`."""
    match = _NAME.fullmatch(name)
    assert match is not None  # as of every name that depthwise_micro_kernel makes
    signed, columns = match[1] == "i", int(match[2])
    element = "int8_t" if signed else "uint8_t"
    parameters = ", ".join(
        ["int32_t *sums", "const int8_t *weights", f"const {element} *data"]
        + [f"intptr_t {value}" for value in _VALUES]
    )
    lines = [f"static inline void {name}({parameters})", "{"]
    lines += ["#if defined(__ARM_FEATURE_MVE)", *_vectors(signed, columns)]
    lines += ["#else", *_plain(element, columns), "#endif"]
    return "\n".join([*lines, "}", ""])


def _byte(element: PrimExpr) -> Load:
    """Return the load that a window begins with."""
    if not isinstance(element, Load):
        raise AssertionError("a window begins at a load of a byte")
    return element


def _window(element: str, columns: int, tap: list[str]) -> list[str]:
    """Lines that do ``tap`` for each; ``{x}`` and ``{w}`` there are its places, ``{k}`` its number.

    All taps of a row are written out.
    """
    lines = [
        f"        const {element} *a = data;",
        "        const int8_t *w = weights;",
        "        for (intptr_t r = rows; r > 0; --r) {",
    ]
    for k in range(columns):
        names = {"x": f"a + {k} * column", "w": f"w + {k} * weight_column", "k": str(k)}
        lines += [f"            {line.format(**names)}" for line in tap]
    return [*lines, "            a += row;", "            w += weight_row;", "        }"]


def _next(channels: int) -> list[str]:
    """Lines that move on to the next channels."""
    return [f"        {name} += {channels};" for name in ("sums", "weights", "data")] + ["    }"]


def _plain(element: str, columns: int) -> list[str]:
    """One channel after the other."""
    tap = ["s += (*({x}) - (int32_t)zero) * *({w});"]
    return [
        "    for (; channels > 0; --channels) {",
        "        int32_t s = 0;",
        *_window(element, columns, tap),
        "        *sums = s;",
        *_next(1),
    ]


def _vectors(signed: bool, columns: int) -> list[str]:
    """Eight channels at a time in 16 bits, even and odd ones accumulated apart in 32."""
    data = "vldrbq_z_s16({x}, p)" if signed else "vreinterpretq_s16_u16(vldrbq_z_u16({x}, p))"
    tap = [
        f"const int16x8_t x{{k}} = vsubq_n_s16({data}, (int16_t)zero);",
        "const int16x8_t y{k} = vldrbq_z_s16({w}, p);",
        "even = vaddq_s32(even, vmullbq_int_s16(x{k}, y{k}));",
        "odd = vaddq_s32(odd, vmulltq_int_s16(x{k}, y{k}));",
    ]
    return [
        "    for (; channels > 0; channels -= 8) {",
        "        const mve_pred16_t p = vctp16q((uint32_t)channels);",
        "        int32x4_t even = vdupq_n_s32(0);",
        "        int32x4_t odd = vdupq_n_s32(0);",
        *_window("int8_t" if signed else "uint8_t", columns, tap),
        "        const int32x4x2_t both = {{even, odd}};",
        "        if (channels >= 8) {",
        "            vst2q_s32(sums, both);",
        "        } else {",
        "            int32_t part[8];",
        "            vst2q_s32(part, both);",
        "            for (intptr_t c = 0; c < channels; ++c) {",
        "                sums[c] = part[c];",
        "            }",
        "        }",
        *_next(8),
    ]
