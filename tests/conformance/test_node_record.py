# SPDX-License-Identifier: Apache-2.0
"""What is kept of the outcomes of ONNX's backend tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from .node_outcome import Outcome, differs, status_of
from .node_record import entry, record

OUTCOMES = (
    Outcome("node", "test_a", "pass"),
    Outcome("node", "test_b", "pass", in_numpy=("TopK", "Unique")),
    Outcome("node", "test_c", "wrong", "2 of 8 elements\n differ"),
    Outcome("light", "test_d", "pass"),
)


def test_entry_counts_and_names() -> None:
    found = entry(OUTCOMES)
    assert found["counts"] == {
        "node": {"pass": 2, "whole": 1, "wrong": 1},
        "light": {"pass": 1, "whole": 1},
    }
    assert found["others"] == {"node": {"test_c": "wrong: 2 of 8 elements differ"}}
    assert found["in_numpy"] == {"TopK": 1, "Unique": 1}
    assert found["versions"]["onnx"]


def test_record_keeps_other_targets(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    record(path, "npu", OUTCOMES)
    record(path, "tpu", OUTCOMES[:1])
    record(path, "npu", OUTCOMES[3:])
    targets = json.loads(path.read_text("utf-8"))["targets"]
    assert set(targets) == {"npu", "tpu"}
    assert set(targets["npu"]["counts"]) == {"light"}


F32 = np.float32


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        (F32([1, 2]), F32([1, 2.0001]), ""),
        (F32([1, 2]), F32([1, 3]), "1 of 2 elements differ, by up to 1"),
        (F32([1, 2]), F32([[1, 2]]), "expected float32 (2,), got float32 (1, 2)"),
        (F32([1, 2]), np.array([1, 2]), "expected float32 (2,), got int64 (2,)"),
        (F32([np.nan]), F32([np.nan]), ""),
        ([F32([1])], [F32([2])], "1 of 1 elements differ, by up to 1"),
        ([F32([1])], [], "expected 1 values, got []"),
        (None, None, ""),
        (np.array(["a"], object), np.array(["a"], object), ""),
    ],
)
def test_values_that_differ(wanted: object, found: object, said: str) -> None:
    assert differs(wanted, found, 1e-3, 1e-7) == said


def test_other_numbers_of_a_model_that_draws_are_not_wrong() -> None:
    assert status_of("1 of 2 elements differ, by up to 1", ("Cast", "Bernoulli")) == "drawn"
    assert status_of("1 of 2 elements differ, by up to 1", ("Cast",)) == "wrong"
    assert status_of("expected float32 (2,), got float32 (1, 2)", ("Bernoulli",)) == "wrong"
