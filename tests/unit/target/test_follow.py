# SPDX-License-Identifier: Apache-2.0
"""Options of an accelerator that the backend behind it decides."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from intarsia.target.kind import Role, TargetKind
from intarsia.target.kind_table import KindTable
from intarsia.target.options import option
from intarsia.target.parse import parse_target
from intarsia_runtime.errors import TargetError


@dataclass(frozen=True, kw_only=True)
class Engine:
    chip: str = option("auto", doc="chip", choices=("auto", "one", "two"))


@dataclass(frozen=True, kw_only=True)
class Backend:
    chip: str = option("one", doc="chip")


@dataclass(frozen=True, kw_only=True)
class Plain:
    level: int = option(1, doc="effort")


KINDS = KindTable.of(
    TargetKind("engine", Role.ACCELERATOR, Engine, follows=("chip",)),
    TargetKind("chips", Role.BACKEND, Backend),
    TargetKind("plain", Role.BACKEND, Plain),
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("engine, chips", "engine -chip=one, chips"),
        ("engine, chips -chip=two", "engine -chip=two, chips -chip=two"),
        ("engine -chip=two, chips -chip=two", "engine -chip=two, chips -chip=two"),
        ("engine, plain", "engine, plain"),
        ("engine -chip=two, plain", "engine -chip=two, plain"),
    ],
)
def test_the_backend_decides(text: str, canonical: str) -> None:
    parsed = parse_target(text, KINDS)
    assert str(parsed) == canonical
    assert parse_target(canonical, KINDS) == parsed


def test_who_decided_is_known() -> None:
    (engine,) = parse_target("engine, chips -chip=two", KINDS).accelerators
    assert dict(engine.origins) == {"chip": "chips"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("engine -chip=one, chips -chip=two", "'engine -chip=one' is for another device"),
        ("engine, chips -chip=three", "'engine' does not compile for this device"),
    ],
)
def test_two_devices_in_one_target_are_refused(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse_target(text, KINDS)
