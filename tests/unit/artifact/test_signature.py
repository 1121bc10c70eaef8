# SPDX-License-Identifier: Apache-2.0
"""Signatures and sizes in a passport: there and back, and damaged ones."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from intarsia_runtime.artifact.passport import (
    MAX_DEPTH,
    Part,
    Passport,
    parse_passport,
    print_passport,
)
from intarsia_runtime.artifact.plan import CallPlan, TensorSpec
from intarsia_runtime.artifact.signature import ModelSignature, SizeChoice, ValueSpec
from intarsia_runtime.dtype import DType
from intarsia_runtime.errors import ArtifactError

PLAIN = Passport(
    name="m",
    intarsia="0",
    target="t",
    os="linux",
    arch="x86_64",
    plan=CallPlan((TensorSpec("x", (2,), DType.INT8),), (), (), (), 0, ()),
    units=(),
)
OPEN = replace(
    PLAIN,
    declared=ModelSignature(
        (ValueSpec("x", "float32", ("N", 3)), ValueSpec("s", "seq(tensor(float))", None)),
        (ValueSpec("y", "", None),),
    ),
    sizes=(SizeChoice("N", (1, 4)),),
    parts=(Part(name="a", passport=PLAIN, weights={"v": "w"}, sizes=(1,)),),
)


def test_a_passport_with_parts_comes_back() -> None:
    for passport in (PLAIN, OPEN):
        assert parse_passport(print_passport(passport)).to_json() == passport.to_json()
    assert PLAIN.signature.inputs == (ValueSpec("x", "int8", (2,)),)
    assert parse_passport(print_passport(OPEN)).signature == OPEN.declared


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("sizes", 0, "sizes"), [4, 1], "do not ascend"),
        (("sizes", 0, "sizes"), [], "do not ascend"),
        (("sizes", 0, "low"), 1, "sizes between programs do not run"),
        (("sizes", 0, "open"), True, "sizes between programs do not run"),
        (("sizes", 0), 3, "a size is not an object"),
        (("signature", "inputs", 0, "shape"), [2.5], "the shape of 'x' in the passport is none"),
        (("signature", "inputs", 0), "x", "a value is not an object"),
        (("parts", 0), "x", "a part is not an object"),
        (("parts", 0, "passport", "schema"), 9, "schema 9"),
        (("parts", 0, "weights"), {"v": 1}, "not an object of texts"),
    ],
)
def test_damaged_signatures(path: tuple[str | int, ...], value: object, message: str) -> None:
    document = json.loads(print_passport(OPEN))
    row = document
    for key in path[:-1]:
        row = row[key]
    row[path[-1]] = value
    with pytest.raises(ArtifactError, match=message):
        parse_passport(json.dumps(document).encode())


def test_parts_do_not_nest_without_end() -> None:
    deep = PLAIN
    for _ in range(MAX_DEPTH + 1):
        deep = replace(PLAIN, parts=(Part(name="a", passport=deep),))
    with pytest.raises(ArtifactError, match="parts of parts, more than 2 deep"):
        parse_passport(print_passport(deep))
