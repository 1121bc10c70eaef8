# SPDX-License-Identifier: Apache-2.0
"""Options dataclasses: what they may hold, and what a broken one is told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import pytest

from intarsia.target.options import check_value, option, option_rows, parse_value, print_value
from intarsia_runtime.errors import PluginError, TargetError

from .target_kinds import CpuOptions, NpuOptions


def test_rows_say_what_users_see() -> None:
    rows = {row.flag: row for row in option_rows(CpuOptions)}
    assert list(rows) == [
        "mcpu",
        "mattr",
        "num-threads",
        "fast-math",
        "vectorize",
        "scale",
        "tiles",
    ]
    assert rows["num-threads"].field == "num_threads"
    assert (rows["num-threads"].minimum, rows["num-threads"].maximum) == (0, 1024)
    assert [rows[flag].type for flag in ("mattr", "tiles", "scale")] == [
        "list of str",
        "list of int",
        "float",
    ]
    assert option_rows(NpuOptions)[1].choices == (0, 1, 2)
    assert option_rows(NpuOptions)[3].flag == "sram-size"


def make(hint: object, default: object, **settings: object) -> type:
    """An options class with one field ``x``."""
    settings.setdefault("doc", "words")
    field = option(default, **settings)  # type: ignore[arg-type]
    return dataclasses.make_dataclass("Broken", [("x", hint, field)], frozen=True, kw_only=True)


@pytest.mark.parametrize(
    "options, message",
    [
        (int, "options class int is not a dataclass"),
        (dataclasses.make_dataclass("Thawed", []), "options class Thawed is not frozen"),
        (
            dataclasses.make_dataclass("Plain", [("x", int, 3)], frozen=True),
            "not declared with option",
        ),
        (make("Unknown.Thing", 1), "do not evaluate"),
        (make(dict, ()), "which no option may have"),
        (make(tuple[float, ...], ()), "which no option may have"),
        (make(tuple[int, int], (1, 2)), "which no option may have"),
        (make(Literal["a", 1], 1), "which no option may have"),
        (make(int, "1"), "its default is not allowed"),
        (make(int, 5, maximum=4), "its default is not allowed"),
        (make(Literal["a", "b"], "c"), "its default is not allowed"),
        (make(int, 1, doc=" "), "has no description"),
        (make(int, 1, flag="Kind"), "reserved, given twice or not kebab case"),
        (make(int, 1, flag="accelerators"), "reserved"),
    ],
)
def test_a_broken_options_class_is_refused(options: type, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        option_rows(options)


def test_two_fields_cannot_share_a_flag() -> None:
    @dataclass(frozen=True)
    class Twice:
        a: int = option(1, doc="one")
        b: int = option(1, doc="two", flag="a")

    with pytest.raises(PluginError, match="given twice"):
        option_rows(Twice)


@pytest.mark.parametrize(
    "value, text",
    [
        (True, "true"),
        (-3, "-3"),
        (0.1, "0.1"),
        ("", "''"),
        ("a b", "'a b'"),
        ("+a,+b", "+a,+b"),
        ("+a,b", "'+a,b'"),
        ("a,", "'a,'"),
        ((), "''"),
        (("+x", "+y"), "+x,+y"),
        (("c", "loops"), "'c,loops'"),
        ((4, 8), "4,8"),
    ],
)
def test_values_print_so_that_no_comma_starts_a_target(value: object, text: str) -> None:
    assert print_value(value) == text  # type: ignore[arg-type]


def test_text_is_converted_and_typed_values_are_not() -> None:
    row = option_rows(CpuOptions)[2]
    assert parse_value(row, "8") == 8
    with pytest.raises(TargetError, match="an integer, not '8'"):
        check_value(row, "8")
