# SPDX-License-Identifier: Apache-2.0
"""Quantized ends of kernels: equal to what the interpreter computes step by step."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia_ir.tir.buffer import Buffer
from intarsia_ir.tir.expr import CastExpr, FloatImm, IntImm, PrimExpr, cast, intrinsic
from intarsia_ir.tir.func import PrimFunc
from intarsia_ir.tir.interp import run
from intarsia_ir.tir.intrinsic import Intrinsic
from intarsia_ir.tir.module import TensorModule
from intarsia_llvm.codegen import llvm_text
from intarsia_llvm.target import LlvmOptions
from intarsia_loops.cpu.loops import load, serial, store, vectorized
from intarsia_runtime.artifact.plan import CallPlan
from intarsia_runtime.dtype import DType

COUNT = 96
CPUS = ("native", "haswell", "x86-64")
SMALL = {DType.UINT8: 30, DType.INT8: -5, DType.UINT16: 1000, DType.INT16: 7}


def kernel(of: DType, to: DType, lanes: int, element) -> PrimFunc:
    x, y = Buffer("x", (COUNT,), of), Buffer("y", (COUNT,), to)

    def part(start: PrimExpr) -> object:
        return vectorized(
            lanes, lambda i: store(y, (start * lanes + i,), element(load(x, start * lanes + i)))
        )

    return PrimFunc("k", (x, y), 1, serial(COUNT // lanes, part))


def agree(load_module, function: PrimFunc, data: np.ndarray, cpu: str) -> None:
    kind = function.params[-1].dtype.value
    wanted, found = np.zeros(COUNT, kind), np.zeros(COUNT, kind)
    with np.errstate(all="ignore"):
        run(function, data, wanted)
    load_module([function], mcpu=cpu).get_function("k")(data, found)
    np.testing.assert_array_equal(found, wanted)


def floats() -> np.ndarray:
    generator = np.random.default_rng(1)
    special = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.5, 1.5, 2.5, -0.5, -1.5, 254.5, 255.5]
    special += [-128.5, -129.5, 127.5, 32767.5, -32768.5, 65535.5, 65536.5, 2.0**31, -0.0]
    many = generator.uniform(-400, 400, COUNT)
    many[: len(special)] = special
    return many.astype(np.float32)


def text_of(function: PrimFunc, cpu: str = "haswell") -> str:
    options = LlvmOptions(mtriple="x86_64-unknown-linux-gnu", mcpu=cpu)
    return llvm_text(TensorModule((function,), CallPlan((), (), (), (), 0, ())), options)


def saturated(x: PrimExpr, zero: int, kind: DType) -> PrimExpr:
    rounded = intrinsic(Intrinsic.ROUND, x)
    return cast(rounded + FloatImm(float(zero), DType.FLOAT32) if zero else rounded, kind)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16, 32])
@pytest.mark.parametrize("kind", list(SMALL))
@pytest.mark.parametrize("moved", [False, True])
def test_rounded_floats_saturate(load_module, kind, lanes, moved, cpu) -> None:
    zero = SMALL[kind] if moved else 0
    function = kernel(DType.FLOAT32, kind, lanes, lambda x: saturated(x, zero, kind))
    agree(load_module, function, floats(), cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", list(SMALL))
@pytest.mark.parametrize("less", [0, 3, None])
def test_floats_again(load_module, kind, less, cpu) -> None:
    zero = SMALL[kind]
    less = zero if less is None else less

    def element(x: PrimExpr) -> PrimExpr:
        whole = cast(saturated(x, zero, kind), DType.INT32)
        return cast(whole - IntImm(less, DType.INT32) if less else whole, DType.FLOAT32)

    agree(load_module, kernel(DType.FLOAT32, DType.FLOAT32, 8, element), floats(), cpu)


def test_no_integer_is_made_on_the_way() -> None:
    def element(x: PrimExpr) -> PrimExpr:
        whole = cast(saturated(x, 30, DType.UINT8), DType.INT32)
        return cast(whole - IntImm(30, DType.INT32), DType.FLOAT32)

    text = text_of(kernel(DType.FLOAT32, DType.FLOAT32, 8, element))
    body = text[text.index("void @k(") : text.index("}", text.index("void @k("))]
    assert "fptosi" not in body
    assert "sitofp" not in body
    assert "roundeven" in body


@pytest.mark.parametrize("kind", [DType.UINT8, DType.INT8])
@pytest.mark.parametrize("zero", [255, -255, 40000, -40000])
def test_rounded_bytes_moved_far_saturate(load_module, kind, zero) -> None:
    function = kernel(DType.FLOAT32, kind, 8, lambda x: saturated(x, zero, kind))
    data = floats()
    data[-40:] = np.arange(-20, 20) + 0.5 - zero
    agree(load_module, function, data, "haswell")


def test_avx2_packs_bytes_with_saturation_where_16_bits_hold_what_is_added() -> None:
    texts = [
        text_of(
            kernel(DType.FLOAT32, DType.UINT8, 8, lambda x, z=zero: saturated(x, z, DType.UINT8)),
            cpu,
        )
        for zero, cpu in ((30, "haswell"), (40000, "haswell"), (30, "skylake-avx512"))
    ]
    assert ["packuswb" in text for text in texts] == [True, False, False]


def test_avx512_packs_two_vectors_of_bytes_at_a_time() -> None:
    texts = [
        text_of(kernel(DType.FLOAT32, DType.UINT8, n, lambda x: saturated(x, 30, DType.UINT8)), cpu)
        for n, cpu in ((32, "skylake-avx512"), (16, "skylake-avx512"), (32, "haswell"))
    ]
    assert ["packuswb.512" in text for text in texts] == [True, False, False]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", [DType.UINT8, DType.INT8])
def test_a_saturated_byte_that_is_a_float_again_stays_one(load_module, kind, cpu) -> None:
    def element(x: PrimExpr) -> PrimExpr:
        return cast(saturated(x, 7, kind), DType.FLOAT32) * FloatImm(0.5, DType.FLOAT32)

    function = kernel(DType.FLOAT32, DType.FLOAT32, 8, element)
    agree(load_module, function, floats(), cpu)
    assert " to <8 x i8>" not in text_of(function)


def kernel_with_zeros(to: DType, zeros: DType, lanes: int, element) -> PrimFunc:
    """As :func:`kernel`; ``element`` is given what loads two zero points as well."""
    x, y = Buffer("x", (COUNT,), DType.FLOAT32), Buffer("y", (COUNT,), to)
    first, second = (Buffer(name, (), zeros) for name in ("first", "second"))

    def value(i: PrimExpr) -> PrimExpr:
        return element(load(x, i), load(first), load(second))

    def part(start: PrimExpr) -> object:
        return vectorized(lanes, lambda i: store(y, (start * lanes + i,), value(start * lanes + i)))

    return PrimFunc("k", (x, first, second, y), 3, serial(COUNT // lanes, part))


def agree_with_zeros(load_module, function: PrimFunc, zeros: tuple[int, int], cpu: str) -> None:
    kind, stored = function.params[-1].dtype.value, function.params[1].dtype.value
    given = [floats(), *(np.array(zero, stored) for zero in zeros)]
    wanted, found = np.zeros(COUNT, kind), np.zeros(COUNT, kind)
    with np.errstate(all="ignore"):
        run(function, *given, wanted)
    load_module([function], mcpu=cpu).get_function("k")(*given, found)
    np.testing.assert_array_equal(found, wanted)


def moved_by(x: PrimExpr, zero: PrimExpr) -> PrimExpr:
    return cast(intrinsic(Intrinsic.ROUND, x) + cast(zero, DType.FLOAT32), zero.dtype)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("lanes", [1, 3, 8, 16])
@pytest.mark.parametrize("kind", [DType.UINT8, DType.INT8])
def test_zero_points_in_memory_saturate(load_module, kind, lanes, cpu) -> None:
    function = kernel_with_zeros(kind, kind, lanes, lambda x, zero, _: moved_by(x, zero))
    for zero in (0, 30, 127, 255 if kind is DType.UINT8 else -128):
        agree_with_zeros(load_module, function, (zero, 0), cpu)


def subtracted(x: PrimExpr, zero: PrimExpr, less: PrimExpr) -> PrimExpr:
    whole = cast(moved_by(x, zero), DType.INT32)
    return cast(whole - cast(less, DType.INT32), DType.FLOAT32)


def subtracted_again(x: PrimExpr, zero: PrimExpr, _: PrimExpr) -> PrimExpr:
    return subtracted(x, zero, zero)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", [DType.UINT8, DType.INT8])
def test_zero_points_in_memory_are_subtracted_again(load_module, kind, cpu) -> None:
    def whole(x: PrimExpr, zero: PrimExpr, _: PrimExpr) -> PrimExpr:
        return cast(cast(moved_by(x, zero), DType.INT32), DType.FLOAT32)

    def other(x: PrimExpr, zero: PrimExpr, _: PrimExpr) -> PrimExpr:
        return subtracted(x, zero, IntImm(3, DType.INT32))

    for element in (subtracted_again, subtracted, whole, other):
        function = kernel_with_zeros(DType.FLOAT32, kind, 8, element)
        agree_with_zeros(load_module, function, (30, 17), cpu)


def test_no_integer_is_made_of_what_the_same_byte_in_memory_moves() -> None:
    made = [
        text_of(kernel_with_zeros(DType.FLOAT32, DType.UINT8, 8, element))
        for element in (subtracted_again, subtracted)
    ]
    assert ["packuswb" in text for text in made] == [False, True]


@pytest.mark.parametrize("added", [0.5, float("inf"), float("nan"), 1e9])
def test_what_is_added_must_be_whole_and_small(load_module, added: float) -> None:
    def element(x: PrimExpr) -> PrimExpr:
        return cast(intrinsic(Intrinsic.ROUND, x) + FloatImm(added, DType.FLOAT32), DType.UINT8)

    agree(load_module, kernel(DType.FLOAT32, DType.UINT8, 8, element), floats(), "native")


def scaled_sum(x: PrimExpr, scale: float, divisor: float) -> PrimExpr:
    a = cast(cast(x, DType.INT32) - IntImm(3, DType.INT32), DType.FLOAT32)
    return a * FloatImm(scale, DType.FLOAT32) / FloatImm(divisor, DType.FLOAT32)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("divisor", [0.05, 3.0, 0.1234567, -7.7, 2.0**-20, 1.9999999])
def test_quotients_are_rounded_correctly(load_module, divisor, lanes, cpu) -> None:
    data = np.random.default_rng(2).integers(-(2**31), 2**31, COUNT).astype(np.int32)
    function = kernel(DType.INT32, DType.FLOAT32, lanes, lambda x: scaled_sum(x, 0.0371, divisor))
    agree(load_module, function, data, cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("divisor", [0.05, 3.0, 0.1234567, -7.7, 2.0**-40, 2.0**20, 1.9999999])
def test_quotients_by_passed_scalars_are_rounded_correctly(
    load_module, divisor, lanes, cpu
) -> None:
    data = np.random.default_rng(2).integers(-(2**31), 2**31, COUNT).astype(np.int32)
    given = np.array(divisor, np.float32), np.array(0.0371, np.float32)
    function = quotient_of_passed("s0", "s1", lanes)
    wanted, found = np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32)
    run(function, data, *given, wanted)
    load_module([function], mcpu=cpu).get_function("k")(data, *given, found)
    np.testing.assert_array_equal(found, wanted)


def quotient_of_passed(divisor: str, scale: str, lanes: int = 8) -> PrimFunc:
    """``(x - 3) * scale / divisor`` of two parameters of these names."""
    x, y = Buffer("x", (COUNT,), DType.INT32), Buffer("y", (COUNT,), DType.FLOAT32)
    by, times = (Buffer(name, (), DType.FLOAT32) for name in (divisor, scale))

    def value(i: PrimExpr) -> PrimExpr:
        whole = cast(load(x, i), DType.INT32) - IntImm(3, DType.INT32)
        return cast(whole, DType.FLOAT32) * load(times) / load(by)

    def part(start: PrimExpr) -> object:
        return vectorized(lanes, lambda i: store(y, (start * lanes + i,), value(start * lanes + i)))

    return PrimFunc("k", (x, by, times, y), 3, serial(COUNT // lanes, part))


def test_scalars_are_multiplied_by_if_they_are_known_to_be_of_a_limited_size() -> None:
    vector = "fdiv <8 x float>"
    assert vector not in text_of(quotient_of_passed("s0", "s1"))
    assert vector in text_of(quotient_of_passed("p1", "s1"))
    assert vector in text_of(quotient_of_passed("s0", "p2"))


def divides(element, of: DType = DType.INT32, cpu: str = "haswell") -> bool:
    return "fdiv" in text_of(kernel(of, DType.FLOAT32, 8, element), cpu)


def test_only_finite_dividends_are_multiplied() -> None:
    def by(divisor: float):
        return lambda x: scaled_sum(x, 0.5, divisor)

    seven = FloatImm(7.0, DType.FLOAT32)
    assert not divides(by(7.0))
    assert divides(by(7.0), cpu="x86-64")  # has no fused multiplication
    assert divides(by(1e30))
    assert divides(by(0.0))
    assert divides(by(float("nan")))
    assert divides(lambda x: scaled_sum(x, 1e30, 7.0))
    assert divides(lambda x: scaled_sum(x, float("inf"), 7.0))
    assert divides(lambda x: seven / cast(x, DType.FLOAT32))
    assert divides(lambda x: x / seven, DType.FLOAT32)
    whole = CastExpr(CastExpr(FloatImm(7.9, DType.FLOAT32), DType.INT32, 1), DType.FLOAT32, 1)
    assert divides(lambda x: cast(x, DType.FLOAT32) / whole)  # by 7, not by 7.9
    assert divides(lambda x: intrinsic(Intrinsic.EXP, cast(x, DType.FLOAT32)) / seven)
    assert not divides(lambda x: cast(saturated(x, 3, DType.UINT8), DType.INT32), DType.FLOAT32)


def test_a_rounded_float_is_finite() -> None:
    def element(x: PrimExpr) -> PrimExpr:
        whole = cast(saturated(x, 30, DType.UINT8), DType.INT32)
        return cast(whole - IntImm(3, DType.INT32), DType.FLOAT32) / FloatImm(7.0, DType.FLOAT32)

    assert not divides(element, DType.FLOAT32)
