# SPDX-License-Identifier: Apache-2.0
"""20 000 strings that are nearly targets: each is one, or a ``TargetError`` that points at it."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from contextlib import suppress

import pytest

from intarsia.driver.config import Executor
from intarsia.target.kind_table import KindTable
from intarsia.target.parse import parse_target
from intarsia.target.target import CompositeTarget
from intarsia_runtime.errors import UsageError

from .target_kinds import KINDS

STRINGS = 20_000
SECONDS = 20.0
TAGS = KindTable(KINDS.kinds, KINDS.aliases, {"acme/board": "npu, loops -mcpu=a72"})
SEEDS = (
    "loops -mcpu=skylake-avx512 -mattr=+avx512f,+avx2 -num-threads=2",
    "npu,ethos-like -accelerator-config=u55-256,c99",
    "npu -variant=n77 -level 2, gpu -scale -2.5e3, c99",
    "fast, loops -mattr '+a, +b' -tiles=4,16 -fast-math true",
    "acme/board -num-threads=2",
    '{"kind": "composite", "accelerators": ["npu", {"kind": "ethos-like", "sram-size": 8}], '
    '"fallback": {"kind": "gpu", "tiles": [1, 2]}, "target_host": "loops -mcpu=x"}',
    '{"kind": "loops", "accelerators": [{"kind": "npu", "level": 2}], "mattr": ["+a"]}',
)
PIECES = (
    *("loops", "npu", "gpu", "c99", "fast", "both", "round", "acme/board", "composite"),
    *("-mcpu", "-mattr", "-tiles", "-scale", "--level", "-fast-math", "-executor", "-system-lib"),
    *(" ", ",", ", ", "=", "'", '"', "-", "--", "{", "}", "[", "]", ":", "\\", "\n", "\t", "/"),
    *("0", "-1", "1e999", "nan", "true", "x" * 200, "é", "\x00", "\ud800", "99999999999999999999"),
    *('"kind"', '"host"', '"accelerators"', "null", "../../etc/passwd", "x.json", "."),
)


def mutated(random_: random.Random) -> str:
    """A seed with some edits, or pieces in a row."""
    if random_.random() < 0.25:
        return "".join(random_.choices(PIECES, k=random_.randrange(1, 14)))
    text = random_.choice(SEEDS)
    for _ in range(random_.randrange(1, 3)):
        at, to = sorted(random_.randrange(len(text) + 1) for _ in range(2))
        match random_.randrange(4):
            case 0:
                text = text[:at] + random_.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[min(to, at + 6) :]
            case 2:
                text = text[:at] + text[at:to] + text[at:to][:20] + text[to:]
            case _:
                text = text[:at] + chr(random_.randrange(32, 0x250)) + text[at + 1 :]
    return text


def outcome(text: str) -> CompositeTarget | Exception:
    """The target, or whatever it raises."""
    try:
        return parse_target(text, TAGS)
    except Exception as error:
        return error


@pytest.mark.slow
def test_a_string_is_a_target_or_a_target_error() -> None:
    random_ = random.Random(20_000)
    start = time.process_time()
    counts: Counter[str] = Counter()
    for _ in range(STRINGS):
        text = mutated(random_)
        found = outcome(text)
        counts[type(found).__name__] += 1
        if isinstance(found, CompositeTarget):
            assert parse_target(str(found), TAGS) == found, text
            assert parse_target(json.dumps(found.to_json()), TAGS) == found, text
        else:
            assert len(str(found)) < 4000, text
    assert time.process_time() - start < SECONDS
    assert counts.keys() == {"CompositeTarget", "TargetError"}
    assert counts["CompositeTarget"] > STRINGS // 40
    assert counts["TargetError"] > STRINGS // 4


@pytest.mark.slow
def test_an_executor_string_is_one_or_a_usage_error() -> None:
    random_ = random.Random(4)
    words = (
        "aot",
        "graph",
        "vm",
        "-unpacked-api",
        "-interface-api=c",
        "=",
        "'",
        ",",
        " ",
        "{",
        "1",
    )
    read: list[str] = []
    texts = ("aot" + "".join(random_.choices(words, k=random_.randrange(5))) for _ in range(2_000))
    for text in dict.fromkeys(texts):  # each one finds the installed plugins anew
        with suppress(UsageError):
            executor = Executor(text)
            read.append(text)
            assert Executor(str(executor)) == executor
    assert len(read) > 7
