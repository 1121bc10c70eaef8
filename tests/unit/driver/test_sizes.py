# SPDX-License-Identifier: Apache-2.0
"""Sizes of several values: their text, their names, the shapes they make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.cli.model_options import parse_shape
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.size_values import SizeValues, largest, name_sizes, parse_size
from intarsia_runtime.artifact.signature import SizeChoice
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UsageError

X = TensorType((variable("N"), 3, variable("H")), DType.FLOAT32)
Y = TensorType((variable("N"), 8), DType.FLOAT32)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        ("0", 0),
        ("1..32", SizeValues((1, 2, 4, 8, 16, 32), 1)),
        ("3..20", SizeValues((4, 8, 16, 20), 3)),
        ("5..5", SizeValues((5,), 5)),
        ("64..512/128", SizeValues((128, 256, 384, 512), 64)),
        ("16|1|4|4", SizeValues((1, 4, 16))),
        ("", None),
        ("-1", None),
        ("1..", SizeValues((1, 8), 1, is_open=True)),
        ("4../32", SizeValues((1, 32), 4, is_open=True)),
        ("2../1", SizeValues((1,), 2, is_open=True)),
        ("1|", None),
        ("N", None),
    ],
)
def test_sizes_are_read(text: str, size: object) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["0..4", "8..4", "0..", "1../0"])
def test_empty_ranges_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no range of sizes"):
        parse_size(text)


def test_shapes_are_read() -> None:
    assert parse_shape("a:b:1..4,3") == ("a:b", (SizeValues((1, 2, 4), 1), 3))
    assert parse_shape("s:") == ("s", ())
    for text in ("x", ":1", "x:1,,2", "x:1;2", "x:a"):
        with pytest.raises(UsageError, match="is not a shape"):
            parse_shape(text)


@given(st.integers(1, 300), st.integers(0, 300), st.integers(0, 40), st.integers(0, 700))
def test_a_range_serves_what_is_in_it(low: int, more: int, step: int, size: int) -> None:
    sizes = SizeValues.of_range(low, low + more, step)
    found = SizeChoice("N", sizes.values, sizes.low).fitting(size)
    assert (found is not None) == (low <= size <= low + more)
    if found is not None:
        assert found >= size
        assert found in sizes.values
        assert not any(size <= other < found for other in sizes.values)


@given(st.integers(1, 20), st.integers(1, 40), st.integers(0, 700))
def test_open_sizes_run_in_chunks(low: int, chunk: int, size: int) -> None:
    sizes = SizeValues.at_least(low, chunk)
    choice = SizeChoice("N", sizes.values, sizes.low, sizes.is_open)
    chunks = choice.chunks(size)
    assert sum(chunks) == (size if size >= low else 0)
    assert list(chunks) == sorted(chunks, reverse=True)
    assert {choice.fitting(one) for one in chunks} == set(chunks) <= set(sizes.values)
    assert choice.chunks(choice.example)
    assert str(choice) == f"N from {low} on"


def test_other_sizes_run_at_once() -> None:
    assert [SizeChoice("N", (2, 8), 2).chunks(size) for size in (1, 3, 9)] == [(), (3,), ()]
    assert SizeChoice("N", (2, 8), 2).example == 8


def test_a_list_serves_what_is_in_it() -> None:
    choice = SizeChoice("N", (1, 4))
    assert [choice.fitting(size) for size in range(6)] == [None, 1, None, None, 4, None]
    assert (str(choice), str(SizeChoice("N", (1, 4), 1))) == ("N of 1 or 4", "N from 1 to 4")


def test_names_of_the_model_are_kept() -> None:
    some, high = SizeValues((1, 2), 1), SizeValues((8, 16))
    shapes = {"x": (some, 3, high), "y": (some, SizeValues((8, 9)))}
    found = name_sizes(shapes, {"x": X, "y": Y})
    assert [str(choice) for choice in found.choices] == [
        "N from 1 to 2",
        "H of 8 or 16",
        "y.1 of 8 or 9",
    ]
    assert found.shapes == {"x": ("N", 3, "H"), "y": ("N", "y.1")}
    rows = found.combinations()
    assert len(rows) == 8
    assert rows[-1].sizes == (2, 16, 9)
    assert rows[-1].shapes == {"x": (2, 3, 16), "y": (2, 9)} == largest(shapes)


def test_sizes_without_a_name_at_the_same_place_are_one() -> None:
    some = SizeValues((1, 2), 1)
    found = name_sizes({"a": (some, some), "b": (some, 8)}, {})
    assert found.shapes == {"a": ("a.0", "a.1"), "b": ("a.0", 8)}
    assert len(found.combinations()) == 4


def test_names_that_converters_invent_are_none() -> None:
    any_ = SizeValues.at_least(1)
    declared = {
        "a": TensorType((variable("unk__7"), 3), DType.FLOAT32),
        "b": TensorType((variable("unknown_2"), variable("unknown_3")), DType.FLOAT32),
    }
    found = name_sizes({"a": (any_, 3), "b": (any_, any_)}, declared)
    assert found.shapes == {"a": ("a.0", 3), "b": ("a.0", "b.1")}


@pytest.mark.parametrize("other", [4, SizeValues((1, 4))])
def test_one_name_is_one_size(other: object) -> None:
    shapes = {"x": (SizeValues((1, 2), 1), 3, 8), "y": (other, 8)}
    with pytest.raises(UsageError, match=r"size 'N' is 1\|2 and (4|1\|4) at once"):
        name_sizes(shapes, {"x": X, "y": Y})  # pyright: ignore[reportArgumentType] # mixed


def test_too_many_combinations_are_refused() -> None:
    wide = SizeValues.of_range(1, 512)
    found = name_sizes({"x": (wide, 3, wide)}, {"x": X})
    with pytest.raises(UsageError, match="the sizes combine to 100 programs, at most 64"):
        found.combinations()
