# SPDX-License-Identifier: Apache-2.0
"""What is left of a large angle when quarter turns are taken off it: the cold path of sine and kin.

Near zero a rule subtracts multiples of pi/2 in float64. From :data:`FAR` on that loses digits, and
an angle of 2**1000 needs a thousand digits of pi. The method is that of Payne and Hanek: of 2/pi
only the bits matter whose product with the angle's 53 is neither a whole number of turns nor too
small to see, some 192. A test on all lanes decides whether any is far; then each goes through a
function of its own.
"""

from __future__ import annotations

from intarsia_runtime.dtype import DType

from .spelling import float_text, overload, splat, vector_type
from .writer import FunctionWriter

FAR = 2.0**20
"""Magnitude from which on angles are reduced here: below, multiples of pi/2 are exact in parts."""

TWO_BY_PI = (
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
)
"""The first 1216 bits of 2/pi behind the point."""

_HALF_PI = 0xC90FDAA22168C234  # pi/2 * 2**63

_FUNCTION = "@intarsia.far_angle"
_RESULT = "{ double, i64 }"
_RARELY = '!prof !{!"branch_weights", i32 1, i32 4000}'


def emit_far_angle(w: FunctionWriter, angle: str, lanes: int, *, quarter_turns: bool) -> str:
    """Write the rest of an angle within pi/4 of 0, or how many quarter turns were taken off.

    Of an angle that is not far the rest is the angle itself, and the number is 0. Both are computed
    at once, where the first of them is asked for.

    Args:
        w: Where to write.
        angle: A value of float64.
        lanes: Of it.
        quarter_turns: Whether to give the number, as int64, but for a multiple of four.
    """
    keys = [f"far angle of {angle}: {number}" for number in range(2)]
    if keys[quarter_turns] not in w.shared:
        for key, value in zip(keys, _both(w, angle, lanes), strict=True):
            w.share(key, value)
    return w.shared[keys[quarter_turns]]


def _both(w: FunctionWriter, angle: str, lanes: int) -> tuple[str, str]:
    """Write the rest and the number; lanes are looked at only if one of them is far."""
    kind, flags = vector_type("double", lanes), vector_type("i1", lanes)
    fabs = w.declarations.use(kind, f"llvm.fabs.{overload(DType.FLOAT64, lanes)}", (kind,))
    size = w.emit(f"call {kind} {fabs}({kind} {angle})")
    limit = splat(float_text(FAR, "double"), "double", lanes)
    far = w.emit(f"fcmp oge {kind} {size}, {limit}")
    if lanes > 1:
        name = f"llvm.vector.reduce.or.v{lanes}i1"
        far = w.emit(f"call i1 {w.declarations.use('i1', name, (flags,))}({flags} {far})")
    w.declarations.use("i64", "llvm.fshl.i64", ("i64",) * 3)
    w.declarations.use("i128", "llvm.ctlz.i128", ("i128", "i1"))
    w.declarations.lines.setdefault(_FUNCTION, _text())
    before, cold, end = w.label, w.fresh_label(), w.fresh_label()
    w.do(f"br i1 {far}, label %{cold}, label %{end}, {_RARELY}")
    w.start_block(cold)
    rest, number = "poison", "poison"
    for lane in range(lanes):
        one = angle if lanes == 1 else w.emit(f"extractelement {kind} {angle}, i64 {lane}")
        result_pair = w.emit(f"call {_RESULT} {_FUNCTION}(double {one})")
        angle_of, number_of = (
            w.emit(f"extractvalue {_RESULT} {result_pair}, {n}") for n in range(2)
        )
        rest = _with_lane(w, rest, angle_of, "double", lane, lanes)
        number = _with_lane(w, number, number_of, "i64", lane, lanes)
    w.do(f"br label %{end}")
    w.start_block(end)
    near, integers = splat("0", "i64", lanes), vector_type("i64", lanes)
    return (
        w.emit(f"phi {kind} [ {angle}, %{before} ], [ {rest}, %{cold} ]"),
        w.emit(f"phi {integers} [ {near}, %{before} ], [ {number}, %{cold} ]"),
    )


def _with_lane(
    w: FunctionWriter, vector: str, element: str, scalar: str, lane: int, lanes: int
) -> str:
    if lanes == 1:
        return element
    kind = vector_type(scalar, lanes)
    return w.emit(f"insertelement {kind} {vector}, {scalar} {element}, i64 {lane}")


def _text() -> str:
    words = ", ".join(f"i64 {word}" for word in (0, *TWO_BY_PI))
    return _TEXT.replace("COUNT", str(1 + len(TWO_BY_PI))).replace("WORDS", words)


_TEXT = f"""
@intarsia.two_by_pi = internal constant [COUNT x i64] [WORDS], align 8

; The angle is m * 2^e. Bits of 2/pi from 2^(1-e) down to 2^(-190-e), times m, are the quarter turns
; modulo 4 with 190 bits behind the point, of which the upper 126 are kept.
define internal {{ double, i64 }} @intarsia.far_angle(double %x) cold noinline nounwind {{
start:
  %bits = bitcast double %x to i64
  %field = lshr i64 %bits, 52
  %exponent = and i64 %field, 2047
  %near = icmp ult i64 %exponent, 1043
  %endless = icmp eq i64 %exponent, 2047
  %asis = or i1 %near, %endless
  br i1 %asis, label %same, label %reduce
same:
  %itself = insertvalue {{ double, i64 }} zeroinitializer, double %x, 0
  ret {{ double, i64 }} %itself
reduce:
  %digits = and i64 %bits, 4503599627370495
  %m64 = or i64 %digits, 4503599627370496
  %m = zext i64 %m64 to i128
  %first = sub i64 %exponent, 1013
  %word = lshr i64 %first, 6
  %shift = and i64 %first, 63
  %p0 = getelementptr i64, ptr @intarsia.two_by_pi, i64 %word
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %w0 = load i64, ptr %p0, align 8
  %w1 = load i64, ptr %p1, align 8
  %w2 = load i64, ptr %p2, align 8
  %w3 = load i64, ptr %p3, align 8
  %a0 = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %shift)
  %a1 = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %shift)
  %a2 = call i64 @llvm.fshl.i64(i64 %w2, i64 %w3, i64 %shift)
  %b1 = zext i64 %a1 to i128
  %b2 = zext i64 %a2 to i128
  %low = mul i128 %m, %b2
  %carried = lshr i128 %low, 64
  %middle = mul i128 %m, %b1
  %lower = add i128 %middle, %carried
  %top = mul i64 %m64, %a0
  %top128 = zext i64 %top to i128
  %upper = shl i128 %top128, 64
  %turns = add i128 %upper, %lower
  %whole128 = lshr i128 %turns, 126
  %whole = trunc i128 %whole128 to i64
  %fraction = shl i128 %turns, 2
  %under = icmp slt i128 %fraction, 0
  %rounded = zext i1 %under to i64
  %n = add i64 %whole, %rounded
  %minus = sub i128 0, %fraction
  %size = select i1 %under, i128 %minus, i128 %fraction
  %zeros = call i128 @llvm.ctlz.i128(i128 %size, i1 false)
  %first.one = shl i128 %size, %zeros
  %upper.half = lshr i128 %first.one, 64
  %product = mul i128 %upper.half, {_HALF_PI}
  %quarter = lshr i128 %product, 64
  %quarter64 = trunc i128 %quarter to i64
  %rest = uitofp i64 %quarter64 to double
  %zeros64 = trunc i128 %zeros to i64
  %power = sub i64 960, %zeros64
  %power.bits = shl i64 %power, 52
  %scale = bitcast i64 %power.bits to double
  %positive = fmul double %rest, %scale
  %below = icmp slt i64 %bits, 0
  %flip = xor i1 %under, %below
  %negative = fneg double %positive
  %r = select i1 %flip, double %negative, double %positive
  %opposite = sub i64 0, %n
  %number = select i1 %below, i64 %opposite, i64 %n
  %half = insertvalue {{ double, i64 }} poison, double %r, 0
  %both = insertvalue {{ double, i64 }} %half, i64 %number, 1
  ret {{ double, i64 }} %both
}}
"""
