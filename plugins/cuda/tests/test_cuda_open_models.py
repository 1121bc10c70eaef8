# SPDX-License-Identifier: Apache-2.0
"""Models of open sizes: one program, emulated and on the GPU, for inputs of any size."""

from __future__ import annotations

import json
import re
import zipfile

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia_ir.graph.module import IRModule
from intarsia_ir.ops.evaluate import evaluate
from intarsia_runtime.errors import ModelError, ResourceError, UnsupportedError
from intarsia_testkit.checks.open_sizes import GRAPHS
from intarsia_testkit.expressions import fresh
from intarsia_testkit.open_models import (
    OPEN_MODELS,
    check_at_all_sizes,
    save_cached_attention,
    save_onnx,
    save_perceptron,
)

EMULATED = "cuda -emulate"
F = TensorProto.FLOAT


@pytest.fixture(params=[EMULATED, "cuda -arch=native"])
def cuda(request):
    """The target; skipped where it needs a GPU that is not here."""
    if request.param != EMULATED:
        request.getfixturevalue("gpu")
    return request.param


def session_of(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def runner_of(path):
    session = session_of(path)
    return lambda feeds: session.run(None, feeds)


@pytest.mark.parametrize("name", OPEN_MODELS)
def test_one_artifact_agrees_with_onnxruntime_at_any_size(tmp_path, cuda, name):
    check_at_all_sizes(OPEN_MODELS[name], cuda, tmp_path, runner_of)


@pytest.mark.parametrize("options", [" -fpmath-mode=tf32", " -max-threads-per-block=64"])
def test_other_tiles_and_no_tiles(tmp_path, cuda, options):
    path = save_perceptron(tmp_path)
    session = session_of(path)
    with intarsia.build(path, target=cuda + options).load() as model:
        for n in (1, 67, 5):
            feeds = {"x": fresh(n, 40)}
            (want,) = session.run(None, feeds)
            np.testing.assert_allclose(model.run(feeds)["y"], want, rtol=2e-2, atol=3e-3)


@pytest.mark.parametrize("graph", sorted(GRAPHS))
def test_graphs_of_the_kit(cuda, graph):
    function, shapes = GRAPHS[graph]()
    (param,) = function.params
    with intarsia.build(IRModule.from_function(function), cuda).load() as model:
        for shape in shapes:
            given = fresh(*shape)
            want = evaluate(function, {param.name: given})
            for got, right in zip(model.run([given]).values(), want, strict=True):
                np.testing.assert_allclose(got, right, rtol=3e-4, atol=3e-5)


def test_nothing_is_started_for_no_elements(tmp_path, cuda):
    with intarsia.build(save_perceptron(tmp_path), target=cuda).load() as model:
        assert model.run({"x": np.zeros((0, 40), np.float32)})["y"].shape == (0, 10)
        assert model.run({"x": fresh(2, 40)})["y"].shape == (2, 10)


def test_the_debug_executor_runs_the_same_kernels(tmp_path, cuda):
    path = intarsia.build(save_cached_attention(tmp_path), target=cuda).save(
        tmp_path / "m.intarsia"
    )
    with intarsia.load(path) as whole, intarsia.load(path, executor="graph") as stepwise:
        feeds = OPEN_MODELS["attention"].feeds
        for sizes in ((1, 5, 2), (2, 3, 40), (1, 5, 2)):
            rows = stepwise.profile(feeds(*sizes))
            assert len(rows) == len(stepwise.passport.plan.steps)
            seen = stepwise.walk_regions(feeds(*sizes), lambda *_: None)
            for name, got in whole.run(feeds(*sizes)).items():
                np.testing.assert_array_equal(seen[name], got)


def test_a_guard_says_what_it_says_on_a_processor(tmp_path, cuda):
    inputs = {"a": (F, ["t", "m"]), "b": (F, ["n", 4])}
    outputs = {"y": (F, None)}
    path = save_onnx(tmp_path / "m.onnx", [("MatMul", "a b", "y", {})], inputs, outputs, {})
    said = []
    for target in ("llvm", cuda):
        with intarsia.build(path, target=target).load() as model:
            assert model.run({"a": fresh(2, 3), "b": fresh(3, 4)})["y"].shape == (2, 4)
            with pytest.raises(ModelError) as caught:
                model.run({"a": fresh(2, 3), "b": fresh(5, 4)})
            said.append((caught.value.message, caught.value.hint))
            assert model.run({"a": fresh(1, 5), "b": fresh(5, 4)})["y"].shape == (1, 4)
    assert said[0] == said[1]
    assert "is 3" in said[0][0]


def test_numbers_of_blocks_are_expressions(tmp_path):
    path = intarsia.build(save_perceptron(tmp_path), target=EMULATED).save(tmp_path / "m.intarsia")
    with zipfile.ZipFile(path) as archive:
        program = json.loads(archive.read("units/main/program.json"))
        text = archive.read("units/main/kernels.cu").decode()
    starts = program["kernels"].values()
    assert "((N + 63) // 64)*min(1, N // 33)" in {start["dims"][0] for start in starts}
    assert all(start.get("sizes", ["N"]) == ["N"] for start in starts)
    assert "int64_t N_given)" in text
    assert "const int32_t N = (int32_t)N_given;" in text
    assert program["most_elements"] == 1 << 30
    assert program["operations"] == []


@pytest.mark.parametrize("options", ["", " -fpmath-mode=tf32"])
def test_a_long_sum_is_cut_into_parts_where_tiles_are_few(tmp_path, cuda, options):
    """Few rows, some, and so many that one part is left; pixels in turn."""
    weights = {"w": fresh(1600, 70), "v": fresh(40, 176, 3, 3)}
    nodes = [
        ("MatMul", "x w", "a", {}),
        ("Relu", "a", "b", {}),
        ("Conv", "p v", "c", {"pads": [1, 1, 1, 1]}),
    ]
    inputs = {"x": (F, ["N", 1600]), "p": (F, ["N", 176, "H", "W"])}
    path = save_onnx(tmp_path / "m.onnx", nodes, inputs, {"b": (F, None), "c": (F, None)}, weights)
    artifact = intarsia.build(path, target=cuda + options).save(tmp_path / "m.intarsia")
    with zipfile.ZipFile(artifact) as archive:
        starts = json.loads(archive.read("units/main/program.json"))["kernels"].values()
    assert any(re.search(r"(256|112) // \(", start["dims"][0]) for start in starts)
    limit = 2e-3 if options else 3e-6
    with intarsia.load(artifact) as model:
        for n, h, w in ((1, 5, 7), (33, 3, 1), (70, 1, 2), (3, 40, 41), (4200, 1, 1), (2, 3, 3)):
            feeds = {"x": fresh(n, 1600), "p": fresh(n, 176, h, w)}
            want = session_of(path).run(None, feeds)
            for got, right in zip(model.run(feeds).values(), want, strict=True):
                assert np.abs(got - right).max() <= limit * np.abs(right).max(), (n, h, w)


@pytest.mark.parametrize("options", ["", " -fpmath-mode=tf32"])
def test_the_number_of_tiles_decides_between_sizes(tmp_path, cuda, options):
    """Of at most 32 rows, of some, and of so many that large tiles keep the GPU busy."""
    path = save_onnx(
        tmp_path / "m.onnx",
        [("MatMul", "x w", "y", {})],
        {"x": (F, ["N", "T", 64])},
        {"y": (F, None)},
        {"w": fresh(64, 768)},
    )
    artifact = intarsia.build(path, target=cuda + options).save(tmp_path / "m.intarsia")
    with zipfile.ZipFile(artifact) as archive:
        starts = json.loads(archive.read("units/main/program.json"))["kernels"].values()
    # 80 tiles: 6 or 12 are as wide as the matrix.
    asked = [re.search(r"min\(\(3\*.* // [24]0, 1\)", start["dims"][0]) for start in starts]
    assert len([found for found in asked if found]) >= 2
    limit = 2e-3 if options else 3e-6
    with intarsia.load(artifact) as model:
        for n, t in ((1, 5), (3, 40), (30, 70)):
            feeds = {"x": fresh(n, t, 64)}
            (want,) = session_of(path).run(None, feeds)
            assert np.abs(model.run(feeds)["y"] - want).max() <= limit * np.abs(want).max()


def test_positions_of_64_bits(tmp_path):
    made = OPEN_MODELS["attention"]
    path = made.save(tmp_path)
    artifact = intarsia.build(path, target=f"{EMULATED} -wide-index").save(tmp_path / "m.intarsia")
    with zipfile.ZipFile(artifact) as archive:
        assert "most_elements" not in json.loads(archive.read("units/main/program.json"))
        assert (
            "const int64_t S = (int64_t)S_given;" in archive.read("units/main/kernels.cu").decode()
        )
    with intarsia.load(artifact) as model:
        for sizes in made.sizes:
            feeds = made.feeds(*sizes)
            want = session_of(path).run(None, feeds)
            for got, right in zip(model.run(feeds).values(), want, strict=True):
                np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def test_more_elements_than_32_bits_count(tmp_path, gpu):
    """Two GiB on the device: the last bytes lie behind 2^30."""
    inputs, outputs = {"x": (TensorProto.UINT8, ["N"])}, {"y": (TensorProto.UINT8, None)}
    path = save_onnx(tmp_path / "m.onnx", [("BitwiseNot", "x", "y", {})], inputs, outputs, {})
    x = np.resize(np.arange(251, dtype=np.uint8), (1 << 30) + 77)
    with intarsia.build(path, target="cuda -arch=native -wide-index").load() as model:
        y = model.run({"x": x})["y"]
    np.testing.assert_array_equal(np.bitwise_not(y, out=y), x)
    with intarsia.build(path, target="cuda -arch=native").load() as model:
        with pytest.raises(ResourceError) as caught:
            model.run({"x": x})
        assert "-wide-index" in caught.value.hint


def counted(folder, behind=()):
    """``NonZero`` says how many rows there are."""
    nodes = [
        ("Greater", "x zero", "over", {}),
        ("NonZero", "over", "places", {}),
        ("Transpose", "places", "turned", {}),
        ("Cast", "turned", "rows" if behind else "y", {"to": F}),
        *behind,
    ]
    weights = {"zero": np.array(0, np.float32), "true": np.array(True)}
    inputs = {"x": (F, ["N"]), **({"trips": (TensorProto.INT64, [])} if behind else {})}
    return save_onnx(folder / "m.onnx", nodes, inputs, {"y": (F, None)}, weights)


def compare(model, path, feeds):
    np.testing.assert_array_equal(model.run(feeds)["y"], session_of(path).run(None, feeds)[0])


def test_sizes_that_the_model_computes_are_refused(tmp_path):
    path = counted(tmp_path)
    with pytest.raises(UnsupportedError, match="does not compute sizes while it runs") as caught:
        intarsia.build(path, target=EMULATED)
    assert "--executor vm" in caught.value.hint
    with intarsia.build(path, target=EMULATED, executor="vm").load() as model:
        for count in (1, 8, 31):
            compare(model, path, {"x": fresh(count)})


def test_the_host_loops_and_counts_around_pieces_of_open_sizes(tmp_path):
    inside = helper.make_graph(
        [helper.make_node("Add", ["c", "c"], ["d"]), helper.make_node("Identity", ["a"], ["b"])],
        "body",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("a", TensorProto.BOOL, []),
            helper.make_tensor_value_info("c", F, ["K", 1]),
        ],
        [
            helper.make_tensor_value_info("b", TensorProto.BOOL, []),
            helper.make_tensor_value_info("d", F, ["K", 1]),
        ],
    )
    path = counted(tmp_path, [("Loop", "trips true rows", "y", {"body": inside})])
    with intarsia.build(path, target=EMULATED).load() as model:
        for count, trips in ((1, 2), (8, 0), (31, 3)):
            compare(model, path, {"x": fresh(count), "trips": np.array(trips)})


def test_a_region_of_open_sizes_does_not_stand_in_front(tmp_path):
    pytest.importorskip("intarsia_dnnl", reason="it is what stands in front")
    path = save_cached_attention(tmp_path)
    with pytest.raises(UnsupportedError, match="regions in front of a device"):
        intarsia.build(path, target=f"dnnl -min-gain=0 -min-grain=0, {EMULATED}", plan="greedy")
