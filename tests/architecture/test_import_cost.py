# SPDX-License-Identifier: Apache-2.0
"""What importing costs: nothing heavy is loaded before it is needed."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

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
    compiler = (
        "ir",
        "tir",
        "ops",
        "passes",
        "lower",
        "partition",
        "frontend",
        "build",
        "host",
        "target",
    )
    program = (
        "import sys, intarsia.runtime.load\n"
        f"loaded = [m for m in {compiler!r} if 'intarsia.' + m in sys.modules]\n"
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
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    extra = 1000 * (seconds("import intarsia") - seconds("pass"))
    assert extra <= LIMITS["import_milliseconds"]
