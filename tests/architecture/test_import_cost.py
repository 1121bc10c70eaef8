# SPDX-License-Identifier: Apache-2.0
"""What importing costs: nothing heavy is loaded before it is needed."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from intarsia_llvm.target import model_name

from .source_tree import LIMITS

HEAVY = ("numpy", "onnx", "llvmlite", "tvm_ffi", "rich", "pluggy", "safetensors", "torch")


def loaded_after(code: str) -> list[str]:
    program = f"import sys\n{code}\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return run.stdout.split()


def test_importing_intarsia_loads_nothing_heavy() -> None:
    assert loaded_after("import intarsia") == []


def test_the_runtime_loads_no_compiler() -> None:
    compiler = ("intarsia", "intarsia_ir", "intarsia_loops", "intarsia_onnx", "intarsia_torch")
    program = (
        "import sys, intarsia_runtime.load\n"
        f"loaded = [m for m in {compiler!r} if m in sys.modules]\n"
        "print(*loaded, 'onnx' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["False"]


def test_importing_intarsia_is_quick() -> None:
    def seconds(code: str) -> float:
        times: list[float] = []
        for _ in range(7):
            before = os.times()
            subprocess.run([sys.executable, "-c", code], check=True)
            after = os.times()
            # The children's own time: a busy machine does not change it.
            used = after.children_user + after.children_system
            times.append(used - before.children_user - before.children_system)
        return statistics.median(times)

    extra = 1000 * (seconds("import intarsia") - seconds("pass"))
    assert extra <= LIMITS["import_milliseconds"]


_LOADED = """
import contextlib, io, json, sys
before = set(sys.modules)
from intarsia.__main__ import run
sys.argv = ["intarsia", *{arguments!r}]
with contextlib.redirect_stdout(io.StringIO()):
    code = run()
print(json.dumps([code, sorted(set(sys.modules) - before)]))
"""

CPUINFO = Path("/proc/cpuinfo")
DIGITS = Path(__file__).parents[1] / "e2e" / "models" / "digits" / "digits.onnx"
on_known_processor = pytest.mark.skipif(
    not CPUINFO.exists() or model_name(CPUINFO.read_text()) is None,
    reason="only LLVM names this processor",
)


@pytest.mark.parametrize(
    ("arguments", "limit", "everything"),
    [
        (["targets", "parse", "dnnl, llvm -mcpu=haswell"], 60, 255),
        # LLVM is asked for the name of a processor that no table of ours has.
        pytest.param(["targets", "parse", "dnnl, llvm"], 60, 255, marks=on_known_processor),
        (["plugins", "list"], 34, 200),
    ],
    ids=["parse", "parse-native", "list"],
)
def test_commands_that_compile_nothing_load_no_compiler(
    arguments: list[str], limit: int, everything: int
) -> None:
    """Parsing loads the options of two kinds; the whole program is counted, with its supervision.

    ``limit`` counts the modules of Intarsia and its plugins; ``everything`` those of Python's
    library, click (62 of them), msgspec and importlib-metadata too, without those of Python itself.
    """
    run = subprocess.run(
        [sys.executable, "-c", _LOADED.format(arguments=arguments)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, loaded = json.loads(run.stdout)
    assert code == 0, run.stderr
    heavy = ("numpy", "llvmlite", "onnx", "torch", "ml_dtypes", "intarsia_loops")
    compiler = ("intarsia_ir.graph", "intarsia_ir.ops", "intarsia_ir.tir", "intarsia_ir.partition")
    assert [name for name in loaded if name in heavy or name.startswith(compiler)] == []
    ours = [name for name in loaded if name.startswith("intarsia")]
    assert len(ours) <= limit, ours
    assert len(loaded) <= everything, loaded


def test_an_artifact_runs_without_the_compiler(tmp_path: Path) -> None:
    artifact = tmp_path / "digits.intarsia"
    target = ("--target", "llvm -mcpu=x86-64", "-o", str(artifact))
    intarsia = (sys.executable, "-m", "intarsia")
    subprocess.run((*intarsia, "compile", str(DIGITS), *target), check=True, capture_output=True)
    arguments = ["run", str(artifact)]
    program = _LOADED.format(arguments=arguments)
    environment = {**os.environ, "INTARSIA_NO_PROBE": "1"}  # in this process
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    code, loaded = json.loads(run.stdout)
    assert code == 0, run.stderr
    compiler = ("intarsia_ir.ops", "intarsia_ir.tir", "intarsia_ir.passes", "intarsia_loops")
    assert [name for name in loaded if name.startswith((*compiler, "onnx", "llvmlite"))] == []
    assert len([name for name in loaded if name.startswith("intarsia")]) <= 135
