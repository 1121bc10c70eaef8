# SPDX-License-Identifier: Apache-2.0
"""Models that ONNX Runtime's quantizer makes: recognized whole, within a quantum of its results."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from intarsia_ir.graph.walk import calls
from intarsia_ir.ops.evaluate import evaluate
from intarsia_ir.passes.prepare import PREPARE
from intarsia_onnx import from_onnx
from intarsia_runtime.errors import UnsupportedError

from .onnx_models import model, node

RNG = np.random.default_rng(2)
SHAPE = (1, 3, 12, 12)


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def network() -> onnx.ModelProto:
    """A residual network with most operators that the quantizer knows."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2 b2", "c2", pads=[1, 1, 1, 1], group=8),
        node("LeakyRelu", "c2", "r2", alpha=0.1),
        node("Conv", "r2 w3", "c3"),
        node("Add", "c3 r1", "s"),
        node("Sigmoid", "s", "g"),
        node("Mul", "s g", "m"),
        node("Concat", "m r1", "j", axis=1),
        node("MaxPool", "j", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "p", "a"),
        node("Flatten", "a", "f"),
        node("Gemm", "f w4 b4", "y", transB=1),
    ]
    given = {
        "w1": weights(8, 3, 3, 3),
        "b1": weights(8),
        "w2": weights(8, 1, 3, 3),
        "b2": weights(8),
        "w3": weights(8, 8, 1, 1),
        "w4": weights(5, 16),
        "b4": weights(5),
    }
    proto = model(nodes, {"x": SHAPE}, weights=given, opset=17)
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return proto


class Samples(CalibrationDataReader):
    """Random pictures."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self._left = [{name: RNG.standard_normal(shape).astype(np.float32)} for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def quantized(tmp_path: Path, **options: object) -> Path:
    source, target = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(network(), source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_static(source, target, Samples("x", SHAPE), **options)
    return target


def compared(path: Path, inputs: dict[str, np.ndarray], *, quanta: float) -> list[str]:
    """Compare with ONNX Runtime and with the same model unprepared; the operators that are left."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, inputs)
    before = from_onnx(path)
    after = PREPARE.run(before, check=True)
    (plain,), (found,) = evaluate(before.main, inputs), evaluate(after.main, inputs)
    step = np.diff(np.unique(wanted)).min()
    assert np.abs(found - wanted).max() <= quanta * step + 1e-6
    assert np.abs(found - plain).max() <= quanta * step + 1e-6
    return [call.name for call in calls(after.main)]


FORMS = [
    (format_, activation, weight, per_channel)
    for format_ in (QuantFormat.QDQ, QuantFormat.QOperator)
    for activation, weight in (
        (QuantType.QUInt8, QuantType.QInt8),
        (QuantType.QUInt8, QuantType.QUInt8),
        (QuantType.QInt8, QuantType.QInt8),
    )
    for per_channel in (False, True)
]


@pytest.mark.parametrize(("format_", "activation", "weight", "per_channel"), FORMS)
def test_networks_are_recognized_whole(tmp_path, format_, activation, weight, per_channel):
    path = quantized(
        tmp_path,
        quant_format=format_,
        activation_type=activation,
        weight_type=weight,
        per_channel=per_channel,
    )
    x = RNG.standard_normal(SHAPE).astype(np.float32)
    found = Counter(compared(path, {"x": x}, quanta=3))
    assert found["qnn.quantize"] == found["qnn.dequantize"] == 1, found
    assert found["qnn.conv"] == 3
    assert found["qnn.matmul"] == found["qnn.mean"] == found["qnn.add"] == 1
    floats = {"nn.conv", "matmul", "add", "multiply", "sigmoid", "nn.leaky_relu", "mean"}
    assert floats.isdisjoint(found), found


def test_dynamic_quantization_keeps_products_of_integers(tmp_path):
    source, target = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    given = {"w": weights(24, 16), "v": weights(16, 5)}
    nodes = [node("MatMul", "x w", "a"), node("Tanh", "a", "b"), node("MatMul", "b v", "y")]
    onnx.save(model(nodes, {"x": (4, 24)}, weights=given, opset=17), source)
    quantize_dynamic(source, target, weight_type=QuantType.QInt8)
    x = RNG.standard_normal((4, 24)).astype(np.float32)
    # Without VNNI, its 8-bit products saturate in 16 bits by default.
    exact = onnxruntime.SessionOptions()
    exact.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(target, exact, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    module = PREPARE.run(from_onnx(target), check=True)
    (found,) = evaluate(module.main, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=0.02)
    assert Counter(call.name for call in calls(module.main))["qnn.matmul_integer"] == 2


def contributed(op: str, inputs: str, weights_: dict[str, np.ndarray], **attrs) -> onnx.ModelProto:
    made = node(op, inputs, **attrs)
    made.domain = "com.microsoft"
    kind = onnx.TensorProto.UINT8
    proto = model([made], {"x": (2, 3, 4)}, weights=weights_, opset=17, dtype=kind)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


SCALE, ZERO = np.float32(0.05), np.uint8(7)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
        ("QLinearAveragePool", {"kernel_shape": [2], "strides": [2], "pads": [1, 0]}),
        ("QLinearAveragePool", {"kernel_shape": [2], "pads": [1, 0], "channels_last": 1}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearGlobalAveragePool", {"channels_last": 1}),
    ],
)
def test_contributed_operators_of_one_tensor(op, attrs):
    names = {"s": SCALE, "z": ZERO, "t": np.float32(0.01), "u": np.uint8(3)}
    proto = contributed(op, "x s z t u", names, **attrs)
    x = RNG.integers(0, 256, (2, 3, 4)).astype(np.uint8)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, {"x": x})
    module = PREPARE.run(from_onnx(proto), check=True)
    (found,) = evaluate(module.main, {"x": x})
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


def test_a_contributed_choice_between_two_tensors():
    names = {"c": RNG.integers(0, 2, (2, 1, 4)).astype(bool), "s": SCALE, "z": ZERO}
    names |= {"v": RNG.integers(0, 256, (3, 4)).astype(np.uint8), "t": np.float32(0.02)}
    proto = contributed("QLinearWhere", "c x s z v t z t z", names)
    x = RNG.integers(0, 256, (2, 3, 4)).astype(np.uint8)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, {"x": x})
    module = PREPARE.run(from_onnx(proto), check=True)
    (found,) = evaluate(module.main, {"x": x})
    assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1


REFUSALS = [
    (contributed("QLinearSigmoid", "x s z s z", {"s": np.ones(2, np.float32), "z": ZERO}), "axis"),
    (
        contributed("QLinearSoftmax", "x s z s z", {"s": SCALE, "z": ZERO}, axis=1, opset=12),
        "over several axes",
    ),
    (
        contributed("QGemm", "x s z x s z", {"s": SCALE, "z": ZERO}, alpha=2.0),
        "alpha=2.0",
    ),
]


@pytest.mark.parametrize(("proto", "words"), REFUSALS)
def test_contributed_operators_are_refused_in_words(proto, words):
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(proto)
    assert words in str(caught.value)
