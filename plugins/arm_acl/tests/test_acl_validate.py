# SPDX-License-Identifier: Apache-2.0
"""The plugin's predicates against the library's own ``validate()``, over a generated grid."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .emulation import ROOT, missing
from .grid import ask_library, fused, generate

LEAST = 2000


def test_predicates_agree_with_validate(tmp_path: Path) -> None:
    reason = missing()
    if reason:
        pytest.skip(reason)
    grid = generate()
    assert len(grid) >= LEAST
    answers = ask_library(grid, tmp_path)
    wrong: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for case, valid in zip(grid, answers, strict=True):
        said = case.row.accepts(case.match) and case.row.is_valid(case.match)
        # Newer releases take more; what the plugin takes, every release must.
        if bool(said) != valid and not (ROOT and valid):
            kind = f"{case.row.name}: plugin {said.code.value}, library {valid}"
            wrong[kind] += 1
            examples.setdefault(kind, case.describe())
    assert not wrong, "\n".join(f"{n} x {kind}, e.g. {examples[kind]}" for kind, n in wrong.items())
    # Both answers are among the cases, or agreement would say little.
    assert 50 < sum(answers) < len(answers)
    assert sum(answers) < len(answers) - 50 or ROOT


def test_what_is_fused_is_valid(tmp_path: Path) -> None:
    """Functions that end in an activation, with the same arguments as in a unit."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    rows = [(case, case.row, case.match) for case in generate()]
    accepted = [case for case, row, m in rows if row.accepts(m) and row.is_valid(m)]
    questions = fused(accepted)
    functions = {case.draft.steps[-1].function for case in questions}
    assert {"NEConvolutionLayer", "NEFullyConnectedLayer", "NEBatchNormalizationLayer"} <= functions
    answers = ask_library(questions, tmp_path)
    wrong = [
        f"{case.draft.steps[-1].function} with {case.draft.steps[-1].activation}: {case.describe()}"
        for case, valid in zip(questions, answers, strict=True)
        if not valid
    ]
    assert not wrong, "\n".join(wrong)
