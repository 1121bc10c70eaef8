# SPDX-License-Identifier: Apache-2.0
"""From sums to bytes in C: ``saturate(round(float(sum) * scale) + zero)``.

The same results, bit for bit, as those of ``Functions.round_to_byte`` in the loop compiler.
"""

from __future__ import annotations

from msgspec import Struct

SCALAR_UNIT = """defined(__GNUC__) && defined(__ARM_FP) && (__ARM_FP & 4)"""
"""Processors with DSP instructions that have a unit for floats, too."""

VECTOR_UNIT = "(__ARM_FEATURE_MVE & 2)"
"""Processors with vectors that have vectors of floats, too."""


class Bytes(Struct, frozen=True):
    """Bytes that results become.

    Attributes:
        kind: ``u`` or ``i``: without or with sign.
        has_zero: Whether they have a zero point.
    """

    kind: str
    has_zero: bool

    @property
    def name(self) -> str:
        """Part of the name of a function."""
        return f"{self.kind}8{'' if self.has_zero else '_0'}"

    @property
    def element(self) -> str:
        """Their type."""
        return "int8_t" if self.kind == "i" else "uint8_t"

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest."""
        return (-128, 127) if self.kind == "i" else (0, 255)


def indented(levels: int, lines: list[str]) -> list[str]:
    """Return lines further to the right; those for the preprocessor stay."""
    return [line if line.startswith("#") else "    " * levels + line for line in lines]


def byte_lines(result: Bytes, total: str, scale: str, out: str) -> list[str]:
    """Lines that store the byte of a sum."""
    low, high = result.limits
    zero = " + (float)zero" if result.has_zero else ""
    return [
        f"float value = rintf((float){total} * {scale}){zero};",
        f"value = value > {low}.0f ? value : {low}.0f;",
        f"value = value < {high}.0f ? value : {high}.0f;",
        f"{out} = ({result.element})(int32_t)value;",
    ]


def scalar_byte_lines(result: Bytes, total: str, scale: str, out: str) -> list[str]:
    """Lines that do so by ``VCVTR``, which rounds, converts and saturates, where there is one."""
    saturate = "ssat" if result.kind == "i" else "usat"
    add = '__asm__("qadd %0, %1, %2" : "=r"(byte) : "r"(byte), "r"(zero));'
    return [
        f"#if {SCALAR_UNIT}",
        f"float value = (float){total} * {scale};",
        "int32_t byte;",
        '__asm__("vcvtr.s32.f32 %0, %1" : "=t"(value) : "t"(value));',
        "__builtin_memcpy(&byte, &value, 4);",
        *([add] if result.has_zero else []),
        f'__asm__("{saturate} %0, #8, %1" : "=r"(byte) : "r"(byte));',
        f"{out} = ({result.element})byte;",
        "#else",
        *byte_lines(result, total, scale, out),
        "#endif",
    ]


def two_byte_lines(
    result: Bytes, totals: tuple[str, str], scale: str, outs: list[str]
) -> list[str]:
    """Lines that store the bytes of two sums of one scale; a ``VMOV`` moves both.

    The sums are variables, which change. Six instructions a byte, seven with a zero point.
    """
    names = [f"%[{total}]" for total in totals]
    moved = ", ".join(names)
    code = [f"vmov s0, s1, {moved}"]
    for text in ("vcvt.f32.s32 {0}, {0}", "vmul.f32 {0}, {0}, %[scale]", "vcvtr.s32.f32 {0}, {0}"):
        code += [text.format("s0"), text.format("s1")]
    code.append(f"vmov {moved}, s0, s1")
    code += [f"qadd {name}, {name}, %[zero]" for name in names if result.has_zero]
    code += [f"{'ssat' if result.kind == 'i' else 'usat'} {name}, #8, {name}" for name in names]
    zero = ', [zero] "r"(zero)' if result.has_zero else ""
    outputs = ", ".join(f'[{total}] "+r"({total})' for total in totals)
    one = (byte_lines(result, total, scale, out) for total, out in zip(totals, outs, strict=True))
    return [
        f"#if {SCALAR_UNIT}",
        "__asm__(",
        *(f'    "{line}\\n\\t"' for line in code),
        f"    : {outputs}",
        f'    : [scale] "t"({scale}){zero}',
        '    : "s0", "s1");',
        *(f"{out} = ({result.element}){total};" for total, out in zip(totals, outs, strict=True)),
        "#else",
        *(line for lines in one for line in ("{", *indented(1, lines), "}")),
        "#endif",
    ]
