# SPDX-License-Identifier: Apache-2.0
"""ONNX's own node tests, imported and evaluated: each passes or is refused, none is wrong."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.artifact.random_state import RANDOM_STATE
from intarsia_runtime.errors import ResourceError, UnsupportedError

from .node_tensors import all_agree, imported_with, node_cases, tensors_of

FEWEST_PASSES = 1706  # raise it when more operators are supported; never lower it

GOOD = ("passed", "refused", "no tensors", "drawn")


def _run(case) -> str:
    """Return ``passed``, ``refused``, ``no tensors``, ``drawn`` at random or what is wrong."""
    tensors = tensors_of(case)
    if tensors is None:
        return "no tensors"
    values, wanted = tensors
    try:
        module = imported_with(case.model, values)
    except (UnsupportedError, ResourceError):
        return "refused"
    names = [param.name for param in module.main.params]
    given = {RANDOM_STATE: np.zeros(2, np.int64), **values}
    found = evaluate(module.main, {name: given[name] for name in names}, module)
    if all_agree(case, found, wanted):
        return "passed"
    return "drawn" if RANDOM_STATE in names else "wrong"


def test_node_cases(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for case in node_cases():
        try:
            outcome = _run(case)
        except Exception as error:  # any escape is a failure of this test, with the case's name
            outcome = f"{type(error).__name__}: {error}"
        counts[outcome if outcome in GOOD else "wrong"] += 1
        if outcome not in GOOD:
            wrong.append(f"{case.name}: {outcome}")
    with capsys.disabled():
        print(f"\nONNX node tests: {dict(counts)}")
    assert wrong == []
    assert counts["passed"] >= FEWEST_PASSES
