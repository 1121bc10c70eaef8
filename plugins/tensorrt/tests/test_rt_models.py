# SPDX-License-Identifier: Apache-2.0
"""Whole models: one engine each, numbers against ONNX Runtime, and the line on placement."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime
import pytest

import intarsia
from intarsia.driver.stages import partition_module
from intarsia.host.host import Host
from intarsia_ir.partition.cost import Plan
from intarsia_ir.passes.base import Remarks
from intarsia_ir.passes.prepare import PREPARE
from intarsia_tensorrt.codegen import write_network
from intarsia_tensorrt.plan import build_plan
from intarsia_tensorrt.target import TensorrtOptions
from intarsia_testkit.expressions import apply, function_of, var, weight

from .readback import evaluate
from .regions import library

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "tests" / "e2e" / "models" / "digits" / "digits.onnx"


def tiny_nets() -> ModuleType:
    """The nets that the tests of microcontrollers have, of the kinds of MLPerf Tiny."""
    path = ROOT / "plugins" / "c" / "tests" / "mcu" / "tiny_nets.py"
    spec = importlib.util.spec_from_file_location("tiny_nets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digits() -> bytes:
    return DIGITS.read_bytes()


def tiny(name: str) -> Callable[[], bytes]:
    def make() -> bytes:
        return vars(tiny_nets())[name]().SerializeToString()

    return make


MODELS = {
    "digits": (digits, "20/20 nodes offloaded (100 %), 1 region, 296 B across borders"),
    "keywords": (tiny("keywords"), "23/23 nodes offloaded (100 %), 1 region"),
    "pictures": (tiny("pictures"), "nodes offloaded (100 %), 1 region"),
    "persons": (tiny("persons"), "nodes offloaded (100 %), 1 region"),
    "anomalies": (tiny("anomalies"), "nodes offloaded (100 %), 1 region"),
}


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_one_engine_and_its_network_gives_the_result(name: str, half: bool) -> None:
    make, line = MODELS[name]
    model = make()
    module = PREPARE.run(intarsia.from_onnx(model), remarks=Remarks())
    host = Host()
    target = host.target("tensorrt -fp16, cuda" if half else "trt")
    found = partition_module(host, module, target, Plan.GREEDY)
    assert line in str(found.placement)
    (region,) = found.regions
    draft = write_network(region, library(), half=half)
    assert build_plan(draft, TensorrtOptions(fp16=half))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    shape = [size if isinstance(size, int) else 1 for size in given.shape]
    x = np.random.default_rng(1).uniform(0, 1, shape).astype(np.float32)
    (mine,) = evaluate(draft.trt, draft.network, [x])
    (wanted,) = session.run(None, {given.name: x})
    error = np.max(np.abs(mine - wanted)) / max(1e-6, np.max(np.abs(wanted)))
    assert error < (2e-2 if half else 1e-5)


def test_what_is_not_taken_goes_to_the_fallback_of_three_parts() -> None:
    x = apply("nn.relu", apply("matmul", var("x", 8, 16), weight(16, 16)))
    summed = apply("cumsum", x, axis=0)
    y = apply("nn.softmax", apply("matmul", summed, weight(16, 4)), axis=1)
    module = intarsia.IRModule.from_function(function_of(y))
    host = Host()
    found = partition_module(host, module, host.target("trt"), Plan.GREEDY)
    assert str(found.placement).startswith("4/5 nodes offloaded (80 %), 2 regions")
    rows = found.placement.to_json()["verdicts"]
    assert [row["detail"] for row in rows if row["verdict"] != "yes"] == [
        "only newer releases of the library have running sums"
    ]
