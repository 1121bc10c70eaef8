# SPDX-License-Identifier: Apache-2.0
"""What becomes of ONNX's backend tests on each target: ``docs/reference/onnx-nodes.md``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from .source_tree import ROOT

RESULTS = ROOT / "docs" / "reference" / "onnx-nodes.json"
HEAD = """# ONNX's own tests

ONNX ships a test for each form of each operator, a model of mostly one node with its inputs and
expected outputs, and some larger ones. Each test is built for a target and run in a worker process
with a limit of time; outputs are held to ONNX's own tolerances, types and shapes exactly.
`python3 noxfile.py conformance` runs them (about ten minutes a target) and writes this page.

A test *passes whole* if every node of it is compiled; otherwise single nodes run in NumPy on the
host, in [the executor `vm`](../usage.md#data-dependent-sizes-and-control-flow), which C sources
have not. What is refused, is refused with a message that says what is missing.
`c -opt-level=0` spares the C compiler's optimizer, and `cuda -emulate` runs the kernels of a GPU as
C++ on the processor. emx-onnx-cgen, a generator of C99, runs by the backend for these tests that it
ships (`gcc -O2`), without the light models, whose weights it writes into C; 89 of its tests need a
compiler that has `_BitInt` and `__bf16`, and 9 a library for images.

The tests of `Bernoulli` expect one draw of NumPy's global generator, whose state no model names,
not even the test with a seed; draws are held to the distribution, and those of a seed to ONNX's
reference evaluator, by tests of our own.

Softmax of float16 computes in float32 and rounds once. Where a model says that the precision of the
sum itself is float16, by a Cast of float16 to float16 before it as in ONNX's body of Attention,
each step is rounded, as NumPy does it.
"""
COLUMNS = ("pass", "whole", "refused", "drawn", "wrong", "failed", "crash", "timeout")
TITLES = ("tests", "pass", "pass whole", "refused", "drawn", "wrong", "failed", "crash", "timeout")


def render() -> str:
    """The whole page."""
    targets: Mapping[str, Mapping[str, Any]] = json.loads(RESULTS.read_text("utf-8"))["targets"]
    return "\n".join(
        [
            HEAD,
            *_counts("The node tests", targets, ("node",)),
            *_counts("The others (simple, light, pytorch)", targets, None),
            *_measured(targets),
            *_not_passed(targets),
            *_in_numpy(targets),
        ]
    )


def _counts(
    title: str, targets: Mapping[str, Mapping[str, Any]], kinds: tuple[str, ...] | None
) -> list[str]:
    lines = [
        f"## {title}",
        "",
        f"| target | {' | '.join(TITLES)} |",
        "|---|" + "--:|" * len(TITLES),
    ]
    for target, entry in targets.items():
        rows = [
            counts
            for kind, counts in entry["counts"].items()
            if (kind in kinds if kinds else kind != "node")
        ]
        if not rows:
            continue
        sums = {name: sum(row.get(name, 0) for row in rows) for name in COLUMNS}
        tests = sum(sums.values()) - sums["whole"]
        cells = [str(tests), *(str(sums[name]) for name in COLUMNS)]
        lines.append(f"| `{target}` | {' | '.join(cells)} |")
    return [*lines, ""]


def _measured(targets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["## Versions", "", "| target | date | versions |", "|---|---|---|"]
    for target, entry in targets.items():
        versions = ", ".join(f"{name} {text}" for name, text in sorted(entry["versions"].items()))
        lines.append(f"| `{target}` | {entry['date']} | {versions} |")
    return [*lines, ""]


def _not_passed(targets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Every test that does not pass, with its reason; those of one reason together."""
    lines = ["## What does not pass", ""]
    for target, entry in targets.items():
        names: dict[str, list[str]] = defaultdict(list)
        for rows in entry["others"].values():
            for name, reason in rows.items():
                names[reason].append(f"`{name}`")
        if not names:
            continue
        lines += [f"### `{target}`", "", "| reason | tests |", "|---|---|"]
        for reason, tests in sorted(names.items(), key=_most_first):
            lines.append(f"| {_cell(reason)} | {', '.join(sorted(tests))} |")
        lines.append("")
    return lines


def _most_first(item: tuple[str, list[str]]) -> tuple[int, str]:
    return -len(item[1]), item[0]


def _in_numpy(targets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """By operator, how many tests pass with a node of it in NumPy."""
    columns = {target: entry["in_numpy"] for target, entry in targets.items() if entry["in_numpy"]}
    names = sorted({name for counts in columns.values() for name in counts})
    lines = [
        "## What runs in NumPy on the host", "",
        "Tests that pass with a node of an operator in NumPy: the size of its result is known to "
        "the run alone, or its elements are no numbers that compiled code has.", "",
        f"| operator | {' | '.join(f'`{target}`' for target in columns)} |",
        "|---|" + "--:|" * len(columns),
    ]  # fmt: skip
    for name in names:
        cells = (str(counts.get(name, 0)) for counts in columns.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    """Text as it is, in a table's cell."""
    for sign in "\\|`<>*_[]":
        text = text.replace(sign, f"\\{sign}")
    return text
