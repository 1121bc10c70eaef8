# SPDX-License-Identifier: Apache-2.0
"""What importing costs: nothing heavy is loaded before it is needed."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

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
            before = os.times()
            subprocess.run([sys.executable, "-c", code], check=True)
            after = os.times()
            # The children's own time: a busy machine does not change it.
            used = after.children_user + after.children_system
            times.append(used - before.children_user - before.children_system)
        return statistics.median(times)

    extra = 1000 * (seconds("import intarsia") - seconds("pass"))
    assert extra <= LIMITS["import_milliseconds"]
