# SPDX-License-Identifier: Apache-2.0
"""The search of ``tune``: what is tried, what is remembered, and what a bad candidate costs."""

from __future__ import annotations

import functools
import sys
import time
import types
from pathlib import Path

import pytest

from intarsia_ir.tir.records import Record, read_records
from intarsia_ir.tir.space import Choice, Knob, ScheduleSpace
from intarsia_runtime.errors import UnsupportedError, UsageError, WorkerLost
from intarsia_tools.tune import KernelRow, Tuning
from intarsia_tools.tune_search import Search
from intarsia_tools.tune_tasks import MeasuredChoice, Task
from intarsia_tools.tune_worker import TrialOutcome, Worker

KNOBS = (Knob("rows", (0, 2, 4), "rows"), Knob("panel", (0, 1), "panel"))
SPACE = ScheduleSpace("matmul", 1, KNOBS, lambda *_: None)
MEASURED = "__import__('intarsia_tools.tune_tasks', fromlist=['x']).MeasuredChoice(0.5, 3.0)"


def key(choice: Choice) -> tuple:
    return tuple(sorted(choice.items()))


def ask_all(search: Search, result: float | None = 1.5) -> list[Choice]:
    found: list[Choice] = []
    while (choice := search.ask()) is not None:
        found.append(choice)
        search.tell(choice, result)
    return found


def test_every_choice_is_tried_once_until_none_is_left() -> None:
    pytest.importorskip("optuna", reason="the search is Optuna's")
    for result in (1.5, None):
        found = ask_all(Search(SPACE, (), 0), result)
        assert sorted(map(key, found)) == sorted({key(choice) for choice in found})
        assert {} not in found  # the rules' choice is what everything is measured against
        assert len(found) == 5


def test_the_same_seed_gives_the_same_search_and_what_was_tried_is_not_again() -> None:
    pytest.importorskip("optuna", reason="the search is Optuna's")
    assert ask_all(Search(SPACE, (), 3)) == ask_all(Search(SPACE, (), 3))
    tried = [record({"rows": 2}), record({"rows": 4}, state="late"), record({"gone": 7})]
    left = ask_all(Search(SPACE, tried, 0))
    assert sorted(map(key, left)) == [
        (("panel", 1),), (("panel", 1), ("rows", 2)), (("panel", 1), ("rows", 4)),
    ]  # fmt: skip


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError) as caught:
        Search(SPACE, (), 0)
    assert "intarsia[tune]" in caught.value.hint


def record(choice: Choice, state: str = "ok", ratio: float = 1.2) -> Record:
    return Record(
        machine="here", operator="matmul", space=1, signature="s", threads=1,
        choice=choice, state=state, ratio=ratio,
    )  # fmt: skip


def test_a_candidate_that_dies_hangs_or_fails_costs_a_trial_and_no_more() -> None:
    with Worker(functools.partial(types.SimpleNamespace, measure=eval), 1.5) as worker:

        def tell(source: str) -> TrialOutcome:
            return worker.measure(source, {}, None)  # type: ignore[arg-type]

        assert tell(MEASURED) == TrialOutcome("ok", MeasuredChoice(0.5, 3.0))
        assert tell("__import__('os')._exit(7)").reason == "ended the process (exit code 7)"
        died = tell("__import__('os').kill(__import__('os').getpid(), 11)")
        assert (died.state, died.reason) == ("failed", "ended the process (exit code -11)")
        start = time.monotonic()
        assert tell("__import__('time').sleep(60)").state == "late"
        assert time.monotonic() - start < 20
        assert tell("1 / 0") == TrialOutcome("failed", None, "ZeroDivisionError: division by zero")
        assert tell(MEASURED.replace("3.0", "3.0, True")).state == "wrong"
        assert tell(MEASURED).state == "ok"


def test_a_worker_that_cannot_start_ends_the_search() -> None:
    with (
        Worker(functools.partial(exec, "raise SystemExit(3)"), 3.0) as worker,
        pytest.raises(WorkerLost, match="exit code"),
    ):
        worker.measure("s", {}, 1)
    with Worker(lambda: eval("0"), 3.0) as worker, pytest.raises(Exception, match="pickle"):
        worker.measure("s", {}, 1)  # nothing was started, so nothing is ended
    refusing = functools.partial(
        exec, "from intarsia_runtime.errors import *; raise UsageError('no')"
    )
    with Worker(refusing, 3.0) as worker, pytest.raises(UsageError, match="no"):
        worker.measure("s", {}, 1)


class Machine:
    """A worker whose times are made up: fewer rows are faster; one choice is wrong."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict, int]] = []

    def measure(self, signature: str, choice: Choice, rounds: int) -> TrialOutcome:
        self.asked.append((signature, dict(choice), rounds))
        if signature == "broken":
            return TrialOutcome("failed", None, "no such kernel")
        if choice == {"rows": 2, "panel": 1}:
            return TrialOutcome("wrong", MeasuredChoice(0.1, 1.0, wrong=True))
        ratio = {0: 1.0, 2: 0.5, 4: 0.9}[choice.get("rows", 0)]
        return TrialOutcome("ok", MeasuredChoice(ratio, 100 * ratio))


def tuning(path: Path, machine: Machine, *signatures: str, trials: int = 8, left: float = 60.0):
    tasks = {s: Task(SPACE, s, None, 1, frozenset()) for s in signatures}  # type: ignore[arg-type]
    made = types.SimpleNamespace(tasks=tasks, machine="here")
    return Tuning(made, machine, path, 1, trials, 0, time.monotonic() + left, lambda _: None)  # type: ignore[arg-type]


def rows_of(search: Tuning) -> dict[str, KernelRow]:
    pytest.importorskip("optuna", reason="the search is Optuna's")
    return {row.task.signature: row for row in search.run()}


def test_a_search_keeps_every_result_and_ends_with_the_best_right_one(tmp_path: Path) -> None:
    path, machine = tmp_path / "r.jsonl", Machine()
    search = tuning(path, machine, "s")
    row = rows_of(search)["s"]
    assert row.found is not None
    assert dict(row.found.choice) == {"rows": 2}
    assert (row.found.ratio, row.tried, row.failed) == (0.5, 5, 1)
    assert search.reasons == [
        "s {'rows': 2, 'panel': 1}: other results than the rules' kernel"
    ] or search.reasons == ["s {'panel': 1, 'rows': 2}: other results than the rules' kernel"]
    states = [r.state for r in read_records(path).rows]
    assert sorted(states) == ["best", "ok", "ok", "ok", "ok", "wrong"]
    assert states[-1] == "best"


def test_a_second_search_measures_only_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows_of(tuning(path, Machine(), "s", trials=2))
    again = Machine()
    assert rows_of(tuning(path, again, "s", trials=2))["s"].tried == 2
    assert [choice for _, choice, _ in again.asked] == [{}]  # its share of the time
    more = Machine()
    assert rows_of(tuning(path, more, "s", trials=4))["s"].tried == 4
    trials = [r for r in read_records(path).rows if r.state != "best"]
    assert len({key(r.choice) for r in trials}) == len(trials) == 4


def test_when_time_is_up_the_rest_is_left_to_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    row = rows_of(tuning(path, Machine(), "s", left=-1.0))["s"]
    assert row.found is None
    assert row.to_json()["choice"] is None
    assert read_records(path).rows == ()


def test_a_kernel_that_the_rules_cannot_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="cannot be measured here: no such kernel"):
        rows_of(tuning(tmp_path / "r.jsonl", Machine(), "broken"))
