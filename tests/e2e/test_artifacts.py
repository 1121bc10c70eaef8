# SPDX-License-Identifier: Apache-2.0
"""An artifact's life with real backends: saved, moved, loaded elsewhere, shared, replaced."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia_runtime.artifact.archive import open_artifact

from .real_models import DIGITS

TARGETS = ("llvm", "dnnl, llvm")
SAMPLE = np.load(DIGITS.path.parent / "samples.npz")["image"][:1]


@pytest.fixture(scope="module", params=TARGETS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "digits.intarsia"
    return intarsia.build(DIGITS.path, target=request.param).save(path)


def test_running_needs_no_compiler_and_no_compiling_half_of_a_plugin(artifact: Path) -> None:
    program = (
        "import sys, numpy as np, intarsia\n"
        "image = np.ones((1, 1, 8, 8), np.float32)\n"
        f"out = intarsia.load({str(artifact)!r}, threads=1).run([image])\n"
        "print(out['probability'].argmax())\n"
        "parts = 'ir tir ops passes frontend partition lower host build plugin target'.split()\n"
        "print([m for m in sys.modules if m.startswith(tuple('intarsia.' + p for p in parts))])\n"
        "heavy = {'onnx', 'llvmlite', 'pluggy', 'intarsia_llvm', 'intarsia_dnnl.plugin'}\n"
        "print(heavy & set(sys.modules))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/"
    )
    number, compiler, heavy = run.stdout.split("\n")[:3]
    assert (compiler, heavy) == ("[]", "set()")
    assert 0 <= int(number) <= 9


def test_memory_file_and_executors_agree(artifact: Path) -> None:
    results = [
        intarsia.load(artifact, executor=executor, threads=threads).run([SAMPLE])["probability"]
        for executor in ("aot", "graph")
        for threads in (1, 2)
    ]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-5, atol=1e-6)


def test_a_build_is_reproducible_and_loads_without_a_file(tmp_path: Path, artifact: Path) -> None:
    target = open_artifact(artifact).passport.target
    again = intarsia.build(DIGITS.path, target=target, mod_name="default")
    assert again.save(tmp_path / "again.intarsia").read_bytes() == artifact.read_bytes()
    ours = again.load().run([SAMPLE])["probability"]
    np.testing.assert_array_equal(ours, intarsia.load(artifact).run([SAMPLE])["probability"])


def test_profile_times_every_step(artifact: Path) -> None:
    executable = intarsia.load(artifact, executor="graph")
    rows = executable.profile([SAMPLE], repeat=2)
    assert len(rows) == len(executable.passport.plan.steps)
    assert sum(row.share for row in rows) == pytest.approx(1)


def test_many_threads_one_executable(artifact: Path) -> None:
    executable = intarsia.load(artifact, threads=2)
    expected = {k: executable.run([SAMPLE * k])["probability"] for k in range(1, 5)}
    wrong: list[int] = []

    def work(factor: int) -> None:
        for _ in range(50):
            found = executable.run([SAMPLE * factor])["probability"]
            if not np.array_equal(found, expected[factor]):
                wrong.append(factor)

    workers = [threading.Thread(target=work, args=(1 + number % 4,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_an_artifact_replaced_while_it_runs(tmp_path: Path, artifact: Path) -> None:
    path = tmp_path / "live.intarsia"
    path.write_bytes(artifact.read_bytes())
    executable = intarsia.load(path)
    before = executable.run([SAMPLE])["probability"]
    intarsia.build(DIGITS.path, target="llvm").save(path)
    np.testing.assert_array_equal(executable.run([SAMPLE])["probability"], before)
    path.unlink()
    np.testing.assert_array_equal(executable.run([SAMPLE])["probability"], before)


def test_the_code_loads_with_tvm_ffi_alone(tmp_path: Path, artifact: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    path = tmp_path / "lib.so"
    path.write_bytes(open_artifact(artifact).unit_files("main")["lib.so"])
    assert tvm_ffi.load_module(str(path)).implements_function("main")
