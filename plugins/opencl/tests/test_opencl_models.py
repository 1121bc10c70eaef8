# SPDX-License-Identifier: Apache-2.0
"""Whole models, from the file to numbers, on a device, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia

DIGITS = Path(__file__).resolve().parents[3] / "tests" / "e2e" / "models" / "digits"
RNG = np.random.default_rng(5)


def constant(name, *shape):
    data = RNG.normal(size=shape) / np.sqrt(shape[0])
    return numpy_helper.from_array(data.astype(np.float32), name)


def encoder(folder, width=32, heads=4, length=24):
    """One layer of a transformer: attention and two dense layers, each with a residual."""
    size = width // heads
    weights = [constant(name, width, width) for name in ("wq", "wk", "wv", "wo")]
    weights += [constant("w1", width, 2 * width), constant("w2", 2 * width, width)]
    weights += [numpy_helper.from_array(np.ones(width, np.float32), "one")]
    weights += [numpy_helper.from_array(np.zeros(width, np.float32), "zero")]
    weights += [numpy_helper.from_array(np.array([2, length, heads, size]), "split")]
    weights += [numpy_helper.from_array(np.array([2, length, width]), "joined")]
    weights += [numpy_helper.from_array(np.float32(size**-0.5), "scale")]
    nodes = []

    def node(op, inputs, output, **attrs):
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attrs))

    for part, order in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        node("MatMul", ["x", f"w{part}"], f"{part}0")
        node("Reshape", [f"{part}0", "split"], f"{part}1")
        node("Transpose", [f"{part}1"], f"{part}2", perm=order)
    node("MatMul", ["q2", "k2"], "scores")
    node("Mul", ["scores", "scale"], "scaled")
    node("Softmax", ["scaled"], "share", axis=-1)
    node("MatMul", ["share", "v2"], "mixed")
    node("Transpose", ["mixed"], "turned", perm=(0, 2, 1, 3))
    node("Reshape", ["turned", "joined"], "flat")
    node("MatMul", ["flat", "wo"], "o")
    node("Add", ["o", "x"], "a")
    node("LayerNormalization", ["a", "one", "zero"], "n")
    node("MatMul", ["n", "w1"], "h")
    node("Gelu", ["h"], "g")
    node("MatMul", ["g", "w2"], "d")
    node("Add", ["d", "n"], "e")
    node("LayerNormalization", ["e", "one", "zero"], "y")
    shape = (2, length, width)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy")
    graph = helper.make_graph(nodes, "encoder", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path = folder / "encoder.onnx"
    onnx.save(model, path)
    return path, RNG.normal(size=shape).astype(np.float32)


def expected(path, feeds):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.fixture(autouse=True)
def _quickly_compiled(monkeypatch):
    """Without pocl's optimizer; the larger kernels are tested with it."""
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    path, x = encoder(tmp_path_factory.mktemp("encoder"))
    return path, x, expected(path, {"x": x})


def test_a_transformer_agrees_with_onnxruntime(transformer, tmp_path):
    path, x, want = transformer
    artifact = intarsia.build(path, target="opencl").save(tmp_path / "model.intarsia")
    with intarsia.load(artifact) as model:
        for _ in range(2):
            np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
    with intarsia.load(artifact, executor="graph") as model:
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-4, atol=1e-4)


def test_a_classifier_agrees_with_onnxruntime_on_every_image():
    images = np.load(DIGITS / "samples.npz")["image"][:16]
    with intarsia.build(DIGITS / "digits.onnx", target="opencl").load() as model:
        got = [model.run({"image": image[None]})["probability"] for image in images]
    want = [expected(DIGITS / "digits.onnx", {"image": image[None]}) for image in images]
    np.testing.assert_allclose(np.concatenate(got), np.concatenate(want), rtol=1e-4, atol=1e-6)


def test_an_accelerator_in_front_works_on_memory_of_the_host(transformer):
    path, x, want = transformer
    target, place = "dnnl -min-gain=0 -min-grain=0, opencl", {"d": "dnnl", "share": "opencl"}
    with intarsia.build(path, target=target, place=place).load() as model:
        kinds = [type(step).__name__ for step in model.passport.plan.steps]
        assert {"RegionStep", "KernelStep"} <= set(kinds)
        for _ in range(2):
            np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-4, atol=1e-4)


def test_a_model_that_computes_nothing(tmp_path):
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (3, 0, 2)) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "none", [x], [y])
    path = tmp_path / "none.onnx"
    onnx.save(helper.make_model(graph, ir_version=9), path)
    with intarsia.build(path, target="opencl").load() as model:
        assert model.run({"x": np.zeros((3, 0, 2), np.float32)})["y"].shape == (3, 0, 2)
