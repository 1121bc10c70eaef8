# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms, folding, places of pools, attention: compiled code against the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import intarsia
from intarsia_ir.graph.guards import collecting_guards
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import ModelError, UnsupportedError

from .dynamic.nodes import run as on_the_host

RNG = np.random.default_rng(3)


def compiled(
    op: str,
    *values: Any,
    opset: int = 21,
    domain: str = "",
    outputs: int = 1,
    known: int = 1,
    **attrs: Any,
) -> list[np.ndarray]:
    """Results of a node by the operators it is compiled to; the first ``known`` are inputs."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(values)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attrs)
    given = {name: value for name, value in zip(names, values, strict=True) if name}
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in list(given.items())[:known]
    ]
    graph = helper.make_graph(
        [node],
        "g",
        infos,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(value, name) for name, value in list(given.items())[known:]],
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, 1)] if domain else []
    module = from_onnx(helper.make_model(graph, opset_imports=imports).SerializeToString())
    return list(evaluate(module.main, {info.name: given[info.name] for info in infos}))


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-4) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_transforms_of_any_form_are_those_of_the_host(data: st.DataObject) -> None:
    inverse = data.draw(st.booleans())
    onesided = data.draw(st.booleans())
    parts = data.draw(st.integers(1, 2)) if not onesided else 2 if inverse else 1
    size = data.draw(st.integers(2, 17))
    length = data.draw(st.none() | st.integers(2, 20))
    axis = data.draw(st.integers(0, 1))
    shape = [3, 2]
    shape[axis] = size
    x = RNG.standard_normal((*shape, parts)).astype(np.float32)
    given = None if length is None else np.array(length, np.int64)
    attrs = {"inverse": int(inverse), "onesided": int(onesided)}
    operands = (x, given, np.array(axis, np.int64))
    (found,) = compiled("DFT", *operands, **attrs)
    (wanted,) = on_the_host("DFT", *operands, **attrs)
    close(found, wanted)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("length", [None, 5, 12])
def test_the_way_back_from_all_frequencies(length: int | None, target: str) -> None:
    node = helper.make_node("DFT", ["x", "" if length is None else "n", "axis"], ["y"], inverse=1)
    given = {"axis": 1} if length is None else {"axis": 1, "n": length}
    stored = [numpy_helper.from_array(np.array(number), name) for name, number in given.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 9, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "L", 2])
    graph = helper.make_graph([node], "g", [x], [y], stored)
    imports = [helper.make_opsetid("", 20)]
    data = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(data)
    artifact = intarsia.build(data, target)
    assert artifact.passport.executor["kind"] == "aot"
    with artifact.load(threads=1) as executable:
        for signals in (1, 3):
            given = {"x": RNG.standard_normal((signals, 9, 2)).astype(np.float32)}
            (wanted,) = session.run(None, given)
            close(executable.run(given)["y"], wanted, 1e-5)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [True, False])
def test_short_transforms_of_a_long_signal(windowed: bool, onesided: int) -> None:
    x = RNG.standard_normal((2, 90, 1)).astype(np.float32)
    window = np.hanning(32).astype(np.float32) if windowed else None
    operands = (x, np.array(7), window, np.array(32))
    (found,) = compiled("STFT", *operands, onesided=onesided)
    (wanted,) = on_the_host("STFT", *operands, onesided=onesided)
    close(found, wanted)
    with pytest.raises(ModelError, match="frames of 200"):
        compiled("STFT", x, np.array(7), None, np.array(200))


def test_transforms_that_are_no_products() -> None:
    with pytest.raises(UnsupportedError, match="DFT of 4096 elements as a product"):
        compiled("DFT", np.zeros((1, 4096, 1), np.float32), None, np.array(1))
    with pytest.raises(ModelError, match="is no signal"):
        compiled("DFT", np.zeros((1, 8, 1), np.float32), None, np.array(2))
    with pytest.raises(ModelError, match="a transform of 0 elements"):
        compiled("DFT", np.zeros((1, 8, 1), np.float32), np.array(0), np.array(1))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_folding_is_that_of_the_host(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2))
    kernel, strides, dilations, low, high, steps = (
        [data.draw(st.integers(*limits)) for _ in range(rank)]
        for limits in ((1, 3), (1, 3), (1, 2), (0, 1), (0, 1), (1, 4))
    )
    image = [
        s * (n - 1) + d * (k - 1) + 1 - a - b + data.draw(st.integers(0, s - 1))
        for s, n, d, k, a, b in zip(strides, steps, dilations, kernel, low, high, strict=True)
    ]
    if min(image) < 1:
        return
    x = RNG.standard_normal((2, 3 * np.prod(kernel), np.prod(steps))).astype(np.float32)
    operands = (x, np.array(image), np.array(kernel))
    attrs = {"strides": strides, "dilations": dilations, "pads": [*low, *high]}
    (found,) = compiled("Col2Im", *operands, **attrs)
    (wanted,) = on_the_host("Col2Im", *operands, **attrs)
    close(found, wanted)


def test_blocks_that_do_not_fit() -> None:
    x = np.zeros((1, 4, 9), np.float32)
    with pytest.raises(ModelError, match="9 blocks; an image of"):
        compiled("Col2Im", x, np.array([5, 5]), np.array([2, 2]))
    with pytest.raises(ModelError, match=r"blocks of \(3, 1\)"):
        compiled("Col2Im", x, np.array([5, 5]), np.array([3, 1]))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_places_of_largest_elements_are_those_of_the_host(data: st.DataObject) -> None:
    kernel, strides, dilations = (
        [data.draw(st.integers(1, most)) for _ in range(2)] for most in (3, 3, 2)
    )
    pads = [data.draw(st.integers(0, kernel[i % 2] - 1)) for i in range(4)]
    x = RNG.integers(-3, 3, (2, 2, 7, 8)).astype(np.float32)  # with many equal elements
    attrs = {
        "kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads,
        "storage_order": data.draw(st.integers(0, 1)), "ceil_mode": data.draw(st.integers(0, 1)),
    }  # fmt: skip
    found = compiled("MaxPool", x, outputs=2, **attrs)
    wanted = on_the_host("MaxPool", x, outputs=2, **attrs)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_pooled_elements_go_back_to_their_places() -> None:
    x = RNG.standard_normal((1, 2, 6, 6)).astype(np.float32)
    pooled, places = compiled("MaxPool", x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    (found,) = compiled("MaxUnpool", pooled, places, known=2, **attrs)
    wanted = np.where(np.kron(pooled, np.ones((2, 2), np.float32)) == x, x, 0)
    np.testing.assert_array_equal(found, wanted)
    shape = np.array([1, 2, 7, 8])
    (larger,) = compiled("MaxUnpool", pooled, places, shape, known=2, **attrs)
    (host,) = on_the_host("MaxUnpool", pooled, places, shape, **attrs)
    np.testing.assert_array_equal(larger, host)
    with pytest.raises(ModelError, match="its elements fill"):
        compiled("MaxUnpool", pooled, places, np.array([1, 2, 5, 6]), known=2, **attrs)


def test_large_windows_have_no_compiled_places() -> None:
    with pytest.raises(UnsupportedError, match=r"indices of a MaxPool over windows of \(9, 9\)"):
        compiled("MaxPool", np.zeros((1, 1, 9, 9), np.float32), outputs=2, kernel_shape=[9, 9])


def _body(name: str, op: str, shape: list) -> Any:
    info = helper.make_tensor_value_info
    node = helper.make_node(op, ["s"], ["m"])
    return helper.make_graph(
        [node], name, [info("s", TensorProto.FLOAT, shape)], [info("m", TensorProto.FLOAT, None)]
    )


def test_attention_with_graphs_inside() -> None:
    q = RNG.standard_normal((1, 4, 3, 8)).astype(np.float32)
    k, v = (RNG.standard_normal((1, 2, 5, 8)).astype(np.float32) for _ in range(2))
    attrs = {
        "score_mod": _body("score", "Tanh", [1, 4, 3, 5]),
        "prob_mod": _body("prob", "Sqrt", [1, 4, 3, 5]),
        "scale": 0.5,
    }
    where = {"domain": "ai.onnx.preview", "opset": 26}
    (found,) = compiled("FlexAttention", q, k, v, known=3, **where, **attrs)
    keys, values = np.repeat(k, 2, 1), np.repeat(v, 2, 1)
    scores = np.tanh(q @ np.swapaxes(keys, 2, 3) * np.float32(0.5))
    grown = np.exp(scores)
    close(found, np.sqrt(grown / grown.sum(-1, keepdims=True)) @ values)
    attrs["score_mod"] = _body("score", "Size", [1, 4, 3, 5])
    with pytest.raises(ModelError, match="'score_mod' changes the shape"):
        compiled("FlexAttention", q, k, v, known=3, **where, **attrs)
    with pytest.raises(ModelError, match="queries, keys and values"):
        compiled("FlexAttention", q[:, :3], k, v, known=3, **where)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_statistics_of_the_batch_itself(dtype: type) -> None:
    x = (RNG.standard_normal((4, 3, 5)) * 3 + 1).astype(dtype)
    vectors = [RNG.uniform(0.5, 2, 3).astype(dtype) for _ in range(4)]
    attrs = {"training_mode": 1, "momentum": 0.75, "outputs": 3}
    found = compiled("BatchNormalization", x, *vectors, known=5, **attrs)
    wanted = on_the_host("BatchNormalization", x, *vectors, **attrs)
    for a, b in zip(found, wanted, strict=True):
        close(a, b, 5e-3 if dtype is np.float16 else 1e-4)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_samples_that_offsets_move_are_those_of_the_host(data: st.DataObject) -> None:
    strides, dilations, kernel = (
        [data.draw(st.integers(1, most)) for _ in range(2)] for most in (2, 2, 3)
    )
    pads = [data.draw(st.integers(0, 1)) for _ in range(4)]
    group, parts = data.draw(st.sampled_from([1, 2])), data.draw(st.sampled_from([1, 2]))
    x = RNG.standard_normal((2, 4, 6, 7)).astype(np.float32)
    sizes = [
        (n + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i, n in enumerate(x.shape[2:])
    ]
    taps = kernel[0] * kernel[1]
    weight = RNG.standard_normal((6, 4 // group, *kernel)).astype(np.float32)
    offset = RNG.uniform(-3, 3, (2, parts * taps * 2, *sizes)).astype(np.float32)
    bias = RNG.standard_normal(6).astype(np.float32) if data.draw(st.booleans()) else None
    masked = data.draw(st.booleans())
    mask = RNG.uniform(0, 1, (2, parts * taps, *sizes)).astype(np.float32) if masked else None
    attrs = {
        "strides": strides, "dilations": dilations, "pads": pads, "group": group,
        "offset_group": parts, "opset": 22,
    }  # fmt: skip
    operands = [x, weight, offset, bias, mask]
    while operands[-1] is None:
        operands.pop()
    (found,) = compiled("DeformConv", *operands, known=3, **attrs)
    (wanted,) = on_the_host("DeformConv", *operands, **attrs)
    close(found, wanted, 1e-4)


def test_offsets_that_do_not_fit() -> None:
    x, weight = np.zeros((1, 4, 5, 5), np.float32), np.zeros((2, 4, 3, 3), np.float32)
    offset = np.zeros((1, 18, 3, 3), np.float32)
    with pytest.raises(ModelError, match="4 channels; group=1, offset_group=3"):
        compiled("DeformConv", x, weight, offset, known=3, opset=22, offset_group=3)
    with pytest.raises(ModelError, match="for 2 times 9 taps"):
        compiled("DeformConv", x, weight, offset, known=3, opset=22, offset_group=2)


@pytest.mark.parametrize("length", [32, 33, 90, 400])
def test_transforms_of_a_signal_of_open_length(length: int) -> None:
    window, signal = np.hanning(32).astype(np.float32), RNG.standard_normal((2, length))
    x = signal.astype(np.float32)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "n"])]
    weights = [numpy_helper.from_array(v, n) for n, v in (("hop", np.array(7)), ("w", window))]
    graph = helper.make_graph(
        [helper.make_node("STFT", ["x", "hop", "w"], ["y"])],
        "g",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    imports = [helper.make_opsetid("", 17)]
    data = helper.make_model(graph, opset_imports=imports).SerializeToString()
    with collecting_guards():
        module = from_onnx(data)
    (found,) = evaluate(module.main, {"x": x}, module)
    (wanted,) = on_the_host("STFT", x, np.array(7), window)
    close(found, wanted)


def test_transforms_whose_lengths_only_the_run_knows() -> None:
    def refused(kind: str, shape: tuple[int | str, ...], match: str) -> None:
        names = ["x", "hop"] if kind == "STFT" else ["x"]
        graph = helper.make_graph(
            [helper.make_node(kind, names, ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.array(7), "hop")],
        )
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        with collecting_guards(), pytest.raises(UnsupportedError, match=match):
            from_onnx(data.SerializeToString())

    refused("STFT", (2, "n"), "frames whose length is known only at run time")
    refused("DFT", (2, "n", 1), "a signal whose length is known only at run time")
