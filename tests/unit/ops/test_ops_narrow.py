# SPDX-License-Identifier: Apache-2.0
"""Narrow element types as bytes: every code and every float16 there is, against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from intarsia_ir.graph.types import TensorType
from intarsia_ir.ops import OPERATORS, narrow, narrow_formats
from intarsia_ir.tir.interp import evaluate
from intarsia_ir.tir.tensor import placeholder
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import TypeRuleError

CODES = np.arange(256, dtype=np.uint8)
HALVES = np.arange(65536, dtype=np.uint16).view(np.float16)
FLOATS = tuple(narrow_formats.FLOATS)


def computed(name: str, x: np.ndarray, **attrs: object) -> np.ndarray:
    """What the compute rule of an operator gives."""
    op = OPERATORS[name]
    values = op.Attrs(**attrs)
    given = placeholder("x", x.shape, DType(x.dtype.name))
    assert op.compute is not None
    tensor = op.compute(values, given)
    wanted = op.type_rule(values, TensorType(x.shape, DType(x.dtype.name)))
    assert (tensor.shape, tensor.dtype) == (wanted.static_shape, wanted.dtype)
    (found,) = (evaluate(tensor, {given: x}),)
    return found


def edges(name: str) -> np.ndarray:
    """Each number of a type, the middles between two, what is next to those, and extremes."""
    dtype = narrow_formats.stored_type(name)
    numbers = CODES.view(dtype).astype(np.float32)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    special = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3e38, -3e38])
    points = np.concatenate([numbers, middles, special])
    around = [np.nextafter(points, np.float32(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([points, *around])


@pytest.mark.parametrize("name", [*FLOATS, *narrow_formats.INTEGERS, narrow_formats.EXPONENTS])
def test_every_code_stands_for_the_number_of_ml_dtypes(name: str) -> None:
    found = computed("narrow.decode", CODES, format=name)
    dtype = narrow_formats.stored_type(name)
    used = 15 if name.startswith("float4") else 255  # unused upper bits do not matter
    view = (CODES & np.uint8(used)).view(dtype)
    wanted = (view.astype(np.int8) if name in narrow_formats.INTEGERS else view).astype(np.float32)
    np.testing.assert_array_equal(found, wanted)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(wanted)[numbers])
    reference = OPERATORS["narrow.decode"].reference(narrow.Decode.Attrs(format=name), CODES)
    np.testing.assert_array_equal(reference, wanted)
    half = computed("narrow.decode", CODES, format=name, dtype=DType.FLOAT16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(half, wanted.astype(np.float16))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", FLOATS)
def test_every_half_rounds_as_in_ml_dtypes(name: str, saturate: bool) -> None:
    dtype = narrow_formats.stored_type(name)
    numbers = HALVES.astype(np.float32)
    if saturate or name.startswith("float4"):
        largest = float(ml_dtypes.finfo(dtype).max)
        numbers = np.where(np.isnan(numbers), numbers, np.clip(numbers, -largest, largest))
    with np.errstate(invalid="ignore"):
        wanted = numbers.astype(dtype).view(np.uint8)
    found = computed("narrow.encode", HALVES, format=name, saturate=saturate)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", FLOATS)
def test_ties_and_limits_round_as_in_ml_dtypes(name: str, saturate: bool, dtype: type) -> None:
    x = edges(name).astype(dtype)
    found = computed("narrow.encode", x, format=name, saturate=saturate)
    wanted = OPERATORS["narrow.encode"].reference(
        narrow.Encode.Attrs(format=name, saturate=saturate), x
    )
    np.testing.assert_array_equal(found, wanted)
    if not saturate and not name.startswith("float4"):
        np.testing.assert_array_equal(
            found, x.astype(narrow_formats.stored_type(name)).view(np.uint8)
        )


@pytest.mark.parametrize("rounding", narrow_formats.ROUNDINGS)
def test_exponents_of_all_sizes(rounding: str) -> None:
    x = edges(narrow_formats.EXPONENTS)
    halves = HALVES.astype(np.float32)
    with np.errstate(over="ignore"):
        x = np.concatenate([x, x * np.float32(1.25), x * np.float32(0.3), halves])
    attrs = {"format": narrow_formats.EXPONENTS, "rounding": rounding}
    found = computed("narrow.encode", x, **attrs)
    wanted = OPERATORS["narrow.encode"].reference(narrow.Encode.Attrs(**attrs), x)
    np.testing.assert_array_equal(found, wanted)
    sizes = np.abs(x[np.isfinite(x) & (x != 0) & (np.abs(x) < 1e38)])
    exact = np.log2(sizes.astype(np.float64))
    codes = computed("narrow.encode", sizes, **attrs).astype(np.int64) - 127
    if rounding == "down":
        np.testing.assert_array_equal(codes, np.maximum(np.floor(exact), -127))
    elif rounding == "up":
        np.testing.assert_array_equal(codes, np.maximum(np.ceil(exact), -126))


@pytest.mark.parametrize("name", narrow_formats.INTEGERS)
def test_integers_keep_their_lowest_bits(name: str) -> None:
    bits, dtype = narrow_formats.INTEGERS[name], narrow_formats.stored_type(name)
    for x in (
        np.arange(-300, 300, dtype=np.int16),
        CODES,
        np.float32([-8.9, -1.5, -0.5, 0.5, 3.99, 7, 1e9, -np.inf, np.nan]),
    ):
        found = computed("narrow.encode", x, format=name)
        wanted = OPERATORS["narrow.encode"].reference(narrow.Encode.Attrs(format=name), x)
        np.testing.assert_array_equal(found, wanted)
        assert (found < 1 << bits).all()
        if x.dtype.kind != "f":
            kept = ((x.astype(np.int64) + (1 << bits - 1)) % (1 << bits)) - (1 << bits - 1)
            kept = x.astype(np.int64) % (1 << bits) if name.startswith("u") else kept
            np.testing.assert_array_equal(found.view(dtype).astype(np.int64), kept)


def test_what_is_no_narrow_type_is_refused() -> None:
    x = TensorType((2,), DType.FLOAT32)
    with pytest.raises(TypeRuleError, match="no narrow element type 'int8'"):
        narrow.Encode.type_rule(narrow.Encode.Attrs(format="int8"), x)
    with pytest.raises(TypeRuleError, match="rounding 'odd'"):
        narrow.Encode.type_rule(narrow.Encode.Attrs(format="int4", rounding="odd"), x)
    with pytest.raises(TypeRuleError, match="int4 is stored in uint8, not float32"):
        narrow.Decode.type_rule(narrow.Decode.Attrs(format="int4"), x)
