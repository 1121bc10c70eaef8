# SPDX-License-Identifier: Apache-2.0
"""Trials in a child process: what is remembered, what is not, and where."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from intarsia.host import manager, trial, trial_child
from intarsia.host.discovery import Found, find_plugins
from intarsia.host.guard import quiet_stdout, undisturbed
from intarsia.host.host import Host
from intarsia.host.process_state import ProcessState, openmp_runtimes
from intarsia.host.time_limit import OutOfTime, time_limit, time_limit_of
from intarsia.host.trial import Trial, survive, try_plugin
from intarsia_runtime.errors import PluginError, ResourceError, UsageError

from .installed import install

GOOD = (
    "from dataclasses import dataclass\n"
    "from intarsia.plugin import Role, TargetKind, hookimpl\n"
    "@dataclass(frozen=True)\nclass Options:\n    pass\n"
    "@hookimpl\ndef register_target_kind():\n"
    "    return [TargetKind('npu', Role.ACCELERATOR, Options)]\n"
)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Found:
    """A good plugin on the path."""
    folder = tmp_path / "site"
    package = install(folder, "npu")
    (folder / package / "plugin.py").write_text(GOOD)
    monkeypatch.syspath_prepend(str(folder))
    (found,) = find_plugins([str(folder)])
    return found


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the plugins that are tried; each one goes well, no child is started."""
    tried: list[str] = []

    def pretend(plugin: Found, seconds: float, *, probe: bool = False) -> Trial:
        tried.append(plugin.name)
        return Trial(stage="done")

    monkeypatch.setattr(trial, "try_plugin", pretend)
    return tried


def test_a_good_plugin_is_tried_once(plugin: Found, tmp_path: Path, trials: list[str]) -> None:
    env = {"INTARSIA_CACHE_DIR": str(tmp_path / "cache")}
    survive(plugin, env)
    survive(plugin, env)
    assert trials == ["npu"]
    (record,) = (tmp_path / "cache" / "plugins").iterdir()
    assert "npu intarsia-npu 1.0" in record.read_text()


def test_a_plugin_that_fails_its_trial_stays_broken(
    plugin: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(found: Found, env: object) -> None:
        raise PluginError(f"{found.label} ends the process", hint="uninstall it")

    monkeypatch.setattr(manager, "survive", refuse)
    host = Host(env={}, path=[str(Path(str(plugin.folder)).parent)])
    with pytest.raises(PluginError, match="ends the process"):
        host.kind("npu")
    (info,) = host.plugins()
    assert (info.state, info.remedy) == ("broken", "uninstall it")


def test_a_child_that_lacks_the_plugin_says_so() -> None:
    with pytest.raises(SystemExit, match="acme-nobody is not on the path of the child"):
        trial_child._find("nobody", "acme-nobody")  # run() would limit this process


def test_a_changed_file_or_version_is_tried_again(
    plugin: Found, tmp_path: Path, trials: list[str]
) -> None:
    env = {"INTARSIA_CACHE_DIR": str(tmp_path / "cache")}
    survive(plugin, env)
    (Path(str(plugin.folder)) / "plugin.py").write_text(GOOD + "# changed\n")
    survive(plugin, env)
    plugin.version = "2.0"
    survive(plugin, env)
    assert len(trials) == 3


def test_a_damaged_record_is_not_believed(plugin: Found, tmp_path: Path, trials: list[str]) -> None:
    env = {"INTARSIA_CACHE_DIR": str(tmp_path / "cache")}
    survive(plugin, env)
    (record,) = (tmp_path / "cache" / "plugins").iterdir()
    record.write_bytes(record.read_bytes()[:-1])
    survive(plugin, env)
    assert len(trials) == 2
    survive(plugin, env)
    assert len(trials) == 2  # mended


def test_a_cache_that_cannot_be_written_is_no_error(
    plugin: Found, tmp_path: Path, trials: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    env = {"INTARSIA_CACHE_DIR": str(tmp_path / "file")}
    survive(plugin, env)
    survive(plugin, env)
    assert len(trials) == 2


def test_the_user_can_do_without(plugin: Found, trials: list[str]) -> None:
    survive(plugin, {"INTARSIA_NO_PROBE": "1"})
    survive(Found("here", "here", "0", plugin.manifest, hooks=object()), {})
    assert trials == []


def test_a_remembered_trial_costs_little(plugin: Found, tmp_path: Path, trials: list[str]) -> None:
    env = {"INTARSIA_CACHE_DIR": str(tmp_path / "cache")}
    survive(plugin, env)
    taken: list[float] = []
    for _ in range(20):
        began = time.perf_counter()
        survive(plugin, env)
        taken.append(time.perf_counter() - began)
    assert min(taken) < 0.005
    assert len(trials) == 1


@pytest.mark.parametrize("fails", ["write_bytes", "mkdtemp"])
def test_no_place_for_the_answer_is_not_the_fault_of_the_plugin(
    plugin: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path if fails == "write_bytes" else tempfile, fails, full)
    with pytest.raises(ResourceError, match=r"'npu'.*cannot be tried.*No space left") as raised:
        survive(plugin, {"INTARSIA_CACHE_DIR": str(tmp_path / "cache")})
    assert "TMPDIR" in raised.value.hint


def test_a_failure_is_not_remembered(plugin: Found, tmp_path: Path) -> None:
    source = Path(str(plugin.folder)) / "plugin.py"
    source.write_text("import os\nos._exit(0)\n")
    env = {"INTARSIA_CACHE_DIR": str(tmp_path / "cache")}
    with pytest.raises(PluginError, match=r"ends the process \(exit code 0\)") as caught:
        survive(plugin, env)
    assert "--no-plugin npu" in caught.value.hint
    assert not (tmp_path / "cache").exists()
    source.write_text(GOOD)
    survive(plugin, env)


@pytest.mark.slow
def test_a_child_that_hangs_is_ended_with_what_it_started(plugin: Found, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (Path(str(plugin.folder)) / "plugin.py").write_text(
        "import subprocess, sys\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid)!r}, 'w').write(str(other.pid))\n"
        "while True: pass\n"
    )
    found = try_plugin(plugin, 1.5)
    assert found.fatal == "does not end within 1.5 s"
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid.read_text()}/stat").read_text().split()[2]
        except OSError:
            break
        if state == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the plugin's own child is still running")


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", "inf"])
def test_a_limit_is_a_number_of_seconds(text: str) -> None:
    with pytest.raises(UsageError, match="not a number of seconds"):
        time_limit_of({"INTARSIA_PLUGIN_TIMEOUT": text})
    assert time_limit_of({"INTARSIA_PLUGIN_TIMEOUT": "2.5"}) == 2.5
    assert time_limit_of({}) == 60


def test_time_is_limited_and_the_alarm_is_given_back() -> None:
    before = signal.getsignal(signal.SIGALRM)

    def work() -> None:
        with time_limit(0.05):
            while True:
                pass

    with pytest.raises(OutOfTime, match=r"it took longer than 0\.05 s"):
        work()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_alarm_of_someone_else_is_left_alone() -> None:
    def mine(number: int, frame: object) -> None:
        raise AssertionError

    before = signal.signal(signal.SIGALRM, mine)
    try:
        with time_limit(0.01):
            time.sleep(0.03)
        assert signal.getsignal(signal.SIGALRM) is mine
    finally:
        signal.signal(signal.SIGALRM, before)


def test_another_thread_has_no_limit() -> None:
    done: list[bool] = []

    def work() -> None:
        with time_limit(0.01):
            time.sleep(0.03)
        done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_changes_of_the_process_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ProcessState.take()
    assert list(before.changes()) == []
    monkeypatch.setattr(sys, "path", [*sys.path, "/nowhere"])
    monkeypatch.setenv("SOME_SETTING", "1")
    monkeypatch.setattr(Found, "fail", None)
    monkeypatch.setattr(os, "getcwd", os.getcwd.__call__)
    assert set(before.changes()) == {
        "changes sys.path",
        "changes environment variables",
        "replaces intarsia.host.discovery.Found.fail",
        "replaces os.getcwd",
    }


def test_output_of_c_code_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    import ctypes

    with quiet_stdout():
        print("from Python")
        ctypes.CDLL(None).puts(b"from C")
        os.write(1, b"from the system\n")
    print("after")
    out, err = capfd.readouterr()
    assert out == "after\n"
    assert sorted(err.splitlines()) == ["from C", "from Python", "from the system"]


def test_a_closed_stdout_is_no_error() -> None:
    code = (
        "import os, sys\n"
        "from intarsia.host.guard import quiet_stdout\n"
        "os.close(1)\n"
        "with quiet_stdout():\n    print('fine', end='', file=sys.stderr, flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"fine")


def test_what_an_import_changes_is_put_back(tmp_path: Path) -> None:
    import warnings

    import numpy as np

    folder, errors = os.getcwd(), np.geterr()
    handler, filters = signal.getsignal(signal.SIGTERM), list(warnings.filters)
    with undisturbed():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        warnings.simplefilter("error")
        np.seterr(all="raise")
        os.chdir(tmp_path)
    assert os.getcwd() == folder
    assert np.geterr() == errors
    assert signal.getsignal(signal.SIGTERM) is handler
    assert list(warnings.filters) == filters


def test_openmp_runtimes_are_found(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 0 00:00 1  /usr/lib/libgomp.so.1\n"
        "7f01-7f02 r--p 0 00:00 1  /usr/lib/libgomp.so.1\n"
        "7f02-7f03 r-xp 0 00:00 2  /opt/x/libiomp5.so\n"
        "7f03-7f04 rw-p 0 00:00 0\n"
        "7f04-7f05 r-xp 0 00:00 3  /opt/x/libomptarget.so\n"
    )
    assert openmp_runtimes(maps) == ["libgomp.so.1", "libiomp5.so"]
    assert openmp_runtimes(tmp_path / "none") == []
