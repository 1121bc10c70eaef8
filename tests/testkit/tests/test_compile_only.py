# SPDX-License-Identifier: Apache-2.0
"""A plugin whose device is elsewhere: all that compiles is checked, and nothing counts as run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intarsia_testkit.marks import COMPILED
from intarsia_testkit.result import Result

Check = Callable[..., dict[str, Any]]
REASON = "the device is elsewhere"
ONLY = f"--intarsia-compile-only={REASON}"


def edited(site: Path, folder: Path, file: str, old: str, new: str) -> Path:
    """A copy of the installed sample with one text replaced."""
    copy = folder / "site"
    shutil.copytree(site, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (path,) = copy.rglob(file)
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return copy


def test_what_cannot_be_loaded_is_compiled_and_exempt(
    sample: Path, run_kit: Check, tmp_path: Path
) -> None:
    line = "        results: list[np.ndarray] = []\n"
    site = edited(sample, tmp_path, "loader.py", line, f'        raise OSError("device")\n{line}')
    few = ("-k", "isolation or determinism or borders or numeric_operator-add", ONLY)
    result = run_kit("sample", *few, "--intarsia-cases=3", site=site)
    rows = {row["check"]: row for row in result["checks"]}
    assert [row for row in rows.values() if row["outcome"] == "failed"] == []
    assert result["tiers"] == {"1": "compiled", "2": "compiled", "3": "compiled"}
    assert (result["tier"], result["compiled_tier"]) == (0, 3)
    assert rows["isolation_no_file_is_left"]["outcome"] == "passed"
    assert rows["determinism_two_processes_give_the_same_bytes"]["outcome"] == "passed"
    for check in ("isolation_a_model_runs", "borders_inputs_may_be_views"):
        assert rows[check]["outcome"] == "exempt"
        assert rows[check]["detail"] == f"{COMPILED}: {REASON}"


@pytest.mark.parametrize("check", ["numeric_operator[nn.relu]", "numeric_fused_patterns"])
def test_what_is_taken_and_does_not_compile_fails(
    sample: Path, run_kit: Check, tmp_path: Path, check: str
) -> None:
    line = "    program = region_program(region)\n"
    refusal = (
        '    from intarsia.plugin import UnsupportedError\n    raise UnsupportedError("never")\n'
    )
    site = edited(sample, tmp_path, "codegen.py", line, refusal + line)
    words = " and ".join(re.findall(r"[\w.]+", check))
    result = run_kit("sample", "-k", words, ONLY, site=site)
    (row,) = (row for row in result["checks"] if row["check"] == check)
    assert row["outcome"] == "failed"
    assert "never" in row["detail"]


def test_a_reason_must_be_given(run_kit: Check) -> None:
    with pytest.raises(AssertionError, match="say why what is compiled cannot run here"):
        run_kit("sample", "--intarsia-compile-only= ")


def test_the_badge_says_that_nothing_ran() -> None:
    result = Result()
    for tier, check in ((1, "a"), (2, "b"), (3, "c")):
        facts = {"plugin": "one", "check": check, "tier": tier}
        result.add(facts, "exempt", f"{COMPILED}: {REASON}", 0.1)
        result.add({**facts, "check": f"{check}2"}, "passed", "", 0.1)
    assert result.tier() == 0
    assert "tier 3 compiled, not run, 3 exempt" in result.badge()
    result.add({"plugin": "one", "check": "d", "tier": 2}, "failed", "wrong", 0.1)
    assert result.compiled_tier() == 1
    assert "tier 1 compiled, not run" in result.badge()
