# SPDX-License-Identifier: Apache-2.0
"""Whole models, from the file to numbers, emulated and on the GPU, against ONNX Runtime."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import intarsia

DIGITS = Path(__file__).resolve().parents[3] / "tests" / "e2e" / "models" / "digits"
EMULATED = "cuda -emulate"
RNG = np.random.default_rng(5)


def weight(name, *shape):
    data = RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]) or 1)
    return numpy_helper.from_array(data.astype(np.float32), name)


def normalized(node, source, channels, name):
    """A batch normalization behind a convolution."""
    values = [
        numpy_helper.from_array(RNG.uniform(0.5, 1.5, channels).astype(np.float32), f"{name}_{n}")
        for n in ("scale", "shift", "mean", "variance")
    ]
    inputs = [source, *(v.name for v in values)]
    return helper.make_node("BatchNormalization", inputs, [node]), values


def block(name, source, channels, outputs, stride):
    """Two convolutions beside a shortcut, as residual networks are built."""
    sizes = ((outputs, channels, 3), (outputs, outputs, 3), (outputs, channels, 1))
    nodes, weights = [], []
    for part, (o, i, k) in zip(("a", "b", "s"), sizes, strict=True):
        weights.append(weight(f"{name}{part}w", o, i, k, k))
        first = f"{name}ar" if part == "b" else source
        nodes.append(
            helper.make_node(
                "Conv",
                [first, f"{name}{part}w"],
                [f"{name}{part}c"],
                strides=[1 if part == "b" else stride] * 2,
                pads=[k // 2] * 4,
            )
        )
        node, values = normalized(f"{name}{part}n", f"{name}{part}c", o, f"{name}{part}")
        nodes.append(node)
        weights += values
        if part == "a":
            nodes.append(helper.make_node("Relu", [f"{name}an"], [f"{name}ar"]))
    nodes.append(helper.make_node("Add", [f"{name}bn", f"{name}sn"], [f"{name}j"]))
    nodes.append(helper.make_node("Relu", [f"{name}j"], [name]))
    return nodes, weights


@pytest.fixture(params=[EMULATED, "cuda -arch=native"])
def cuda(request):
    """The target; skipped where it needs a GPU that is not here."""
    if request.param != EMULATED:
        request.getfixturevalue("gpu")
    return request.param


def residual(folder):
    """A small residual network on 32 x 32 pixels."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], strides=[2, 2], pads=[3, 3, 3, 3]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node(
            "MaxPool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
        ),
    ]
    weights = [weight("w", 16, 3, 7, 7)]
    for name, source, channels, outputs, stride in (("d", "p", 16, 16, 1), ("e", "d", 16, 32, 2)):
        more, values = block(name, source, channels, outputs, stride)
        nodes, weights = nodes + more, weights + values
    weights += [weight("f", 32, 10), weight("g", 10)]
    nodes += [
        helper.make_node("GlobalAveragePool", ["e"], ["m"]),
        helper.make_node("Flatten", ["m"], ["v"]),
        helper.make_node("Gemm", ["v", "f", "g"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3, 32, 32))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 10))
    graph = helper.make_graph(nodes, "residual", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / "residual.onnx"
    onnx.save(model, path)
    return path, RNG.normal(size=(2, 3, 32, 32)).astype(np.float32)


@pytest.mark.parametrize(
    ("options", "limit"), [("", 1e-4), (" -fpmath-mode=tf32", 5e-3), (" -fpmath-mode=bf16", 3e-2)]
)
def test_a_residual_network_agrees_with_onnxruntime(tmp_path, cuda, options, limit):
    path, x = residual(tmp_path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    artifact = intarsia.build(path, target=cuda + options).save(tmp_path / "model.intarsia")
    model = intarsia.load(artifact)
    for _ in range(2):  # what is recorded once runs again
        got = model.run({"x": x})["y"]
        np.testing.assert_allclose(got, want, rtol=limit, atol=limit)


def test_digits_are_recognized(tmp_path, cuda):
    samples = np.load(DIGITS / "samples.npz")
    built = intarsia.build(DIGITS / "digits.onnx", target=cuda)
    with intarsia.load(built.save(tmp_path / "digits.intarsia")) as model:
        answers = [model.run({"image": x[None]})["probability"].argmax() for x in samples["image"]]
    assert (np.array(answers) == samples["label"]).mean() >= 30 / 32


def test_both_executors_agree(tmp_path, cuda):
    path, x = residual(tmp_path)
    built = intarsia.build(path, target=cuda).save(tmp_path / "model.intarsia")
    whole, stepwise = (intarsia.load(built, executor=name) for name in ("aot", "graph"))
    want = whole.run({"x": x})["y"]
    for _ in range(2):
        np.testing.assert_array_equal(stepwise.run({"x": x})["y"], want)


def test_an_accelerator_in_front_works_on_the_memory_of_the_host(tmp_path, cuda):
    if importlib.util.find_spec("intarsia_dnnl") is None:
        pytest.skip("intarsia-dnnl is not installed, so no accelerator stands in front")
    path, x = residual(tmp_path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    artifact = intarsia.build(path, target=f"dnnl -min-gain=0 -min-grain=0, {cuda}").save(
        tmp_path / "m.intarsia"
    )
    model = intarsia.load(artifact)
    kinds = [type(step).__name__ for step in model.passport.plan.steps]
    assert "RegionStep" in kinds
    for _ in range(2):
        np.testing.assert_allclose(model.run({"x": x})["y"], want, rtol=1e-4, atol=1e-4)
