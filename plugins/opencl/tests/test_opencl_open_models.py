# SPDX-License-Identifier: Apache-2.0
"""Models of open sizes on a device: one program for inputs of any size."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import onnxruntime
import pytest

import intarsia
from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.errors import ModelError, UnsupportedError
from intarsia_testkit.checks.open_sizes import GRAPHS
from intarsia_testkit.expressions import fresh
from intarsia_testkit.open_models import (
    OPEN_MODELS,
    check_at_all_sizes,
    save_cached_attention,
    save_onnx,
    save_perceptron,
)


@pytest.fixture(autouse=True)
def _quickly_compiled(monkeypatch):
    """Without pocl's optimizer; the larger kernels are tested with it."""
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")


def runner_of(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


@pytest.mark.parametrize("options", ["", " -max-work-group-size=64 -wide-index"])
@pytest.mark.parametrize("name", OPEN_MODELS)
def test_one_artifact_agrees_with_onnxruntime_at_any_size(tmp_path, name, options):
    check_at_all_sizes(OPEN_MODELS[name], "opencl" + options, tmp_path, runner_of)


@pytest.mark.parametrize("graph", sorted(GRAPHS))
def test_graphs_of_the_kit(graph):
    function, shapes = GRAPHS[graph]()
    (param,) = function.params
    with intarsia.build(IRModule.from_function(function), "opencl").load() as model:
        for shape in shapes:
            given = fresh(*shape)
            want = evaluate(function, {param.name: given})
            for got, right in zip(model.run([given]).values(), want, strict=True):
                np.testing.assert_allclose(got, right, rtol=3e-4, atol=3e-5)


def test_the_debug_executor_runs_the_same_kernels(tmp_path):
    path = intarsia.build(save_cached_attention(tmp_path), target="opencl").save(tmp_path / "m.i")
    feeds = OPEN_MODELS["attention"].feeds
    with intarsia.load(path) as whole, intarsia.load(path, executor="graph") as stepwise:
        for sizes in ((1, 5, 2), (2, 3, 40), (1, 5, 2)):
            rows = stepwise.profile(feeds(*sizes))
            assert len(rows) == len(stepwise.passport.plan.steps)
            seen = stepwise.walk_regions(feeds(*sizes), lambda *_: None)
            for name, got in whole.run(feeds(*sizes)).items():
                np.testing.assert_array_equal(seen[name], got)


def test_no_elements_and_sizes_that_do_not_go_together(tmp_path):
    inputs = {"a": (1, ["t", "m"]), "b": (1, ["n", 4])}
    nodes = [("MatMul", "a b", "y", {})]
    path = save_onnx(tmp_path / "m.onnx", nodes, inputs, {"y": (1, None)}, {})
    said = []
    for target in ("llvm", "opencl"):
        with intarsia.build(path, target=target).load() as model:
            with pytest.raises(ModelError) as caught:
                model.run({"a": fresh(2, 3), "b": fresh(5, 4)})
            said.append((caught.value.message, caught.value.hint))
            assert model.run({"a": fresh(0, 5), "b": fresh(5, 4)})["y"].shape == (0, 4)
            assert not model.run({"a": fresh(2, 0), "b": fresh(0, 4)})["y"].any()
    assert said[0] == said[1]


def test_numbers_of_groups_are_expressions(tmp_path):
    artifact = intarsia.build(save_perceptron(tmp_path), target="opencl")
    with zipfile.ZipFile(artifact.save(tmp_path / "m.intarsia")) as archive:
        program = json.loads(archive.read("units/main/program.json"))
    starts = [start for found in program["functions"].values() for start in found]
    assert "((N + 63) // 64)*min(1, N // 33)" in {start["groups"][0] for start in starts}
    assert all(start["sizes"] == ["N"] for start in starts if "sizes" in start)


def test_a_region_of_open_sizes_does_not_stand_in_front(tmp_path):
    pytest.importorskip("intarsia_dnnl", reason="it is what stands in front")
    path = save_cached_attention(tmp_path)
    with pytest.raises(UnsupportedError, match="regions in front of a device"):
        intarsia.build(path, target="dnnl -min-gain=0 -min-grain=0, opencl", plan="greedy")
