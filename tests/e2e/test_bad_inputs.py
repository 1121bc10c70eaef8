# SPDX-License-Identifier: Apache-2.0
"""Bad input of every kind: one clear message, the right exit code, nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from .broken_models import BROKEN, DIGITS, Builder, helper, model, numpy_helper, save


def intarsia(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    argv = [sys.executable, "-m", "intarsia", *(str(word) for word in words)]
    run = {"capture_output": True, "text": True, "timeout": 120, "check": False, **options}
    return subprocess.run(argv, **run)  # type: ignore[call-overload]


def check(run: subprocess.CompletedProcess[str], code: int, fragment: str) -> None:
    """One message on stderr that says what is wrong, and the exit code."""
    assert "Traceback" not in run.stderr + run.stdout
    assert run.returncode == code, run.stderr
    assert run.stderr.count("error:") == 1, run.stderr
    assert fragment.lower() in run.stderr.lower(), run.stderr


def leftovers(folder: Path, *known: str) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name not in known)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "digits.intarsia"
    run = intarsia("compile", DIGITS, "--target", "dnnl, llvm", "-o", path)
    assert run.returncode == 0, run.stderr
    return path


@pytest.mark.parametrize("build", BROKEN, ids=lambda build: build.__name__)
def test_broken_model(tmp_path: Path, build: Builder) -> None:
    code, fragment = BROKEN[build]
    path = build(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    run = intarsia("compile", path, "--target", "llvm", "-o", out / "m.intarsia")
    check(run, code, fragment)
    assert leftovers(out) == []


TARGETS = {
    "lvm": "did you mean",
    "llvm -mpcu=native": "-mcpu",
    "llvm -num-threads=two": "num-threads",
    "llvm -opt-level=9": "opt-level",
    "dnnl": "dnnl, llvm",
    "dnnl, dnnl, llvm": "dnnl",
    "llvm, dnnl": "dnnl",
    "": "empty",
    "dnnl,, llvm": "column",
    'llvm -mcpu="unclosed': "quot",
    "llvm -mcpu=notacpu": "notacpu",
    '{"kind": "llvm", "kind": "dnnl"}': "twice",
    '{"kind": "composite"}': "fallback",
    "dnnl -fpmath-mode=bf61, llvm": "bf16",
    "llvm -mcpu=x;touch": "mcpu",
}


@pytest.mark.parametrize("target", TARGETS)
def test_broken_target(tmp_path: Path, target: str) -> None:
    run = intarsia("compile", DIGITS, "--target", target, "-o", tmp_path / "m.intarsia")
    check(run, 2, TARGETS[target])
    assert leftovers(tmp_path) == []


def test_truncated_artifact(tmp_path: Path, artifact: Path) -> None:
    data = artifact.read_bytes()
    for number, size in enumerate((0, 64, len(data) // 2, len(data) - 1)):
        broken = tmp_path / f"{number}.intarsia"
        broken.write_bytes(data[:size])
        check(intarsia("run", broken, "--inputs", "random"), 7, broken.name)


def test_flipped_byte(tmp_path: Path, artifact: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        places = {i.filename: i.header_offset + 200 for i in archive.infolist()}
    data = artifact.read_bytes()
    for name, place in places.items():
        at = min(place, len(data) - 1)
        broken = tmp_path / "broken.intarsia"
        broken.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        run = intarsia("run", broken, "--inputs", "random")
        assert run.returncode == 7, (name, run.stderr)
        assert "Traceback" not in run.stderr


def test_artifact_for_another_cpu(tmp_path: Path) -> None:
    """XOP was in one family of CPUs that ended in 2015."""
    other = tmp_path / "other.intarsia"
    run = intarsia("compile", DIGITS, "-o", other, "--target", "llvm -mattr=+xop")
    assert run.returncode == 0, run.stderr
    check(intarsia("run", other, "--inputs", "random"), 7, "xop")


def test_not_an_artifact(tmp_path: Path) -> None:
    path = tmp_path / "text.intarsia"
    path.write_text("hello")
    check(intarsia("inspect", path), 7, "text.intarsia")


INPUTS = {
    "wrong shape": ({"image": np.zeros((1, 1, 9, 9), np.float32)}, "(1, 1, 8, 8)"),
    "wrong dtype": ({"image": np.zeros((1, 1, 8, 8), np.int32)}, "float32"),
    "wrong name": ({"imag": np.zeros((1, 1, 8, 8), np.float32)}, "image"),
    "missing": ({}, "image"),
}


@pytest.mark.parametrize("case", INPUTS)
def test_wrong_inputs(tmp_path: Path, artifact: Path, case: str) -> None:
    arrays, fragment = INPUTS[case]
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    check(intarsia("run", artifact, "--inputs", path), 3, fragment)


def test_pickled_inputs_are_refused(tmp_path: Path, artifact: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, image=np.array([{"a": 1}], dtype=object))
    check(intarsia("run", artifact, "--inputs", path), 3, "x.npz")


def test_not_an_npz(tmp_path: Path, artifact: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_text("hello")
    check(intarsia("run", artifact, "--inputs", path), 3, "x.npz")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only folder")
def test_read_only_output_folder(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    run = intarsia("compile", DIGITS, "--target", "llvm", "-o", folder / "m.intarsia")
    check(run, 8, "locked")


def test_output_is_a_folder(tmp_path: Path) -> None:
    run = intarsia("compile", DIGITS, "--target", "llvm", "-o", tmp_path)
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr


def test_output_folder_is_missing(tmp_path: Path) -> None:
    run = intarsia("compile", DIGITS, "--target", "llvm", "-o", tmp_path / "no" / "m.intarsia")
    assert run.returncode in (2, 8), run.stderr
    assert "Traceback" not in run.stderr


def test_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        run = intarsia("compile", DIGITS, "--target", "llvm", "-o", disk / "m.intarsia")
        check(run, 8, "space")
        assert leftovers(disk) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_failed_build_keeps_the_old_artifact(tmp_path: Path, artifact: Path) -> None:
    kept = tmp_path / "m.intarsia"
    kept.write_bytes(artifact.read_bytes())
    run = intarsia("compile", DIGITS, "--target", "llvm -num-threads=two", "-o", kept)
    assert run.returncode == 2
    assert kept.read_bytes() == artifact.read_bytes()


@pytest.mark.parametrize(
    "name", ["Zürich 数字.onnx", "with space.onnx", "-dash.onnx", "q'uote\".onnx"]
)
def test_odd_paths_work(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(DIGITS.read_bytes())
    out = tmp_path / f"{name}.intarsia"
    run = intarsia("compile", path, "--target", "llvm", "-o", out)
    assert run.returncode == 0, run.stderr
    assert intarsia("run", out, "--inputs", "random").returncode == 0


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize("delay", [0.05, 0.4, 0.8])
def test_interrupted_compile_leaves_nothing_half_written(tmp_path: Path, delay: float) -> None:
    argv = [sys.executable, "-m", "intarsia", "compile", str(DIGITS), "--target", "llvm"]
    child = subprocess.Popen(
        [*argv, "-o", str(tmp_path / "m.intarsia")],
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_for_fork(child.pid)  # before, Python itself may be starting: it prints a traceback
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert "Traceback" not in errors
    assert child.returncode in (0, 130, -signal.SIGINT), errors
    assert leftovers(tmp_path, "m.intarsia") == []
    if leftovers(tmp_path):  # interrupted after the last byte: then the file is whole
        assert intarsia("run", tmp_path / "m.intarsia", "--inputs", "random").returncode == 0


def _wait_for_fork(process: int) -> None:
    """Wait until a command runs in a process of its own, as all do that run code of plugins."""
    children = Path(f"/proc/{process}/task/{process}/children")
    if not children.exists():  # not every kernel tells
        time.sleep(0.5)
    end = time.monotonic() + 20
    while children.exists() and not children.read_text() and time.monotonic() < end:
        time.sleep(0.01)


def test_nan_weights_go_through(tmp_path: Path) -> None:

    tensor = numpy_helper.from_array(np.array([[np.nan, np.inf, -0.0]], np.float32), "w")
    path = save(tmp_path, model([helper.make_node("Add", ["x", "w"], ["y"])], inits=(tensor,)))
    np.savez(tmp_path / "x.npz", x=np.ones((2, 3), np.float32))
    run = intarsia(
        *("run", path, "--target", "llvm", "--inputs", tmp_path / "x.npz"),
        *("--outputs", tmp_path / "y.npz"),
    )
    assert run.returncode == 0, run.stderr
    found = np.load(tmp_path / "y.npz")["y"]
    np.testing.assert_array_equal(found, np.array([[np.nan, np.inf, 1.0]] * 2, np.float32))


COMMANDS = {
    ("compil",): "compile",
    ("compile", DIGITS, "--taget", "llvm"): "--target",
    ("compile",): "model",
    ("explain", DIGITS, "--target", "dnnl, llvm", "no_such_node"): "no_such_node",
    ("plugins", "show", "dnl"): "dnnl",
    ("targets", "show", "lvm"): "llvm",
    (
        "compile",
        DIGITS,
        "--target",
        "llvm",
        "-o",
        "never.intarsia",
        "--shape",
        "image:1,x",
    ): "shape",
    (
        "compile",
        DIGITS,
        "--target",
        "llvm",
        "-o",
        "never.intarsia",
        "--shape",
        "imag:1,1,8,8",
    ): "image",
}


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(str(w)[-12:] for w in words))
def test_wrong_command_line(words: tuple[object, ...]) -> None:
    run = intarsia(*words)
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr
    assert COMMANDS[words].lower() in run.stderr.lower()


def test_gate_that_fails(tmp_path: Path) -> None:
    out = tmp_path / "m.intarsia"
    run = intarsia("compile", DIGITS, "--target", "llvm", "-o", out, "--require-offload", "50")
    check(run, 10, "offload")
    assert leftovers(tmp_path) == []


def test_errors_do_not_spoil_json() -> None:
    run = intarsia("plugins", "list", "--json")
    assert run.returncode == 0
    assert json.loads(run.stdout)["schema"] == 1
