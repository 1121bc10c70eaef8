# SPDX-License-Identifier: Apache-2.0
"""The plugin's predicates against the library's own ``validate()``, over a generated grid."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .emulation import ROOT, missing
from .grid import ask_library, generate

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
        said = case.row.accepts(case.match)
        # Newer releases take more; what the plugin takes, every release must.
        if bool(said) != valid and not (ROOT and valid):
            kind = f"{case.row.name}: plugin {said.code.value}, library {valid}"
            wrong[kind] += 1
            examples.setdefault(kind, case.describe())
    assert not wrong, "\n".join(f"{n} x {kind}, e.g. {examples[kind]}" for kind, n in wrong.items())
    # Both answers are among the cases, or agreement would say little.
    assert 50 < sum(answers) < len(answers)
    assert sum(answers) < len(answers) - 50 or ROOT
