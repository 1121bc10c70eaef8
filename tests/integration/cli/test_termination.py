# SPDX-License-Identifier: Apache-2.0
"""A process that is killed leaves nothing, or what it leaves is removed later.

Interrupts and terminations are exceptions, but not where Python would drop them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from tests.unit.host.installed import install

from intarsia.cli import process
from intarsia.cli.process import Termination
from intarsia.host.discovery import find_plugins
from intarsia.host.trial import try_plugin
from intarsia_ir.writing.new_file import NewFile, atomic_write
from intarsia_runtime.artifact.abandoned import temporary_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody waits")

WRITES = """
import signal, sys, time
from pathlib import Path
from intarsia_ir.writing.new_file import NewFile, atomic_write
from intarsia.cli import main, supervise
from intarsia.__main__ import run
for number in (15, 1, 2):  # nohup ignores some
    signal.signal(number, signal.default_int_handler if number == 2 else signal.SIG_DFL)

def write(*, note):
    with atomic_write(Path({path!r})) as file:
        file.write(b"half")
        file.flush()
        {before}
        print("ready", flush=True)
        for _ in range(600):  # a signal just before a sleep begins does not end it
            time.sleep(0.1)

main.main, supervise._GRACE, sys.argv = write, 0.2, ["intarsia", "compile"]
sys.exit(run())
"""


def ended(path: Path, number: int, before: str = "") -> int:
    """Send a signal to a process that writes a file; its exit code."""
    script = WRITES.format(path=str(path), before=before)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        return process.wait(timeout=30)


def set_age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGINT, 130)]
)
def test_half_a_file_is_removed(tmp_path: Path, number: signal.Signals, code: int) -> None:
    assert ended(tmp_path / "y", number) == code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("threads", ["", "; import threading; threading.Timer(60, id).start()"])
def test_it_is_removed_if_nobody_has_it(tmp_path: Path, threads: str) -> None:
    """An interrupt may come before anybody has it; and a thread may outlast the command."""
    lost = f"NewFile(Path({str(tmp_path / 'z')!r})){threads}"
    assert ended(tmp_path / "y", signal.SIGINT, lost) == 130
    assert list(tmp_path.iterdir()) == []


def test_who_does_not_heed_is_killed_and_cleaned_up_after(tmp_path: Path) -> None:
    """Native code heeds nothing. What it leaves is removed by the next writer."""
    path, deaf = tmp_path / "y", "signal.pthread_sigmask(signal.SIG_BLOCK, [15])"
    assert ended(path, signal.SIGTERM, deaf) == -15
    (left,) = tmp_path.iterdir()
    assert (left.name[:3], left.suffix) == (".y.", ".tmp")
    others = [tmp_path / name for name in (".y.1.tmp", ".x.1.00000000.tmp", ".y.1.0000000g.tmp")]
    for other in others:
        other.write_bytes(b"")
        os.utime(other, (0, 0))
    with atomic_write(path) as file:
        file.write(b"whole")
    assert not left.exists()
    assert all(other.exists() for other in others)


def test_the_file_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "y"
    with closing(NewFile(path)) as first:
        (mine,) = tmp_path.iterdir()
        set_age(mine, 1e6)
        dead = tmp_path / f".y.{2**22 + 1}.00000000.tmp"  # more than Linux numbers processes
        nobodys = tmp_path / f".y.{os.getpid()}.00000000.tmp"
        for file in (dead, nobodys):
            file.write_bytes(b"")
        with atomic_write(path) as file:
            file.write(b"second")
        assert (mine.exists(), dead.exists(), nobodys.exists()) == (True, False, True)
        set_age(nobodys, 4000)
        with atomic_write(path) as file:
            file.write(b"third")
        assert (mine.exists(), nobodys.exists()) == (True, False)
        first.file.write(b"first")
        first.commit()
    assert path.read_bytes() == b"first"


HOLDS = """
import sys, time
from intarsia_runtime.artifact.abandoned import temporary_folder
with temporary_folder("test") as folder:
    print(folder, flush=True)
    time.sleep(60)
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", HOLDS]
    pair = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    try:
        folders = [Path(one.stdout.readline().strip()) for one in pair if one.stdout is not None]
        pair[0].kill()
        pair[0].wait()
        (tmp_path / "intarsia-old-x").mkdir()  # made by what locks nothing
        with temporary_folder("test") as mine:
            found = [folder.exists() for folder in (*folders, mine)]
        assert found == [False, True, True]
        assert sorted(tmp_path.iterdir()) == sorted([folders[1], tmp_path / "intarsia-old-x"])
    finally:
        for one in pair:
            one.kill()
            one.communicate()


MAKES_MANY = """
from intarsia_runtime.artifact.abandoned import temporary_folder
for number in range(300):
    with temporary_folder("test") as folder:
        (folder / "file").write_bytes(b"")
        (folder / "file").unlink()
"""


def test_a_folder_that_was_just_made_is_nobody_elses(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", MAKES_MANY]
    several = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE) for _ in range(4)]
    assert [(one.communicate()[1], one.returncode) for one in several] == [(b"", 0)] * 4


def test_the_folder_of_a_trial_is_removed(tmp_path: Path) -> None:
    site, temporary = tmp_path / "site", tmp_path / "tmp"
    package = install(site, "npu")
    (site / package / "plugin.py").write_text("import time\ntime.sleep(60)\n")
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(site)}
    env["INTARSIA_CACHE_DIR"] = str(tmp_path / "cache")
    script = (
        "import signal, sys\nsignal.signal(15, signal.SIG_DFL)\n"
        f"sys.argv = ['intarsia', 'explain', {str(tmp_path)!r}, '--target', 'npu, npu']\n"
        "from intarsia.__main__ import run\nsys.exit(run())"
    )
    with subprocess.Popen([sys.executable, "-c", script], env=env) as process:
        deadline = time.monotonic() + 30
        while not list(temporary.glob("intarsia-trial-*/stdout")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == -signal.SIGTERM
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_killed_trial_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = install(tmp_path / "site", "npu")
    module = tmp_path / "site" / package / "plugin.py"
    pid, temporary = tmp_path / "pid", tmp_path / "tmp"
    lines = ("import os, time", "from pathlib import Path")
    says = f"Path({str(pid)!r}).write_text(str(os.getpid()))"
    module.write_text("\n".join((*lines, says, "time.sleep(60)", "")))
    temporary.mkdir()
    script = (
        "import sys\nfrom intarsia.host.discovery import find_plugins\n"
        "from intarsia.host.trial import try_plugin\ntry_plugin(find_plugins(sys.argv[1:])[0], 60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "site")]
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(tmp_path / "site")}
    with subprocess.Popen(command, env=env) as process:
        wait_for(lambda: pid.exists() and pid.read_text())
        process.kill()
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert len(list(temporary.iterdir())) == 1
    module.write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (found,) = find_plugins([str(tmp_path / "site")])
    try_plugin(found, 30)
    assert list(temporary.iterdir()) == []


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def termination() -> Iterator[Termination]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in numbers[1:]:
        signal.signal(number, signal.SIG_DFL)
    made, hook = Termination(), sys.unraisablehook
    made.heed()
    yield made
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)


def callback(number: int) -> Callable[[], None]:
    """Return a function that is interrupted, by the names of that of Python's importing."""
    text = f"import signal\ndef cb():\n    signal.raise_signal({number})\n    done.append(1)\n"
    names: dict[str, object] = {"done": []}
    exec(compile(text, "<frozen importlib._bootstrap>", "exec"), names)
    return cast("Callable[[], None]", names["cb"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_an_exception(termination: Termination, number: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert termination.number == (number if number == signal.SIGTERM else 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("termination")
def test_in_a_callback_of_importing_it_comes_later(number: int) -> None:
    callback(number)()  # goes on to its end
    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)


class Destroyed:
    """An object whose destructor fails with an exception, or by a signal."""

    def __init__(self, fails: Callable[[], object]) -> None:
        self._fails = fails

    def __del__(self) -> None:
        self._fails()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("termination")
def test_in_a_destructor_it_comes_once_more(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    Destroyed(lambda: signal.raise_signal(number))
    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("termination")
def test_a_second_one_does_not_end_what_repeats_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def send_later(number: int) -> None:
        sent.append(number)
        if len(sent) == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(process, "_send_later", send_later)
    Destroyed(lambda: signal.raise_signal(signal.SIGINT))
    assert sent == [signal.SIGINT, signal.SIGINT]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_other_exceptions_that_are_dropped_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.unraisablehook, signal.getsignal(signal.SIGINT)
    sys.unraisablehook = sys.__unraisablehook__
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        Termination().heed()
        Destroyed(lambda: int("x"))
    finally:
        sys.unraisablehook = before[0]
        signal.signal(signal.SIGINT, before[1])
    assert "invalid literal for int()" in capsys.readouterr().err


@pytest.mark.usefixtures("termination")
def test_an_interrupt_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Termination().heed()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
