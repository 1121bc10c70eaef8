# SPDX-License-Identifier: Apache-2.0
"""Run ONNX's backend tests on a target: ``python -m tests.conformance.onnx_nodes --target llvm``.

Every test is built and run in a worker process with a time limit; a worker that dies or hangs is
replaced. The table names every test that does not pass, with the reason. ``--target emx-onnx-cgen``
gives the same tests to that program, where it is installed. ``--record`` keeps what the page
``docs/reference/onnx-nodes.md`` is made of.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any

from . import emx_nodes
from .node_outcome import STATUSES, Outcome, differs, status_of
from .node_record import record
from .onnx_cases import KINDS, OnnxCase, collect


def run_case(case: OnnxCase, target: str) -> Outcome:
    """Build and run one test in this process."""
    import intarsia
    from intarsia_runtime.errors import IntarsiaError, UnsupportedError

    start = time.perf_counter()

    def outcome(status: str, reason: str = "", in_numpy: tuple[str, ...] = ()) -> Outcome:
        seconds = round(time.perf_counter() - start, 3)
        return Outcome(case.kind, case.name, status, reason, in_numpy, seconds)

    try:
        model, sets, rtol, atol = case.read()
        data = model.SerializeToString()
        try:
            artifact = intarsia.build(data, target)
        except UnsupportedError:
            artifact = intarsia.build(data, target, executor=intarsia.Executor("vm"))
        in_numpy = tuple(sorted({row.op for row in artifact.placement.host}))
        with artifact.load(threads=1) as executable:
            for inputs, wanted in sets:
                found = list(executable.run(list(inputs)).values())
                problem = differs(wanted, found, rtol, atol)
                if problem:
                    operators = [node.op_type for node in model.graph.node]
                    return outcome(status_of(problem, operators), problem, in_numpy)
        return outcome("pass", "", in_numpy)
    except UnsupportedError as error:
        return outcome("refused", error.message)
    except IntarsiaError as error:
        return outcome("failed", f"{type(error).__name__}: {error}")
    except Exception as error:  # any escape is a finding of its own
        return outcome("failed", f"escaped {type(error).__name__}: {error}")


def _work(pipe: connection.Connection, target: str, kinds: tuple[str, ...]) -> None:
    """Body of a worker: gets numbers of tests, gives outcomes."""
    cases = list(collect(kinds))
    pipe.send(len(cases))
    while (index := pipe.recv()) is not None:
        case = cases[index]
        pipe.send(emx_nodes.run_case(case) if target == emx_nodes.NAME else run_case(case, target))


class Worker:
    """A worker process that is replaced when it dies."""

    def __init__(self, target: str, kinds: tuple[str, ...]) -> None:
        self._arguments = (target, kinds)
        self._start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other, *self._arguments), daemon=True)
        self._process.start()
        other.close()
        self._pipe.recv()

    def run(self, index: int, case: OnnxCase, limit: float) -> Outcome:
        """Have one test run; a worker that dies or takes longer than ``limit`` is replaced."""
        self._pipe.send(index)
        try:
            if self._pipe.poll(limit):
                return self._pipe.recv()
            outcome = Outcome(case.kind, case.name, "timeout", f"more than {limit:g} s")
        except EOFError:
            self._process.join(5)
            code = self._process.exitcode
            outcome = Outcome(case.kind, case.name, "crash", f"exit code {code}")
        self.stop()
        self._start()
        return outcome

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def run_all(
    target: str, kinds: tuple[str, ...], pattern: str, limit: float, every: int = 1
) -> Iterator[Outcome]:
    """Yield the outcomes of the tests whose name matches, one after the other."""
    worker = Worker(target, kinds)
    try:
        chosen = [(i, c) for i, c in enumerate(collect(kinds)) if re.search(pattern, c.name)]
        for index, case in chosen[::every]:
            yield worker.run(index, case, limit)
    finally:
        worker.stop()


def report(target: str, outcomes: Iterable[Outcome]) -> str:
    """Return a table of counts, and every test that does not pass under its reason."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for outcome in outcomes:
        counts = rows[outcome.kind]
        counts[outcome.status] += 1
        counts["in NumPy"] += outcome.status == "pass" and bool(outcome.in_numpy)
        if outcome.status != "pass":
            reasons[outcome.status, outcome.reason].append(outcome.name)
    lines = [f"target: {target}", f"{'kind':18}{''.join(f'{s:>9}' for s in STATUSES)}  in NumPy"]
    for kind, counts in rows.items():
        numbers = "".join(f"{counts[status]:9}" for status in STATUSES)
        lines.append(f"{kind:18}{numbers}{counts['in NumPy']:10}")
    for (status, reason), names in sorted(reasons.items(), key=_by_count):
        lines.append(f"{len(names):4} {status}: {reason}")
        lines += [f"       {name}" for name in names]
    return "\n".join(lines)


def _by_count(item: tuple[tuple[str, str], list[str]]) -> tuple[int, tuple[str, str]]:
    return -len(item[1]), item[0]


def main() -> int:
    """Run from the command line; exit code 1 if a test is wrong, fails, crashes or hangs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", help="default: llvm; may be repeated")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--filter", default="", help="a regular expression on the tests' names")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one test")
    parser.add_argument("--every", type=int, default=1, help="run only each N-th test")
    parser.add_argument("--json", type=Path, help="file for all outcomes")
    parser.add_argument("--record", type=Path, help="file whose entries of the targets are renewed")
    given = parser.parse_args()
    written: dict[str, list[dict[str, Any]]] = {}
    bad = False
    for target in given.target or ["llvm"]:
        kinds, limit = tuple(given.kinds), given.timeout
        outcomes = list(run_all(target, kinds, given.filter, limit, given.every))
        print(report(target, outcomes), flush=True)
        written[target] = [asdict(outcome) for outcome in outcomes]
        if given.record is not None:
            record(given.record, target, outcomes)
        own = target != emx_nodes.NAME
        bad |= own and any(
            outcome.status not in ("pass", "refused", "drawn") for outcome in outcomes
        )
    if given.json is not None:
        given.json.write_text(json.dumps({"schema": 1, "targets": written}, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
