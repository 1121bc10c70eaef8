# SPDX-License-Identifier: Apache-2.0
"""An environment with ``intarsia-runtime`` and nothing else runs what the compiler left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import intarsia

pytest.importorskip("llvmlite", reason="needs a backend that generates code")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "tests" / "e2e" / "models" / "digits" / "digits.onnx"
RUN = """
import json, sys
import numpy as np
from intarsia_runtime.load import load
executable = load(sys.argv[1])
spec = executable.inputs[0]
image = np.load(sys.argv[2])
results = executable.run({spec.name: image})
tops = sorted({m.partition(".")[0] for m in sys.modules} & set(json.loads(sys.argv[3])))
print(json.dumps([results["probability"].ravel().tolist(), tops]))
"""
COMPILER = ["intarsia", "intarsia_ir", "intarsia_loops", "intarsia_onnx", "onnx", "llvmlite"]


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    run = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def wheel(member: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / member, check=True, capture_output=True)
    (built,) = folder.glob(f"intarsia_{Path(member).name}-*.whl")
    return built


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment in which pip installed the runtime alone."""
    folder = tmp_path_factory.mktemp("device")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip("--python", python, "install", wheel("core/runtime", folder))
    return python


def test_it_brings_numpy_and_msgspec_and_nothing_else(device: Path) -> None:
    code = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    run = subprocess.run([device, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) == {"intarsia-runtime", "msgspec", "numpy"}


@pytest.mark.parametrize("target", ["llvm", "dnnl -min-gain=0 -min-grain=0, llvm"])
def test_it_runs_artifacts_with_and_without_an_accelerator(
    device: Path, tmp_path: Path, target: str
) -> None:
    artifact = intarsia.build(str(DIGITS), target=target)
    path = artifact.save(tmp_path / "digits.intarsia")
    image = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)
    np.save(tmp_path / "image.npy", image)
    command = [device, "-I", "-c", RUN, path, tmp_path / "image.npy", json.dumps(COMPILER)]
    if "dnnl" in target:
        run = subprocess.run(command, capture_output=True, text=True)
        assert "hint: pip install 'intarsia-dnnl==" in run.stderr
        library = "onednn-cpu-gomp==2023.2.0"
        pip("--python", device, "install", "--no-deps", wheel("plugins/dnnl", tmp_path), library)
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    found, compiler = json.loads(run.stdout)
    assert compiler == []
    with artifact.load() as executable:
        (wanted,) = executable.run([image]).values()
    np.testing.assert_array_equal(np.float32(found), wanted.ravel())
