# SPDX-License-Identifier: Apache-2.0
"""The process that waits says how the other ended, and ends in the same way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody waits")
SCRIPT = """
import os, signal, sys, time
from intarsia.cli.supervise import supervise
made = supervise(["compile"])
if made.code is not None:
    sys.exit(made.code)
made.note.write({note!r})
{act}
made.note.complete()
"""


def ended(act: str, note: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(act=act, note=note)],
        env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    "act, note, code, words",
    [
        ("print('done')", "", 0, ""),
        ("made.note.complete(); sys.exit(3)", "", 3, ""),
        ("os._exit(0)", "plugin 'x' (x 1): annotate()", 5, "annotate() ended the process (exit"),
        ("os.kill(os.getpid(), 11)", "p: f()", 5, "p: f() killed the process (signal SIGSEGV)"),
        ("os.abort()", "p: f() done after 2 ms", 5, "the last hook that was asked: p: f()"),
        ("os.abort()", "", 5, "error: native code killed the process (signal SIGABRT)\n"),
        ("os.kill(os.getpid(), 9)", "", -9, ""),
        ("signal.signal(15, signal.SIG_DFL); os.kill(os.getpid(), 15)", "", -15, ""),
        ("signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)", "", 130, ""),
    ],
)
def test_the_end_of_the_child_is_told(act: str, note: str, code: int, words: str) -> None:
    run = ended(act, note)
    assert (run.returncode, words in run.stderr) == (code, True), run.stderr
    assert bool(run.stderr) == bool(words)


def test_a_child_that_takes_far_more_memory_than_it_may_is_ended() -> None:
    act = "made.note.watch(0.0, 64 << 20); held = bytearray(256 << 20)\nfor n in range(0, len(held)"
    run = ended(f"{act}, 4096): held[n] = 1\ntime.sleep(50)")
    assert run.returncode == 8
    assert "the limit of memory was passed" in run.stderr
    assert "--memory-limit" in run.stderr


def test_nobody_waits_when_told_so() -> None:
    run = ended("", INTARSIA_NO_PROBE="1")
    assert "AttributeError" in run.stderr  # there is no note


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_parent_reaches_the_child(number: signal.Signals) -> None:
    heard = f"import signal; signal.signal({number.value}, signal.SIG_DFL)\n"  # nohup ignores some
    script = heard + SCRIPT.format(act="print(os.getpid(), flush=True); time.sleep(60)", note="")
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(timeout=30) == -number
    assert gone(child)


def test_an_interrupt_before_the_child_can_say_that_it_ends_is_one() -> None:
    begin = "import signal; signal.signal(2, signal.default_int_handler)\n"
    # The parent waits by then. A signal just before a sleep begins does not end it: short ones.
    act = "try: time.sleep(1); print(os.getpid(), flush=True); [time.sleep(0.1) for _ in [0] * 600]"
    act += "\nexcept KeyboardInterrupt: os._exit(130)"
    script = begin + SCRIPT.format(act=act, note="")
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")


def test_a_parent_that_was_stopped_and_goes_on_waits_as_before() -> None:
    short = "from intarsia.cli import supervise as it\nit._GRACE = 0.1\n"
    act = "print(os.getpid(), flush=True); time.sleep(3); print('done', flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", short + SCRIPT.format(act=act, note="")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert int(process.stdout.readline())
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.5)  # longer than between two looks
            process.send_signal(signal.SIGCONT)
            time.sleep(0.1)
        printed, errors = process.communicate(timeout=30)
    assert (process.returncode, printed, errors) == (0, "done\n", "")


def test_the_child_ends_with_its_parent() -> None:
    act = "print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(act=act, note="")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    assert gone(child)


def gone(process: int) -> bool:
    """Whether a process ends within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{process}/stat", encoding="utf-8") as stream:
                if stream.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_child_that_does_not_see_its_deadline_is_ended() -> None:
    act = "made.note.watch(time.monotonic() - 2.9, 0); [time.sleep(0.1) for _ in [0] * 600]"
    run = ended(act)
    assert run.returncode == 8
    assert "the limit of time was passed" in run.stderr
    assert "--time-limit" in run.stderr
