# SPDX-License-Identifier: Apache-2.0
"""An accelerator from its wheel that gets its regions as loops, and tensorizes products in them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

Run = Callable[..., subprocess.CompletedProcess[str]]
DIGITS = Path(__file__).resolve().parents[1] / "e2e" / "models" / "digits" / "digits.onnx"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two products of sizes that tiles do not divide, and a Tanh between them."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (10, 6), "w2": (6, 9)}
    weights = [
        numpy_helper.from_array(rng.random(shape, np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("Tanh", ["a"], ["b"], "squash"),
        helper.make_node("MatMul", ["b", "w2"], ["y"], "second"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [7, 10])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, 9])
    graph = helper.make_graph(nodes, "two", [x], [y], weights)
    path = tmp_path / "two.onnx"
    opset = [helper.make_opsetid("", 21)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path


def test_the_tensorized_product_is_what_runs(run_python: Run, model: Path, tmp_path: Path) -> None:
    """By default: a plugin that states no cost is presumed to be fast."""
    artifact, log = tmp_path / "two.intarsia", tmp_path / "log"
    target = ("--target", "tilemul, llvm")
    run = run_python("-m", "intarsia", "compile", str(model), *target, "-o", str(artifact))
    assert run.returncode == 0, run.stderr
    assert "2/3 nodes offloaded" in run.stdout
    log.unlink(missing_ok=True)
    options = ("--verify", "--model", str(model), "--json")
    run = run_python("-m", "intarsia", "run", str(artifact), *options, TILEMUL_LOG=str(log))
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert [row["ok"] for row in found["regions"]] == [True, True]
    executed = json.loads(log.read_text().replace("'", '"'))
    tiles = 2 * 2, 2 * 3  # of the results: 7 x 6 and 7 x 9
    products = 3 * tiles[0] + 2 * tiles[1]  # depths of 10 and 6
    runs = executed["tile_zero"] // sum(tiles)
    assert runs >= 2
    assert executed == {"tile_zero": runs * sum(tiles), "tile_mma": runs * products}


def test_a_real_model_runs_with_its_product_tensorized(run_python: Run, tmp_path: Path) -> None:
    """Its weights are transposed: rewrite_relay of the accelerator turns them before annotation."""
    log = tmp_path / "log"
    options = ("--target", "tilemul, llvm", "--verify")
    run = run_python("-m", "intarsia", "run", str(DIGITS), *options, TILEMUL_LOG=str(log))
    assert run.returncode == 0, run.stderr
    assert "verify tilemul_0: ok" in run.stdout
    assert "tile_mma" in log.read_text()


FUZZ = """
import sys
from pathlib import Path
from intarsia_testkit.hostile import fuzz
outcome = fuzz(Path(sys.argv[1]), int(sys.argv[2]), seed=int(sys.argv[3]), batch=500)
print(*sorted(outcome.exits.items()))
sys.exit("\\n".join(outcome.faults) or 0)
"""


@pytest.mark.parametrize("count", [40, pytest.param(5000, marks=pytest.mark.exhaustive)])
def test_mutations_of_a_region_of_loops_end_well(
    run_python: Run, model: Path, tmp_path: Path, count: int
) -> None:
    """Its plan is a file of the unit: the host checks it before the plugin's loader sees it."""
    artifact = tmp_path / "two.intarsia"
    target = ("--target", "tilemul, llvm")
    run = run_python("-m", "intarsia", "compile", str(model), *target, "-o", str(artifact))
    assert run.returncode == 0, run.stderr
    run = run_python("-c", FUZZ, str(artifact), str(count), "2000", timeout=600)
    assert run.returncode == 0, run.stderr
    assert "(7, " in run.stdout
