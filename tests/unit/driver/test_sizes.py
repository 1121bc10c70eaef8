# SPDX-License-Identifier: Apache-2.0
"""Sizes of several values: their text, their names, the shapes they make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.cli.model_options import parse_shape
from intarsia_ir.graph.types import TensorType, variable
from intarsia_ir.size_values import SizeValues, largest, name_sizes, parse_size
from intarsia_runtime.artifact.plan import SizeGuard
from intarsia_runtime.artifact.size_bounds import SizeBounds, size_bounds
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import UsageError
from intarsia_runtime.size import value_of

X = TensorType((variable("N"), 3, variable("H")), DType.FLOAT32)
Y = TensorType((variable("N"), 8), DType.FLOAT32)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        ("0", 0),
        ("1..32", SizeValues((), 1, 32)),
        ("5..5", SizeValues((), 5, 5)),
        ("16|1|4|4", SizeValues((1, 4, 16))),
        ("", None),
        ("-1", None),
        ("1..", SizeValues((), 1)),
        ("4..", SizeValues((), 4)),
        ("1|", None),
        ("N", None),
    ],
)
def test_sizes_are_read(text: str, size: object) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["0..4", "8..4", "0.."])
def test_empty_ranges_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no range of sizes"):
        parse_size(text)


def test_shapes_are_read() -> None:
    assert parse_shape("a:b:1..4,3") == ("a:b", (SizeValues((), 1, 4), 3))
    assert parse_shape("s:") == ("s", ())
    for text in ("x", ":1", "x:1,,2", "x:1;2", "x:a"):
        with pytest.raises(UsageError, match="is not a shape"):
            parse_shape(text)


@pytest.mark.parametrize("text", ["1..32/8", "1../8"])
def test_ranges_have_no_step(text: str) -> None:
    with pytest.raises(UsageError, match="so a range has no step") as caught:
        parse_size(text)
    assert caught.value.hint.startswith(text.partition("/")[0])


@given(st.integers(1, 40), st.none() | st.integers(0, 40), st.integers(0, 99))
def test_guards_keep_a_size_in_its_range(low: int, more: int | None, size: int) -> None:
    high = None if more is None else low + more
    sizes = SizeValues.at_least(low) if high is None else SizeValues.of_range(low, high)
    guards = list(sizes.guards("N"))
    holds = all(value_of(g.left, {"N": size}) == value_of(g.right, {"N": size}) for g in guards)
    assert holds == ((low == 1 and high is None) or low <= size <= (size if high is None else high))
    bounds = size_bounds(SizeGuard(g.left, g.right, g.why) for g in guards)
    if guards:
        assert bounds == {"N": SizeBounds(low, high)}
        assert str(bounds["N"]) == str(sizes)


def test_names_of_the_model_are_kept() -> None:
    some, high = SizeValues((1, 2)), SizeValues((8, 16))
    shapes = {"x": (some, 3, high), "y": (some, SizeValues((8, 9)))}
    found = name_sizes(shapes, {"x": X, "y": Y})
    assert [str(choice) for choice in found.choices] == [
        "N of 1 or 2",
        "H of 8 or 16",
        "y_1 of 8 or 9",
    ]
    assert found.shapes == {"x": ("N", 3, "H"), "y": ("N", "y_1")}
    rows = found.combinations()
    assert len(rows) == 8
    assert rows[-1].sizes == (2, 16, 9)
    assert rows[-1].shapes == {"x": (2, 3, 16), "y": (2, 9)} == largest(shapes)


def test_sizes_without_a_name_at_the_same_place_are_one() -> None:
    some = SizeValues((1, 2))
    found = name_sizes({"a": (some, some), "b": (some, 8)}, {})
    assert found.shapes == {"a": ("a_0", "a_1"), "b": ("a_0", 8)}
    assert len(found.combinations()) == 4


def test_names_that_converters_invent_are_none() -> None:
    any_ = SizeValues.at_least(1)
    declared = {
        "a": TensorType((variable("unk__7"), 3), DType.FLOAT32),
        "b": TensorType((variable("unknown_2"), variable("unknown_3")), DType.FLOAT32),
    }
    found = name_sizes({"a": (any_, 3), "b": (any_, any_)}, declared)
    assert found.shapes == {"a": ("a_0", 3), "b": ("a_0", "b_1")}
    declared["c"] = TensorType((variable("a_0"),), DType.FLOAT32)
    assert name_sizes({"a": (any_, 3)}, declared).shapes == {"a": ("a_0_", 3)}


def test_ranges_are_size_variables_in_each_combination() -> None:
    shapes = {"x": (SizeValues((1, 2)), 3, SizeValues.of_range(4, 9))}
    found = name_sizes(shapes, {"x": X})
    assert [str(choice) for choice in found.choices] == ["N of 1 or 2"]
    assert {name: str(one) for name, one in found.ranges.items()} == {"H": "from 4 to 9"}
    assert [str(one.shapes["x"][2]) for one in found.combinations()] == ["H", "H"]
    assert [guard.why for guard in found.guards()] == [
        "the artifact was compiled for H from 4 to 9"
    ] * 2
    assert largest(shapes) == {"x": (2, 3, 9)}
    assert largest({"x": (SizeValues.at_least(3),)}) == {"x": (3,)}


@pytest.mark.parametrize("other", [4, SizeValues((1, 4))])
def test_one_name_is_one_size(other: object) -> None:
    shapes = {"x": (SizeValues((1, 2)), 3, 8), "y": (other, 8)}
    with pytest.raises(UsageError, match=r"size 'N' is of 1 or 2 and (4|of 1 or 4) at once"):
        name_sizes(shapes, {"x": X, "y": Y})  # pyright: ignore[reportArgumentType] # mixed


def test_too_many_combinations_are_refused() -> None:
    wide = SizeValues(tuple(range(1, 11)))
    found = name_sizes({"x": (wide, 3, wide)}, {"x": X})
    with pytest.raises(UsageError, match="the sizes combine to 100 programs, at most 64"):
        found.combinations()
