# SPDX-License-Identifier: Apache-2.0
"""Profiles of machines and tags in dicts: what is wrong is said, with its place."""

from __future__ import annotations

import pytest

from intarsia.target.profile import target_of_profile
from intarsia.target.strings import parse_tag
from intarsia.target.structured import composite_from_json
from intarsia_runtime.errors import TargetError

from .target_kinds import KINDS


def test_a_profile_says_a_target_and_other_values_stay() -> None:
    target = {"kind": "loops"}
    assert target_of_profile({"schema": 1, "hardware": "a/b", "target": target}) is target
    assert target_of_profile(target) is target
    assert target_of_profile("loops") == "loops"


@pytest.mark.parametrize(
    "row, message",
    [
        ({"schema": 9, "target": "loops"}, "the profile has schema 9; this version reads 1"),
        ({"schema": True, "target": "loops"}, "the profile has schema True"),
        ({"schema": 1, "target": "loops", "tagret": 1}, "a profile has no key 'tagret'"),
    ],
)
def test_a_profile_that_is_none_is_refused(row: dict[str, object], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        target_of_profile(row)


@pytest.mark.parametrize(
    "row, message, where",
    [
        ({"tag": 3}, "'tag' is not a string", "target.tag"),
        (
            {"tag": "a/b", "target-host": 1},
            "'target-host' cannot be combined with 'tag'",
            "target.target-host",
        ),
        ({"tag": "a/b"}, "no hardware is called 'a/b'", "target"),
    ],
)
def test_a_wrong_tag_in_a_dict_says_where_it_stands(
    row: dict[str, object], message: str, where: str
) -> None:
    with pytest.raises(TargetError) as caught:
        composite_from_json(row, KINDS)
    assert caught.value.message == message
    assert caught.value.where == where


def test_hardware_that_is_not_there() -> None:
    with pytest.raises(TargetError, match="no hardware is called 'a/b'"):
        parse_tag("a/b", {}, KINDS)
