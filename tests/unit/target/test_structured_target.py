# SPDX-License-Identifier: Apache-2.0
"""Targets as JSON and dicts."""

from __future__ import annotations

import time

import pytest

from intarsia.target.parse import parse_target, parse_targets
from intarsia.target.structured import composite_from_json, load_json, target_from_json
from intarsia_runtime.errors import TargetError

from .target_kinds import KINDS

NPU, LOOPS = {"kind": "npu"}, {"kind": "loops"}


@pytest.mark.parametrize(
    "value, canonical",
    [
        ({"kind": "loops", "mcpu": "x", "num-threads": 2}, "loops -mcpu=x -num-threads=2"),
        ({"num_threads": 2, "mcpu": "x", "kind": "loops"}, "loops -mcpu=x -num-threads=2"),
        ({"kind": "loops", "mattr": ["+a", "+b"], "scale": 2}, "loops -mattr=+a,+b -scale=2.0"),
        ({"kind": "loops", "accelerators": ["npu"]}, "npu, loops"),
        (
            {"kind": "loops", "accelerators": ({"kind": "npu", "level": 2},), "host": "loops"},
            "npu -level=2, loops",
        ),
        ({"kind": "gpu", "accelerators": [NPU], "target_host": "c99"}, "npu, gpu, c99"),
        ({"kind": "gpu"}, "gpu, loops"),
        ({"kind": "composite", "accelerators": [NPU], "fallback": LOOPS}, "npu, loops"),
        ({"kind": "composite", "accelerators": [NPU], "target_host": LOOPS}, "npu, loops"),
        (
            {
                "kind": "composite",
                "accelerators": [NPU],
                "target_host": LOOPS,
                "fallback": {"kind": "gpu"},
            },
            "npu, gpu, loops",
        ),
        ({"kind": "composite", "fallback": "loops"}, "loops"),
    ],
)
def test_objects_say_the_same_as_strings(value: object, canonical: str) -> None:
    target = composite_from_json(value, KINDS)
    assert str(target) == canonical
    assert composite_from_json(target.to_json(), KINDS) == target
    assert parse_target(canonical, KINDS) == target


@pytest.mark.parametrize(
    "value, message, where",
    [
        (7, "expected an object, not int", "target"),
        ({}, "'kind' is missing", "target"),
        ({"kind": 3}, "'kind' is missing or is not a string", "target"),
        ({"kind": "loops", 3: 4}, "key 3 is not a string", "target"),
        ({"kind": "lops"}, "no target kind or alias is called 'lops'", ""),
        ({"kind": "loops", "exector": 1}, "has no option '-exector'", "target.exector"),
        (
            {"kind": "loops", "num-threads": "8"},
            "-num-threads is an integer, not '8'",
            "target.num-threads",
        ),
        ({"kind": "loops", "num-threads": True}, "-num-threads is an integer, not True", ""),
        ({"kind": "loops", "num-threads": 2.0}, "-num-threads is an integer, not 2.0", ""),
        ({"kind": "loops", "num-threads": 1, "num_threads": 2}, "-num-threads is given twice", ""),
        ({"kind": "loops", "fast-math": 1}, "-fast-math is true or false, not 1", ""),
        ({"kind": "loops", "scale": "1"}, "-scale is a number, not '1'", ""),
        ({"kind": "loops", "scale": 10**400}, "-scale is a finite number", ""),
        ({"kind": "loops", "mcpu": None}, "-mcpu is a string, not None", ""),
        ({"kind": "loops", "mcpu": " x"}, "a character that no option value may have", ""),
        ({"kind": "loops", "mattr": "+a"}, "-mattr is a list of strings, not '+a'", ""),
        ({"kind": "loops", "mattr": ["a,b"]}, "is empty or holds a comma", ""),
        ({"kind": "loops", "mattr": [["a"]]}, "-mattr is a string", ""),
        ({"kind": "loops", "tiles": [4, "8"]}, "-tiles is an integer, not '8'", ""),
        ({"kind": "loops", "tag": "x"}, "'tag' is not allowed here", "target.tag"),
        ({"kind": "loops", "accelerators": "npu"}, "'accelerators' is not a list", ""),
        (
            {"kind": "loops", "accelerators": ["c99"]},
            "'c99' is a backend",
            "target.accelerators[0]",
        ),
        (
            {"kind": "loops", "accelerators": [{"kind": "composite"}]},
            "composite cannot be inside",
            "",
        ),
        (
            {"kind": "loops", "accelerators": [{"kind": "npu", "accelerators": []}]},
            "'accelerators' is not allowed here",
            "target.accelerators[0].accelerators",
        ),
        ({"kind": "npu", "accelerators": ["ethos-like"]}, "cannot have accelerators", ""),
        ({"kind": "npu"}, "cannot compile a whole model", ""),
        ({"kind": "composite"}, "has neither 'accelerators' nor a 'fallback'", "target"),
        ({"kind": "composite", "accelerators": []}, "nor a 'fallback'", "target"),
        ({"kind": "composite", "accelerators": [NPU]}, "cannot compile a whole model", ""),
        ({"kind": "composite", "fallbak": LOOPS}, "a composite has no key 'fallbak'", ""),
        ({"kind": "composite", "fallback": NPU}, "'npu' is an accelerator, not a backend", ""),
        ({"kind": "composite", "fallback": {"kind": "composite"}}, "cannot be inside", ""),
        ({"kind": "loops", "target_host": "c99"}, "target_host 'c99' is not the host", ""),
        ({"kind": "gpu", "target_host": "c99", "host": "c99"}, "mean the same", ""),
    ],
)
def test_mistakes_say_where_they_stand(value: object, message: str, where: str) -> None:
    with pytest.raises(TargetError) as caught:
        composite_from_json(value, KINDS)
    assert message in caught.value.message
    assert where in caught.value.where


def test_the_argument_and_the_object_name_one_host() -> None:
    (c99,) = parse_targets("c99", KINDS)
    assert composite_from_json({"kind": "gpu", "host": "c99"}, KINDS, c99).host == c99
    with pytest.raises(
        TargetError, match="target_host 'c99' is not the host of the target, 'loops'"
    ):
        composite_from_json({"kind": "gpu", "host": "loops"}, KINDS, c99)


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"kind": "a", "kind": "b"}', "key 'kind' occurs twice"),
        ('{"a": {"b": 1, "b": 1}}', "key 'b' occurs twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1,}', "does not parse"),
        ('{"a": ', "does not parse"),
        ('\ufeff{"a": 1}', "does not parse"),
        ('{"a": ' + "9" * 6000 + "}", "does not parse"),
        ('{"a":' * 100_00, "nests 10000 levels"),
        ("[" * 100_000, "nests 100000 levels"),
        ('{"a": "' + "x" * 10_000_000 + '"}', "at most 100000 are read"),
    ],
)
def test_json_is_read_strictly_and_quickly(text: str, message: str) -> None:
    start = time.process_time()
    with pytest.raises(TargetError, match=message):
        load_json(text)
    assert time.process_time() - start < 1


def test_brackets_and_quotes_in_strings_do_not_nest() -> None:
    value = '[[[[[[[[[[[[[[[[[[\\"[[['
    assert load_json('{"a": "' + value + '"}') == {"a": value.replace("\\", "")}


def test_a_string_in_json_is_one_target() -> None:
    found = target_from_json("npu -variant=n77", KINDS)
    assert str(found) == "npu -variant=n77"
    with pytest.raises(TargetError, match="expected one target here, not 2"):
        target_from_json("fast", KINDS)
    with pytest.raises(TargetError, match=r"target, column 5: -variant cannot be 'n9'") as caught:
        target_from_json("npu -variant=n9", KINDS)
    assert caught.value.where.startswith("target: ")
    with pytest.raises(TargetError, match="cannot be inside another"):
        target_from_json("composite", KINDS)
