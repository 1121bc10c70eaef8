# SPDX-License-Identifier: Apache-2.0
"""Plugins that break in every way, from wheels: each harms only those who ask for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.source_path import CORE

from .faulty_wheels import FAULTS, Fault, write_wheel

LIMIT = "4"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def faulty_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All faulty plugins installed by pip into one folder."""
    folder, wheels = tmp_path_factory.mktemp("faulty"), tmp_path_factory.mktemp("faulty-wheels")
    made = [str(write_wheel(wheels, name, fault)) for name, fault in FAULTS.items()]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    command += ["--no-compile", "--disable-pip-version-check", "--target", str(folder), *made]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One ReLU."""
    from onnx import TensorProto, helper, save

    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], "relu")], "g", *[[t] for t in types]
    )
    path = tmp_path_factory.mktemp("model") / "relu.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), path)
    return path


@pytest.fixture(scope="session")
def intarsia(faulty_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the command line with the faulty plugins installed and a cache of its own."""
    cache = tmp_path_factory.mktemp("cache")

    def run(*arguments: str, script: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(faulty_site), CORE, os.environ.get("PYTHONPATH", "")])
        settings = {"PYTHONPATH": path, "COLUMNS": "300", "INTARSIA_CACHE_DIR": str(cache)}
        return subprocess.run(
            [sys.executable, *(["-c", script] if script else ["-m", "intarsia"]), *arguments],
            env={**os.environ, **settings, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )

    return run


def examined(intarsia: Run, *names: str, **env: str) -> dict[str, dict[str, Any]]:
    run = intarsia("doctor", *names, "--json", **env)
    assert run.returncode == (5 if names else 0), run.stderr
    return {row["name"]: row for row in json.loads(run.stdout)["plugins"]}


def test_listing_survives_all_of_them(intarsia: Run) -> None:
    began = time.monotonic()
    run = intarsia("plugins", "list", "--json")
    assert time.monotonic() - began < 10
    assert run.returncode == 0, run.stderr
    rows = {row["name"]: row for row in json.loads(run.stdout)["plugins"]}
    assert set(FAULTS) <= set(rows)
    for name in ("bad-manifest", "old-entry", "no-manifest", "too-old", "clash-a"):
        assert rows[name]["reason"], name
        assert rows[name]["remedy"], name
    assert rows["segfault"]["state"] == "discovered"  # nothing was imported to find out


@pytest.mark.slow
def test_doctor_says_what_is_wrong_with_each(intarsia: Run) -> None:
    slow = [name for name, fault in FAULTS.items() if "does not end" in fault.doctor]
    rows = examined(intarsia, *slow, INTARSIA_PLUGIN_TIMEOUT=LIMIT)
    rows |= examined(intarsia, INTARSIA_DISABLE_PLUGINS=",".join(slow)) | rows
    missing = {
        name: row
        for name, fault in FAULTS.items()
        if fault.doctor not in said_of(row := rows[name]) or (row["reason"] and not row["remedy"])
    }
    assert missing == {}
    broken = {name for name, row in rows.items() if row["state"] in ("broken", "incompatible")}
    claims = {"clash-a", "clash-b"}
    assert broken == {name for name, f in FAULTS.items() if f.doctor and f.breaks} - claims
    assert set(rows["meddles"]["changes"]) == {
        "changes signal handlers",
        "changes sys.path",
        "changes warnings filters",
        "changes NumPy's floating-point errors",
        "changes the locale",
        "changes the start method of multiprocessing",
    }
    assert "replaces intarsia_ir.regions.support.Support.yes" in rows["patches"]["changes"]


def said_of(row: dict[str, Any]) -> str:
    changes = "; ".join(row["changes"])
    return f"{row['reason']} {changes} {row['probes']} prints {row['output_bytes']} bytes"


@pytest.mark.slow
def test_a_process_survives_builds_with_each(
    intarsia: Run, model: Path, tmp_path: Path, faulty_site: Path
) -> None:
    """One process asks for every plugin in turn: what ends a process ends only a child of it."""
    targets = {name: f"{fault.kind or name}, llvm" for name, fault in FAULTS.items()}
    slow = [name for name, fault in FAULTS.items() if fault.slow and fault.breaks]
    job = {"targets": targets, "slow": slow, "limit": LIMIT, "model": str(model)}
    run = intarsia(script=DRIVER, folder=str(tmp_path), job=json.dumps(job))
    assert run.returncode == 0, run.stderr[-2000:]
    results = json.loads((tmp_path / "results.json").read_text())
    wrong = {
        name: result
        for name, fault in FAULTS.items()
        if (result := results[name])["code"] != fault.code
        or fault.says not in result["err"]
        or "hint: " not in result["err"]
        or "Traceback" in result["err"]
        or result["seconds"] > 3 * float(LIMIT) + 5
    }
    assert wrong == {}
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert len(run.stdout) < 1000  # nothing of what the noisy one printed


DRIVER = """
import contextlib, io, json, os, sys, time
from intarsia.cli.main import main
job, folder = json.loads(os.environ['job']), os.environ['folder']
results = {}
for name, target in job['targets'].items():
    os.environ.pop('INTARSIA_PLUGIN_TIMEOUT', None)
    if name in job['slow']:
        os.environ['INTARSIA_PLUGIN_TIMEOUT'] = job['limit']
    err, began = io.StringIO(), time.monotonic()
    with contextlib.redirect_stderr(err):
        code = main(['compile', job['model'], '--target', target, '--plan', 'greedy',
                     '-o', folder + '/out.intarsia'])
    seconds = time.monotonic() - began
    results[name] = {'code': code, 'err': err.getvalue()[-2000:], 'seconds': seconds}
with open(folder + '/results.json', 'w') as stream:
    json.dump(results, stream)
sys.stdout.flush()
os._exit(0)
"""


def test_a_build_with_others_works(intarsia: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.intarsia"
    run = intarsia("compile", str(model), "--target", "llvm", "-o", str(out))
    assert run.returncode == 0, run.stderr
    assert out.exists()


def test_doctor_fails_only_when_told_to(intarsia: Run) -> None:
    only = {"INTARSIA_PLUGINS": "no-sdk,llvm"}
    assert intarsia("doctor", **only).returncode == 0
    assert intarsia("doctor", "llvm", **only).returncode == 0
    named = intarsia("doctor", "no-sdk", **only)
    assert (named.returncode, named.stderr.splitlines()[0]) == (5, "error: broken: no-sdk")
    assert "No module named 'no_such_sdk'" in named.stdout
    assert intarsia("doctor", "--check", **only).returncode == 5


DOCTOR = {
    "schema": int, "environment": dict, "hook_api": str, "plugins": list, "repeated": dict,
    "broken": list,
}  # fmt: skip
FINDING = {
    "name": str, "distribution": str, "version": str, "api": str, "api_fits": bool, "kinds": list,
    "state": str, "reason": str, "remedy": str, "import_seconds": float, "changes": list,
    "output_bytes": int, "probes": dict,
}  # fmt: skip


def test_the_json_of_doctor_keeps_its_schema(intarsia: Run) -> None:
    """Keys and their types; who changes one raises ``schema``."""
    run = intarsia("doctor", "--json", INTARSIA_PLUGINS="no-sdk,noisy")
    found = json.loads(run.stdout)
    assert {key: type(value) for key, value in found.items()} == DOCTOR
    assert found["schema"] == 1
    rows = [row for row in found["plugins"] if row["name"] in ("no-sdk", "noisy")]
    assert [{key: type(value) for key, value in row.items()} for row in rows] == [FINDING] * 2
    assert found["broken"] == ["no-sdk"]


def test_why(intarsia: Run) -> None:
    run = intarsia("plugins", "why", "segfault")
    assert run.returncode == 0
    assert "segfault is broken; faulty-segfault 1.0 gives target kind 'segfault'" in run.stdout
    assert "reason: it kills the process (signal SIGSEGV) when it is imported" in run.stdout
    assert "remedy: report it to faulty-segfault" in run.stdout
    run = intarsia("plugins", "why", "thread", "--json")
    assert json.loads(run.stdout)["plugins"][0]["changes"] == ["leaves the thread 'idler' running"]


def test_noise_keeps_json_clean(intarsia: Run, model: Path) -> None:
    run = intarsia("explain", str(model), "--target", "noisy, llvm", "--json")
    assert run.returncode == 0, run.stderr[-300:]
    assert json.loads(run.stdout)["schema"] == 1


def test_calls_are_traced_with_owner_and_time(intarsia: Run, model: Path) -> None:
    run = intarsia("--trace-plugins", "explain", str(model), "--target", "raises, llvm", "--json")
    assert run.returncode == 5
    lines = [line for line in run.stderr.splitlines() if line.startswith("trace: ")]
    assert "trace: plugin 'raises' (faulty-raises 1.0): annotate()" in lines
    assert any("annotate() raised KeyError after" in line for line in lines)
    assert any("register_target_kind() done after" in line for line in lines)


def test_two_copies_of_a_plugin_are_one_with_a_word_from_doctor(
    faulty_site: Path, intarsia: Run, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    wheel = write_wheel(tmp_path, "thread", FAULTS["thread"], version="2.0")
    command += ["--disable-pip-version-check", "--target", str(tmp_path / "second"), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    path = os.pathsep.join([str(tmp_path / "second"), str(faulty_site), CORE])
    env = {"PYTHONPATH": path, "INTARSIA_PLUGINS": "thread"}
    rows = json.loads(intarsia("plugins", "show", "thread", "--json", **env).stdout)["plugins"]
    assert [row["version"] for row in rows] == ["2.0"]
    repeated = json.loads(intarsia("doctor", "thread", "--json", **env).stdout)["repeated"]
    assert [place.split(" in ")[0] for place in repeated["faulty-thread"]] == ["2.0", "1.0"]


def test_a_process_ends_although_a_thread_of_a_plugin_runs(intarsia: Run, model: Path) -> None:
    options = ("--target", "thread, llvm", "--plan", "greedy", "--json")
    run = intarsia("explain", str(model), *options)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["regions"][0]["accelerator"] == "thread"


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupt_ends_a_trial_at_once(faulty_site: Path, model: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(faulty_site), CORE, os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "INTARSIA_CACHE_DIR": str(tmp_path / "cache")}
    command = ["explain", str(model), "--target", "endless, llvm"]
    started = subprocess.Popen(
        [sys.executable, "-m", "intarsia", *command],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    deadline = time.monotonic() + 20
    while not children.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    (child,) = children.read_text().split()
    time.sleep(0.5)  # the child is there before the parent waits for it
    began = time.monotonic()
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert (started.returncode, err.strip()) == (130, "error: interrupted")
    assert not Path(f"/proc/{child}").exists()


CRASHES = {
    "crash-annotate": (
        "@hookimpl\ndef annotate(target):\n    ctypes.string_at(0)\n",
        "(faulty-crash-annotate 1.0): annotate() killed the process (signal SIGSEGV)",
    ),
    "leave-annotate": (
        "@hookimpl\ndef annotate(target):\n    os._exit(0)\n",
        "(faulty-leave-annotate 1.0): annotate() ended the process (exit code 0)",
    ),
    "crash-codegen": (
        "@hookimpl\ndef relay_codegen(region, target):\n    os.abort()\n",
        "(faulty-crash-codegen 1.0): relay_codegen() killed the process (signal SIGABRT)",
    ),
    "crash-verdict": (
        "def yes(match):\n    ctypes.string_at(0)\n",
        "native code killed the process (signal SIGSEGV); the last hook that was asked: plugin "
        "'crash-verdict' (faulty-crash-verdict 1.0): annotate()",
    ),
}


@pytest.fixture(scope="module")
def crashing_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plugins that end the process in a hook, unpacked."""
    folder, wheels = tmp_path_factory.mktemp("crashing"), tmp_path_factory.mktemp("wheels")
    for name, (hooks, _) in CRASHES.items():
        wheel = write_wheel(wheels, name, Fault(hooks=hooks))
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder)
    return folder


@pytest.mark.parametrize("name", CRASHES)
def test_a_hook_that_ends_the_process_is_named(
    intarsia: Run, crashing_site: Path, model: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out.intarsia"
    path = os.pathsep.join([str(crashing_site), CORE, os.environ.get("PYTHONPATH", "")])
    command = ("compile", str(model), "--target", f"{name}, llvm", "--plan", "greedy")
    run = intarsia(*command, "-o", str(out), PYTHONPATH=path)
    assert run.returncode == 5, run.stderr
    assert CRASHES[name][1] in run.stderr
    assert "hint: " in run.stderr
    assert list(tmp_path.iterdir()) == []
    others = intarsia("compile", str(model), "--target", "llvm", "-o", str(out), PYTHONPATH=path)
    assert (others.returncode, out.exists()) == (0, True)
