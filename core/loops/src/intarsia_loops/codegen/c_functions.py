# SPDX-License-Identifier: Apache-2.0
"""Small C functions for what the language leaves undefined or does otherwise than the loop IR."""

from __future__ import annotations

from msgspec import Struct, field

from intarsia_ir.tir.expr import BinaryOp
from intarsia_runtime.dtype import DType

from .spelling import SHORT, Spelling, computed, float_literal, int_literal

PREFIX = "ix_"
"""Start of the name of every function here; no variable starts so."""

_VECTORIZED_EXTREME = """\
#if defined(__GNUC__) && !defined(__clang__) && defined(__ARM_FEATURE_MVE) && \\
    (__ARM_FEATURE_MVE & 2) /* GCC makes vectors of choices between integers, not between floats */
union {{ float value; int32_t bits; }} x, y;
x.value = a;
y.value = b;
const int32_t m = x.bits & 0x7fffffff, n = y.bits & 0x7fffffff;
const int32_t s = x.bits >> 31, t = y.bits >> 31;
const int32_t p = (m ^ s) - s, q = (n ^ t) - t;
int32_t r = p {sign} q ? x.bits : y.bits;
r = n > 0x7f800000 ? y.bits : r;
x.bits = m > 0x7f800000 ? x.bits : r;
return x.value;
#else"""
"""The greater or smaller of two floats by their order as whole numbers; NaN wins."""

_UNCONDITIONAL = (
    "#if defined(__GNUC__) && defined(__ARM_FEATURE_MVE) && defined(__OPTIMIZE_SIZE__)",
    '__asm__("" : "+t"(nothing)); /* no VCVTNE: the assembler takes it for VCVTN */',
    "#endif",
)

_DIVISIONS = {
    BinaryOp.TRUNC_DIV: ("0", "{negated}", "{t}q = ({T})(a / b);", "q"),
    BinaryOp.TRUNC_MOD: ("0", "0", "{t}r = ({T})(a % b);", "r"),
    BinaryOp.FLOOR_DIV: (
        "0",
        "{negated}",
        "{t}q = ({T})(a / b);",
        "a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q",
    ),
    BinaryOp.FLOOR_MOD: (
        "0",
        "0",
        "{t}r = ({T})(a % b);",
        "r != 0 && (r < 0) != (b < 0) ? r + b : r",
    ),
}


class Functions(Struct):
    """The functions that a source needs, each once, those called before those that call them.

    Attributes:
        spelling: Of the language.
        texts: Name of a function to its definition.
    """

    spelling: Spelling
    texts: dict[str, str] = field(default_factory=dict[str, str])

    def _add(self, name: str, result: str, parameters: str, *body: str) -> str:
        name = f"{PREFIX}{name}"
        if name not in self.texts:
            lines = [f"{self.spelling.inline} {result} {name}({parameters})", "{"]
            self.texts[name] = "\n".join([*lines, *(f"    {line}" for line in body), "}", ""])
        return name

    def vector_type(self, dtype: DType, lanes: int) -> str:
        """Return GNU C's type of a vector; with a ``u`` behind it, of one anywhere in memory."""
        name = f"{PREFIX}{SHORT[dtype]}x{lanes}"
        if name not in self.texts:
            of, size = self.spelling.values[dtype], lanes * dtype.bytes
            kinds = ((name, ""), (f"{name}u", f", aligned({dtype.bytes}), may_alias"))
            self.texts[name] = "".join(
                f"typedef {of} {kind} __attribute__((vector_size({size}){more}));\n"
                for kind, more in kinds
            )
        return name

    def extreme(self, op: BinaryOp, dtype: DType) -> str:
        """Return the function for ``MIN`` or ``MAX``; of floats, NaN wins."""
        dtype = computed(dtype)
        kind = self.spelling.values[dtype]
        sign = "<" if op is BinaryOp.MIN else ">"
        nan = " | (a != a)" if dtype.is_float else ""
        test = f"((a {sign} b){nan})" if nan else f"a {sign} b"
        name = f"{op.value}_{SHORT[dtype]}"
        body = (f"return ({kind})({test} ? a : b);",)
        if dtype is DType.FLOAT32 and self.spelling.for_m_profile:
            body = (*_VECTORIZED_EXTREME.format(sign=sign).splitlines(), *body, "#endif")
        return self._add(name, kind, f"{kind} a, {kind} b", *body)

    def extreme_index(self, op: BinaryOp) -> str:
        """Return the function for ``MIN`` or ``MAX`` of positions."""
        kind, sign = self.spelling.index, "<" if op is BinaryOp.MIN else ">"
        body = f"return a {sign} b ? a : b;"
        return self._add(f"{op.value}_index", kind, f"{kind} a, {kind} b", body)

    def floor_index(self, op: BinaryOp) -> str:
        """Return the function that rounds down a position divided by a positive number."""
        kind = self.spelling.index
        name = f"{op.name.lower()}_index"
        if op is BinaryOp.FLOOR_DIV:
            body = "return a / b - (a % b < 0);"
        else:
            body = "return a % b + (a % b < 0 ? b : 0);"
        return self._add(name, kind, f"{kind} a, {kind} b", body)

    def open_index(self, op: BinaryOp) -> str:
        """Return the function for a position divided by an open size, neither of them negative.

        Nothing lies where a size is 0, and a division there must not trap.
        """
        kind = self.spelling.index
        sign = "/" if op is BinaryOp.FLOOR_DIV else "%"
        body = f"return b == 0 ? 0 : a {sign} b;"
        return self._add(f"{op.name.lower()}_open", kind, f"{kind} a, {kind} b", body)

    def divide(self, op: BinaryOp, dtype: DType) -> str:
        """Return the function for an integer division: by zero it gives 0, and it never traps."""
        kind = self.spelling.values[dtype]
        name, parameters = f"{op.name.lower()}_{SHORT[dtype]}", f"{kind} a, {kind} b"
        if dtype.is_unsigned:
            sign = "/" if op in (BinaryOp.TRUNC_DIV, BinaryOp.FLOOR_DIV) else "%"
            body = f"return ({kind})(b == 0 ? 0U : a {sign} b);"
            return self._add(name, kind, parameters, body)
        zero, minus, step, result = _DIVISIONS[op]
        wide = self.unsigned(dtype)
        negated = f"({kind})(({wide})0 - ({wide})a)"
        return self._add(
            name,
            kind,
            parameters,
            step.split(" = ")[0].format(t=f"{kind} ") + ";",
            "if (b == 0) {",
            f"    return {zero};",
            "}",
            "if (b == -1) {",
            f"    return {minus.format(negated=negated)};",
            "}",
            step.format(t="", T=kind),
            f"return ({kind})({result});",
        )

    def divide_float(self, op: BinaryOp, dtype: DType, fmod: str) -> str:
        """Return the function for a remainder of floats with the sign of the divisor."""
        dtype = computed(dtype)
        kind, zero = self.spelling.values[dtype], float_literal(0.0, dtype)
        return self._add(
            f"{op.name.lower()}_{SHORT[dtype]}",
            kind,
            f"{kind} a, {kind} b",
            f"const {kind} r = {fmod}(a, b);",
            f"return r != {zero} && (r < {zero}) != (b < {zero}) ? r + b : r;",
        )

    def shift(self, op: BinaryOp, dtype: DType) -> str:
        """Return the function for a shift; by the width or more it leaves 0, or the sign."""
        kind, wide = self.spelling.values[dtype], self.unsigned(dtype)
        name, bits = f"{op.name.lower()}_{SHORT[dtype]}", dtype.bits
        over, amount = f"({wide})b >= {bits}U", f"({wide})b"
        if op is BinaryOp.SHL:
            body = [f"return ({kind})({over} ? ({wide})0 : ({wide})a << {amount});"]
        elif dtype.is_unsigned:
            body = [f"return ({kind})({over} ? ({wide})0 : ({wide})a >> {amount});"]
        else:
            body = [
                f"const {wide} n = {over} ? {bits - 1}U : {amount};",
                f"return ({kind})(a < 0 ? ~(~a >> n) : a >> n);",
            ]
        return self._add(name, kind, f"{kind} a, {kind} b", *body)

    def absolute(self, dtype: DType) -> str:
        """Return the function for the absolute value of a signed integer; the smallest wraps."""
        kind, wide = self.spelling.values[dtype], self.unsigned(dtype)
        body = f"return ({kind})(a < 0 ? ({wide})0 - ({wide})a : ({wide})a);"
        return self._add(f"abs_{SHORT[dtype]}", kind, f"{kind} a", body)

    def power(self, dtype: DType) -> str:
        """Return the function for a power of integers that wraps; a negative one is truncated."""
        kind, wide = self.spelling.values[dtype], self.unsigned(dtype)
        negative = (
            "if (b < 0) {",
            f"    return ({kind})(a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0);",
            "}",
        )
        return self._add(
            f"pow_{SHORT[dtype]}",
            kind,
            f"{kind} a, {kind} b",
            f"{wide} base = ({wide})a;",
            f"{wide} left = ({wide})b;",
            f"{wide} result = 1;",
            *(negative if dtype.is_signed else ()),
            "for (; left != 0; left >>= 1) {",
            "    result = (left & 1U) != 0 ? result * base : result;",
            "    base *= base;",
            "}",
            f"return ({kind})result;",
        )

    def truncate(self, source: DType, target: DType) -> str:
        """Return the function that converts a float to an integer: it saturates, NaN gives 0."""
        source = computed(source)
        kind, result = self.spelling.values[source], self.spelling.values[target]
        low = -(1 << (target.bits - 1)) if target.is_signed else 0
        high = (1 << (target.bits - (1 if target.is_signed else 0))) - 1
        name, parameter = f"{SHORT[source]}_to_{SHORT[target]}", f"{kind} x"
        if high < 1 << (24 if source is DType.FLOAT32 else 53):
            # Every limit is a float, so clamping first leaves one conversion that fits.
            top, bottom = float_literal(high, source), float_literal(low, source)
            inner = "int32_t" if target.bits < 32 else result
            # NaN is not above 0, so a lower limit of 0 takes care of it.
            number = f"x = x == x ? x : {float_literal(0.0, source)};"
            return self._add(
                name,
                result,
                parameter,
                *((number,) if low else ()),
                f"x = x > {bottom} ? x : {bottom};",
                f"x = x < {top} ? x : {top};",
                f"return ({result})({inner})x;",
            )
        top = float_literal(float(high + 1), source)
        bottom = float_literal(float(low if target.is_signed else -1), source)
        return self._add(
            name,
            result,
            parameter,
            f"if (x >= {top}) {{",
            f"    return {int_literal(high, target)};",
            "}",
            f"if (x > {bottom}) {{",
            f"    return ({result})x;",
            "}",
            f"return x == x ? {int_literal(low, target)} : 0;",
        )

    def round_to_byte(self, target: DType, round_name: str, *, may_be_nan: bool) -> str:
        """Return the function that rounds a float32 to the nearest integer, ties to even, adds a
        zero point and saturates to a byte. NaN gives 0, whatever the zero point is.

        Arm's M profile with a unit for floats has ``VCVTR``, which rounds, converts and saturates
        in one instruction; its C libraries have a call of 15 to 20 for ``rintf`` alone. SSE2 has
        ``CVTSS2SI``, which GCC does not make of ``rintf``: 8 results took 13 ns, and take 7.
        """
        result = self.spelling.values[target]
        low, high = (-128, 127) if target.is_signed else (0, 255)
        saturate = "ssat" if target.is_signed else "usat"
        bottom, top = (float_literal(limit, DType.FLOAT32) for limit in (low, high))
        portable = (
            f"x = {round_name}(x) + (float)zero;",
            f"x = x > {bottom} ? x : {bottom};",
            f"x = x < {top} ? x : {top};",
            f"return ({result})(int32_t)x;",
        )
        body = (
            "#if defined(__GNUC__) && defined(__ARM_FP) && defined(__ARM_ARCH_PROFILE) && \\",
            "    __ARM_ARCH_PROFILE == 'M' && (__ARM_FP & 4)",
            "int32_t whole;",
            '__asm__("vcvtr.s32.f32 %0, %1" : "=t"(x) : "t"(x));',
            "__builtin_memcpy(&whole, &x, 4);",
            '__asm__("ssat %0, #16, %1" : "=r"(whole) : "r"(whole));',
            "whole += zero;",
            f'__asm__("{saturate} %0, #8, %1" : "=r"(whole) : "r"(whole));',
            f"return ({result})whole;",
            "#elif defined(__GNUC__) && !defined(__clang__) && defined(__SSE2__) && \\",
            "    defined(__NO_MATH_ERRNO__)",
            f"const float low = {bottom} - (float)zero, high = {top} - (float)zero;",
            "x = x > low ? x : low;",
            "x = x < high ? x : high;",
            f"return ({result})(__builtin_irintf(x) + zero);",
            "#else",
            *portable,
            "#endif",
        )
        lines = body if self.spelling.for_m_profile else portable
        name = self._add(f"round_to_{SHORT[target]}", result, "float x, int32_t zero", *lines)
        if not may_be_nan:
            return name
        # What rounds to 0 stands for NaN: no branch, unlike a choice of results. Without a unit for
        # floats, the lower limit of unsigned bytes does it.
        number = ("x = x == x ? x : (float)-zero;",)
        if self.spelling.for_m_profile:
            chosen = "x = x == x ? x : nothing;"
            number = ("float nothing = (float)-zero;", *_UNCONDITIONAL, chosen)
        if not target.is_signed and self.spelling.for_m_profile:
            number = ("#if defined(__ARM_FP)", *number, "#endif")
        name = f"quantize_to_{SHORT[target]}"
        called = f"return {PREFIX}round_to_{SHORT[target]}(x, zero);"
        return self._add(name, result, "float x, int32_t zero", *number, called)

    def reinterpret(self, source: DType, target: DType) -> str:
        """Return the function that reads the bits of a number as another type of its width."""
        kind, result = self.spelling.values[source], self.spelling.values[target]
        return self._add(
            f"{SHORT[source]}_as_{SHORT[target]}",
            result,
            f"{kind} value",
            f"union {{ {kind} value; {result} bits; }} x;",
            "x.value = value;",
            "return x.bits;",
        )

    def unsigned(self, dtype: DType) -> str:
        """Return the unsigned type in which integers of a type are computed."""
        return "uint32_t" if dtype.bits <= 32 else "uint64_t"

    def load_float16(self, dtype: DType) -> str:
        """Return the function that widens a 16-bit float from memory."""
        union = "union { float value; uint32_t bits; } x;"
        if dtype is DType.BFLOAT16:
            body = (union, "x.bits = (uint32_t)bits << 16;", "return x.value;")
        else:
            body = (
                union,
                "const uint32_t size = (uint32_t)(bits & 0x7fffU) << 13;",
                "if (size >= 0x0f800000U) {",
                "    x.bits = size + 0x70000000U;",
                "} else if (size >= 0x00800000U) {",
                "    x.bits = size + 0x38000000U;",
                "} else {",
                "    x.value = (float)(bits & 0x3ffU) * 5.9604644775390625e-8f;",
                "}",
                "x.bits |= (uint32_t)(bits & 0x8000U) << 16;",
                "return x.value;",
            )
        return self._add(f"{SHORT[dtype]}_to_f32", "float", "uint16_t bits", *body)

    def store_float16(self, dtype: DType) -> str:
        """Return the function that rounds a float32 to the bits of a 16-bit float, ties to even."""
        head = (
            "union { float value; uint32_t bits; } x;",
            "uint32_t sign;",
            "x.value = value;",
            "sign = (x.bits >> 16) & 0x8000U;",
            "x.bits &= 0x7fffffffU;",
            "if (x.bits > 0x7f800000U) {",
            f"    return (uint16_t)(sign | {'0x7fc0U' if dtype is DType.BFLOAT16 else '0x7e00U'});",
            "}",
        )
        if dtype is DType.BFLOAT16:
            tail = (
                "x.bits += 0x7fffU + ((x.bits >> 16) & 1U);",
                "return (uint16_t)(sign | (x.bits >> 16));",
            )
        else:
            tail = (
                "if (x.bits >= 0x47800000U) {",
                "    return (uint16_t)(sign | 0x7c00U);",
                "}",
                "if (x.bits < 0x38800000U) {",
                "    x.value += 0.5f; /* one unit in the last place is now 2^-24 */",
                "    return (uint16_t)(sign | (x.bits - 0x3f000000U));",
                "}",
                "x.bits += 0xc8000fffU + ((x.bits >> 13) & 1U);",
                "return (uint16_t)(sign | (x.bits >> 13));",
            )
        return self._add(f"f32_to_{SHORT[dtype]}", "uint16_t", "float value", *head, *tail)

    def round_float16(self, dtype: DType) -> str:
        """Return the function that rounds a float32 to the nearest value of a 16-bit float."""
        load, store = self.load_float16(dtype), self.store_float16(dtype)
        name = f"round_{SHORT[dtype]}"
        return self._add(name, "float", "float value", f"return {load}({store}(value));")

    def narrow_to_odd(self) -> str:
        """Return the function that narrows a double so that rounding once more rounds once."""
        return self._add(
            "f64_to_odd_f32",
            "float",
            "double value",
            "union { float value; uint32_t bits; } x;",
            "double got;",
            "x.value = (float)value;",
            "got = (double)x.value;",
            "if (value == value && got != value && (x.bits & 1U) == 0U) {",
            "    x.bits += (got < value) == (value > 0.0) ? 1U : 0xffffffffU;",
            "}",
            "return x.value;",
        )
