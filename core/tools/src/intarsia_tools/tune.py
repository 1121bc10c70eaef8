# SPDX-License-Identifier: Apache-2.0
"""Searches for faster schedules of a model's kernels; later builds use them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from intarsia.driver.build import build
from intarsia.driver.open_sizes import example_shapes
from intarsia.host.host import Host
from intarsia.target.target import CompositeTarget
from intarsia_ir.tir.records import Record, read_records
from intarsia_ir.tir.space import Choice
from intarsia_runtime.artifact.abandoned import temporary_folder
from intarsia_runtime.errors import UnsupportedError
from intarsia_runtime.threads import choose_threads

from . import contestant
from .append import append_record
from .bench import compare, interleave
from .contestant import Contestant
from .tune_search import Search
from .tune_tasks import Task, Tasks, TuneJob, open_job, tasks_of
from .tune_worker import TrialOutcome, Worker
from .watch import Watch, quiet

GAIN = 0.97
"""A choice must take at most this much of the rules' time to be kept."""

SHARE = 0.005
"""Kernels with a smaller part of the time of all are left to the rules."""

_FIRST_ROUNDS = 8
_ROUNDS = 16
_FINAL_ROUNDS = 64
_FINALISTS = 3
_MODEL_ROUNDS = 15


class KernelRow(Struct, frozen=True):
    """What became of one kernel.

    Attributes:
        task: The kernel.
        share: Part of the time of all kernels that can be tuned, 0 to 1.
        microseconds: Time of the rules' kernel.
        found: Where the search ended; ``None`` if it did not.
        tried: Choices measured, in this and earlier processes.
        failed: Of these, how many came to nothing.
    """

    task: Task
    share: float
    microseconds: float
    found: Record | None = None
    tried: int = 0
    failed: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the row as the command line prints it."""
        return {
            "signature": self.task.signature,
            "operator": self.task.space.operator,
            "uses": self.task.uses,
            "share": self.share,
            "microseconds": self.microseconds,
            "choice": dict(self.found.choice) if self.found else None,
            "ratio": self.found.ratio if self.found else None,
            "trials": self.tried,
            "failed": self.failed,
        }


class Tuning(Struct):
    """A search over the kernels of a model.

    Attributes:
        tasks: The kernels.
        worker: Measures.
        records: File that every result is appended to.
        threads: Threads of a run.
        trials: Choices for each kernel.
        seed: Of the sampler.
        deadline: When to end, by ``time.monotonic``.
        advance: Told of each choice that is done.
    """

    tasks: Tasks
    worker: Worker
    records: Path
    threads: int
    trials: int
    seed: int
    deadline: float
    advance: Callable[[int], None]
    reasons: list[str] = field(default_factory=list[str])

    def run(self) -> list[KernelRow]:
        """Search every kernel, the one that takes longest first.

        Raises:
            UnsupportedError: The rules' own kernels cannot be measured.
        """
        times = {task: self._rules_time(task) for task in self.tasks.tasks.values()}
        whole = sum(times[task] * task.uses for task in times) or 1.0
        rows = [KernelRow(t, us * t.uses / whole, us) for t, us in times.items()]
        rows.sort(key=_share, reverse=True)
        return [self._kernel(row) for row in rows]

    def _rules_time(self, task: Task) -> float:
        outcome = self.worker.measure(task.signature, {}, _FIRST_ROUNDS)
        if outcome.measured is None:
            raise UnsupportedError(
                f"the kernel {task.signature} cannot be measured here: {outcome.reason}",
                hint="tune runs on the machine that the target is for",
            )
        return outcome.measured.microseconds

    def _kernel(self, row: KernelRow) -> KernelRow:
        task, machine = row.task, self.tasks.machine
        known = read_records(self.records)
        tried = list(known.trials(machine, task.space, task.signature, self.threads))
        best = known.best(machine, task.space, task.signature)
        if best is not None and (best.threads != self.threads or best.trials < self.trials):
            best = None
        self.advance(min(len(tried), self.trials))
        if best is None and row.share >= SHARE:
            tried += self._search(task, tried)
            if tried:
                best = self._settle(task, tried)
        failed = sum(trial.state != "ok" for trial in tried)
        return replace(row, found=best, tried=len(tried), failed=failed)

    def _search(self, task: Task, tried: Sequence[Record]) -> list[Record]:
        """Measure choices until there are enough, time is up or none is left."""
        search = Search(task.space, tried, self.seed)
        made: list[Record] = []
        while len(tried) + len(made) < self.trials and time.monotonic() < self.deadline:
            choice = search.ask()
            if choice is None:
                break
            made.append(self._trial(task, choice))
            search.tell(choice, made[-1].ratio if made[-1].state == "ok" else None)
            self.advance(1)
        return made

    def _trial(self, task: Task, choice: Choice) -> Record:
        outcome = self.worker.measure(task.signature, choice, _ROUNDS)
        if outcome.measured is None or outcome.measured.wrong:
            self.reasons.append(f"{task.signature} {dict(choice)}: {_why(outcome)}")
        row = self._record(task, choice, outcome)
        append_record(self.records, row)
        return row

    def _record(self, task: Task, choice: Choice, outcome: TrialOutcome) -> Record:
        measured = outcome.measured
        return Record(
            machine=self.tasks.machine,
            operator=task.space.operator,
            space=task.space.version,
            signature=task.signature,
            threads=self.threads,
            choice=choice,
            state=outcome.state,
            ratio=measured.ratio if measured else 0.0,
            microseconds=measured.microseconds if measured else 0.0,
        )

    def _settle(self, task: Task, tried: Sequence[Record]) -> Record:
        """Measure the best once more, for longer: the luckiest of many is not the fastest."""
        good = sorted((t for t in tried if t.state == "ok" and t.ratio <= GAIN), key=_ratio)
        best = self._record(task, {}, TrialOutcome("best"))
        best = replace(best, ratio=1.0)
        for trial in good[:_FINALISTS]:
            outcome = self.worker.measure(task.signature, trial.choice, _FINAL_ROUNDS)
            ratio = outcome.measured.ratio if outcome.state == "ok" and outcome.measured else 1.0
            if ratio <= min(GAIN, best.ratio):
                best = replace(self._record(task, trial.choice, outcome), state="best")
        best = replace(best, trials=max(len(tried), self.trials if self._is_left() else 0))
        append_record(self.records, best)
        return best

    def _is_left(self) -> bool:
        return time.monotonic() < self.deadline


class TuneResult(Struct, frozen=True):
    """What a search came to.

    Attributes:
        target: The canonical target.
        machine: Name under which measurements are kept.
        kernels: What became of each kernel, the one that takes longest first.
        failures: Choices that came to nothing, and why.
        whole: The whole model with and without what was found: ``rules_ms`` and ``tuned_ms`` in
            milliseconds, ``ratio`` and its quartiles ``ratio_low`` and ``ratio_high``; all ``None``
            if nothing was found.
    """

    target: str
    machine: str
    kernels: Sequence[KernelRow]
    failures: Sequence[str]
    whole: Mapping[str, float | None]

    def to_json(self) -> dict[str, object]:
        """Return the result as plain JSON."""
        return {
            "target": self.target,
            "machine": self.machine,
            "kernels": [row.to_json() for row in self.kernels],
            "failures": list(self.failures),
            **self.whole,
        }


def tune_model(
    model: Path,
    target: CompositeTarget,
    records: Path,
    *,
    disabled: tuple[str, ...] = (),
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    trials: int = 32,
    time_limit: float | None = None,
    trial_limit: float = 30.0,
    threads: int = 1,
    seed: int = 0,
    progress: Watch = quiet,
) -> TuneResult:
    """Search for faster schedules of a model's kernels on this machine, and keep what is found.

    Every result is appended to the records at once: an interrupted search goes on where it was.

    Args:
        model: The ONNX file.
        target: What it is compiled for; its fallback says what can be tuned.
        records: File that every result is appended to; builds read it.
        disabled: Plugins to leave out.
        shapes: Shapes of inputs whose sizes the model leaves open.
        trials: Choices for each kernel, with those of earlier searches.
        time_limit: Seconds after which no choice is begun any more.
        trial_limit: Seconds after which one choice is given up.
        threads: Threads of a run.
        seed: Of the sampler.
        progress: Shows how far the search is; it is told of each choice.

    Raises:
        UnsupportedError: The fallback has no schedule spaces, or its kernels cannot be measured.
        UsageError: Optuna is not installed.
        WorkerLost: The process that measures could not start.
        ResourceError: The records cannot be written.
    """
    choose_threads(threads)
    host = Host(disabled=disabled)
    sizes = example_shapes(model, shapes or {})
    tasks = tasks_of(host, target, model, sizes)
    job = TuneJob(model, str(target), sizes, disabled, threads)
    limit = float("inf") if time_limit is None else time_limit
    count = trials * len(tasks.tasks)
    with (
        Worker(functools.partial(open_job, job), trial_limit) as worker,
        progress(f"tuning {model.name}", count) as advance,
    ):
        end = time.monotonic() + limit
        tuning = Tuning(tasks, worker, records, threads, trials, seed, end, advance)
        rows = tuning.run()
    whole = _whole_model(host, job, records, rows)
    return TuneResult(job.target, tasks.machine, rows, tuning.reasons, whole)


def _whole_model(
    host: Host, job: TuneJob, path: Path, rows: Sequence[KernelRow]
) -> Mapping[str, float | None]:
    """Measure the model with and without what was found, in turn."""
    names = ("rules_ms", "tuned_ms", "ratio", "ratio_low", "ratio_high")
    if not any(row.found and row.found.choice for row in rows):
        return dict.fromkeys(names)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder("tune"))
        runs: dict[tuple[str, str], Contestant] = {}
        for name, records in (("tuned", str(path)), ("rules", "none")):
            file = folder / f"{name}.intarsia"
            artifact = build(job.model, job.target, host=host, shapes=job.shapes, records=records)
            artifact.save(file)
            inputs = folder / "inputs.npz"
            if not inputs.exists():
                contestant.write_inputs(file, inputs, 0)
            opened = functools.partial(contestant.ours, file, inputs, job.threads)
            runs[name, ""] = stack.enter_context(Contestant(name, opened))
        times = interleave(runs, _MODEL_ROUNDS)
    tuned, rules = times["tuned", ""], times["rules", ""]
    row = compare(job.model.stem, job.target, "rules", job.threads, tuned, rules)
    ratios = (row.ratio, row.ratio_low, row.ratio_high)
    return dict(zip(names, (row.peer_ms, row.median_ms, *ratios), strict=True))


def _why(outcome: TrialOutcome) -> str:
    return outcome.reason or "other results than the rules' kernel"


def _share(row: KernelRow) -> float:
    return row.share


def _ratio(row: Record) -> float:
    return row.ratio
