# SPDX-License-Identifier: Apache-2.0
"""Printing and parsing are inverses; arbitrary text raises TargetError and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.target.compose import compose
from intarsia.target.kind import Role, TargetKind
from intarsia.target.kind_table import KindTable, make_target
from intarsia.target.options import option, option_rows
from intarsia.target.parse import parse_target
from intarsia.target.structured import composite_from_json
from intarsia_runtime.errors import TargetError

from .target_kinds import KINDS

NAMES = ("loops", "c", "npu", "ethos-like", "gpu_2", "x9")
ELEMENT = st.text(string.ascii_letters + string.digits + "_.+=/:@%~#()-", min_size=1, max_size=8)
TEXT = st.text(string.ascii_letters + string.digits + "_.+,=/:@%~#() -", max_size=12).map(str.strip)
INTEGER = st.integers(-(2**63), 2**63 - 1)
TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, INTEGER),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, TEXT | st.sampled_from(["c", "c,npu", "loops", "true"])),
    (tuple[str, ...], st.lists(ELEMENT | st.sampled_from(NAMES), max_size=3).map(tuple)),
    (tuple[int, ...], st.lists(INTEGER, max_size=3).map(tuple)),
]
FLAGS = ("mcpu", "num_threads", "c", "x", "a_b_c")


@st.composite
def targets(draw: st.DrawFn, name: str, role: Role, device: int = 1) -> Any:
    """A target of a generated kind, and the kind."""
    chosen = draw(
        st.lists(st.tuples(st.sampled_from(FLAGS), st.sampled_from(range(6))), max_size=4)
    )
    fields = dict(chosen)
    specs = [(n, TYPES[i][0], option(draw(TYPES[i][1]), doc="d")) for n, i in fields.items()]
    options = dataclasses.make_dataclass("Generated", specs, frozen=True, kw_only=True)
    kind = TargetKind(name, role, options, device_type=device)
    values = {
        row.flag: draw(TYPES[fields[row.field]][1])
        for row in option_rows(options)
        if draw(st.booleans())
    }
    return make_target(kind, values)


@st.composite
def composites(draw: st.DrawFn) -> Any:
    """A composite of generated kinds, and the table of the kinds."""
    names = draw(st.permutations(NAMES))
    accelerators = [
        draw(targets(names[i], Role.ACCELERATOR)) for i in range(draw(st.integers(0, 3)))
    ]
    device = draw(st.booleans())
    backends = [draw(targets(names[4], Role.BACKEND, 2 if device else 1))]
    if device:
        backends.append(draw(targets(names[5], Role.BACKEND)))
    parts = [*accelerators, *backends]
    kinds = KindTable.of(*(t.kind for t in parts), aliases={"short": "c"})
    return compose(parts, kinds), kinds


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(composites())
def test_text_and_json_round_trip(generated: Any) -> None:
    target, kinds = generated
    assert parse_target(str(target), kinds) == target
    assert str(parse_target(str(target), kinds)) == str(target)
    assert parse_target(target.json_text(), kinds) == target
    assert composite_from_json(json.loads(json.dumps(target.to_json())), kinds) == target


PIECES = st.sampled_from(
    [
        "loops",
        "npu",
        "fast",
        "-mcpu",
        "=",
        ",",
        " ",
        "'",
        '"',
        "-",
        "{",
        "}",
        "[",
        ":",
        "--tiles",
        "1",
        "é",
        "\x00",
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=60) | st.lists(PIECES, max_size=12).map("".join))
def test_any_text_is_a_target_or_a_target_error(text: str) -> None:
    with contextlib.suppress(TargetError):
        parse_target(text, KINDS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "mcpu", "tiles", "accelerators", "fallback", "host"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_any_json_is_a_target_or_a_target_error(value: Any) -> None:
    with contextlib.suppress(TargetError):
        composite_from_json(value, KINDS)
    with contextlib.suppress(TargetError):
        composite_from_json({"kind": "loops", "mcpu": value, "tiles": value}, KINDS)
