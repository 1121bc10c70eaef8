# SPDX-License-Identifier: Apache-2.0
"""Small models that ask for much time or memory: a child ends soon, small, and with a reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from . import bombs

SECONDS = 60
MEMORY = 4 << 30
"""Bytes of the largest process of a command: 2 GiB of what constants give, and what surrounds."""

BOMBS = (
    bombs.constant_in_functions, bombs.names_in_functions, bombs.crossed_diamonds,
    bombs.doubling_constant, bombs.huge_one_hot, bombs.random_numbers, bombs.nested_loops,
    bombs.growing_loop, bombs.polynomial_repetition, bombs.n_grams, bombs.split_text,
    bombs.tree_targets, bombs.long_lstm, bombs.many_random_numbers,
)  # fmt: skip
"""Some of each kind; ``python -m tests.e2e.bombs`` runs all."""
ON_THE_RUN = (bombs.unrolled_loop, bombs.growing_sequence)
"""Those whose work is the run's: it has no limit unless the user gives one."""
LONG = (bombs.fan_out, bombs.wide_split_of_a_row)
"""Those that are only long: each takes some milliseconds for a node, and ends."""

RUN = """
import resource, subprocess, sys
ended = subprocess.run(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(ended.returncode)
"""


def ended(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "intarsia", "run", str(path), "--target", "llvm"]
    return subprocess.run(
        [sys.executable, "-c", RUN, *command, "--no-cache", *options],
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip


def check(run: subprocess.CompletedProcess[str]) -> None:
    assert run.returncode in (0, 3, 4, 8), run.stderr
    assert run.stderr.count("error:") == (run.returncode != 0)
    assert "Traceback" not in run.stderr
    peak = int(run.stderr.rpartition("peak ")[2])
    assert peak << 10 < MEMORY


@pytest.mark.parametrize("build", BOMBS, ids=lambda build: build.__name__)
def test_a_bomb_ends_soon(build: bombs.Builder, tmp_path: Path) -> None:
    check(ended(build(tmp_path)))


@pytest.mark.parametrize("build", ON_THE_RUN, ids=lambda build: build.__name__)
def test_a_limit_of_time_counts_for_the_run(build: bombs.Builder, tmp_path: Path) -> None:
    run = ended(build(tmp_path), "--time-limit", "6", "--memory-limit", "3G")
    check(run)
    assert run.returncode == 8, run.stderr
    assert "--time-limit" in run.stderr or "--memory-limit" in run.stderr


@pytest.mark.parametrize("build", LONG, ids=lambda build: build.__name__)
def test_a_limit_of_time_counts_for_long_models(build: bombs.Builder, tmp_path: Path) -> None:
    start = time.monotonic()
    run = ended(build(tmp_path), "--time-limit", "5")
    check(run)
    assert run.returncode == 8, run.stderr
    assert time.monotonic() - start < 25


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_loop_of_the_run_can_be_interrupted(target: str, tmp_path: Path) -> None:
    path = bombs.unrolled_loop(tmp_path)
    command = [sys.executable, "-m", "intarsia", "run", str(path), "--target", target]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stderr is not None
        process.stderr.readline()  # where the nodes run is said before they do
        time.sleep(1)
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=10) == 130
        assert time.monotonic() - start < 2
        assert "interrupted" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
