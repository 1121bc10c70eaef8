# SPDX-License-Identifier: Apache-2.0
"""A process that was started without streams, children's ends or a working folder still works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from intarsia.driver.configured import read_settings
from intarsia.host.guard import quiet_stdout, undisturbed, working_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="descriptors and signals of POSIX")


def started(
    *words: str, begin: Callable[[], object] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with ``words`` in a process that did ``begin`` first."""
    return subprocess.run(
        [sys.executable, *words], preexec_fn=begin, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip


def close(*numbers: int) -> None:
    for number in numbers:
        os.close(number)


def remove_folder(path: Path) -> None:
    os.chdir(path)
    path.rmdir()


@pytest.mark.parametrize("numbers", [(0,), (1,), (2,), (0, 1, 2)])
def test_commands_do_without_standard_streams(numbers: tuple[int, ...]) -> None:
    for command in (["--version"], ["plugins", "list"]):
        run = started("-m", "intarsia", *command, begin=partial(close, *numbers))
        assert run.returncode == 0, run.stderr
        assert bool(run.stdout) == (1 not in numbers)


OPENED = """
import os, subprocess, sys
from intarsia.cli.process import mend_inherited
mend_inherited()
with open(sys.argv[1], "wb") as file:
    print("said")
    sys.stdout.flush()
    os.write(1, b"said")
    subprocess.run([sys.executable, "-c", "print('said')"], check=True)
"""


def test_what_is_said_does_not_go_into_the_next_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    run = started("-c", OPENED, str(path), begin=partial(close, 0, 1))
    assert (run.returncode, run.stderr) == (0, "")
    assert path.read_bytes() == b""


def test_streams_that_are_open_stay_as_they_are() -> None:
    run = started("-c", "import sys; from intarsia.cli.process import mend_inherited as f\n"
                  "before = sys.stdin, sys.stdout, sys.stderr; f()\n"
                  "print(before == (sys.stdin, sys.stdout, sys.stderr))")  # fmt: skip
    assert run.stdout == "True\n"


def test_who_ignores_the_end_of_children_does_not_wait_for_ever(tmp_path: Path) -> None:
    run = started(
        "-m", "intarsia", "compile", str(tmp_path / "none.onnx"), "--target", "x", "-o", "y",
        begin=partial(signal.signal, signal.SIGCHLD, signal.SIG_IGN),
    )  # fmt: skip
    assert run.returncode == 2
    assert "error:" in run.stderr


def test_a_command_runs_where_the_working_folder_was_removed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    model = str(tmp_path / "none.onnx")
    run = started("-m", "intarsia", "compile", model, "-o", "y", begin=partial(remove_folder, gone))
    assert run.returncode == 2
    assert "No such file" not in run.stderr
    assert "target" in run.stderr


REMOVED = """
import sys
from pathlib import Path
from intarsia.host.guard import quiet_stdout, undisturbed, working_folder
from intarsia.host.process_state import ProcessState
print(working_folder())
with undisturbed():
    ProcessState.take()
sys.stdout = None
with quiet_stdout():
    pass
"""


def test_plugins_are_guarded_there_too(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    run = started("-c", REMOVED, begin=partial(remove_folder, gone))
    assert (run.returncode, run.stdout, run.stderr) == (0, "None\n", "")


def test_the_working_folder_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with undisturbed(), quiet_stdout():
        os.chdir("/")
    assert working_folder() == Path.cwd() == tmp_path


def test_there_are_no_settings_in_no_folder() -> None:
    assert read_settings({}, None).settings == {}


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0, reason="needs to become a user who may see nothing"
)
def test_settings_are_not_looked_for_where_one_may_not_look(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    code = (
        "import os, sys; from pathlib import Path\n"
        "from intarsia.driver.configured import read_settings\n"
        "os.setuid(65534); print(read_settings({}, Path(sys.argv[1])).settings)"
    )
    assert started("-c", code, str(closed / "inner")).stdout == "{}\n"
