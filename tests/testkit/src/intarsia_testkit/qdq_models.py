# SPDX-License-Identifier: Apache-2.0
"""Quantized ONNX models as exporters write them: dequantize, operator, quantize; need onnx."""

from __future__ import annotations

from importlib import import_module

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


class QdqGraph:
    """Collects nodes; every tensor is named once."""

    def __init__(self, dtype: str = "int8") -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.dtype = dtype
        self._rng = np.random.default_rng(7)

    def name(self) -> str:
        """The name of the next tensor."""
        return f"v{len(self.nodes)}_{len(self.constants)}"

    def keep(self, array: np.ndarray) -> str:
        """Add a constant; returns its name."""
        name = self.name()
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, **attrs: object) -> str:
        """Add a node with one result; returns the result's name."""
        name = self.name()
        node = helper.make_node(op, list(inputs), [name], name=f"{op}_{name}")
        node.attribute.extend(helper.make_attribute(k, value) for k, value in sorted(attrs.items()))
        self.nodes.append(node)
        return name

    def quantized(self, value: str, scale: float, zero: int) -> str:
        """Quantize and dequantize a value."""
        by, at = self.keep(np.asarray(scale, np.float32)), self.keep(np.asarray(zero, self.dtype))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", value, by, at), by, at)

    def weight(self, shape: tuple[int, ...], scales: np.ndarray, axis: int = 0) -> str:
        """Add random int8 weights and what dequantizes them."""
        stored = self._rng.integers(-127, 127, shape, endpoint=True).astype(np.int8)
        zeros = np.zeros(scales.shape, np.int8)
        operands = (self.keep(stored), self.keep(scales), self.keep(zeros))
        return self.node("DequantizeLinear", *operands, axis=axis)

    def bias(self, count: int, scales: np.ndarray) -> str:
        """Add a random int32 bias and what dequantizes it."""
        stored = self._rng.integers(-2000, 2000, count).astype(np.int32)
        zeros = np.zeros(scales.shape, np.int32)
        operands = (self.keep(stored), self.keep(scales), self.keep(zeros))
        return self.node("DequantizeLinear", *operands, axis=0)

    def conv(
        self, value: str, of: int, to: int, scale: float, size: int = 3, **attrs: object
    ) -> str:
        """Add a convolution whose weights have a scale for each channel."""
        group = int(str(attrs.get("group", 1)))
        scales = (self._rng.random(to).astype(np.float32) + 0.5) * np.float32(0.01)
        weight = self.weight((to, of // group, size, size), scales)
        bias = self.bias(to, scales * np.float32(scale))
        return self.node("Conv", value, weight, bias, kernel_shape=[size, size], **attrs)


def residual_net(dtype: str = "int8") -> ModelProto:
    """Convolutions, a residual sum, a pool, a mean and a product, between floats."""
    graph, summed = _residual(dtype)
    pooled = graph.node("MaxPool", summed, kernel_shape=[2, 2], strides=[2, 2])
    return _finished(graph, pooled, 8, 28, np.full((), 0.01, np.float32))


def channelled_residual_net(dtype: str = "int8") -> ModelProto:
    """The same without the pool, on a smaller image; the product has a scale for each channel."""
    graph, summed = _residual(dtype)
    return _finished(graph, summed, 8, 16, np.full(10, 0.01, np.float32), axis=1)


def _residual(dtype: str) -> tuple[QdqGraph, str]:
    """The layers up to the residual sum, and its name."""
    low, middle = (0, 128) if dtype == "uint8" else (-128, 0)
    graph = QdqGraph(dtype)
    x = graph.quantized("image", 0.02, middle)
    first = graph.conv(x, 3, 8, 0.02, strides=[2, 2], pads=[1, 1, 1, 1])
    first = graph.quantized(graph.node("Relu", first), 0.03, low)
    deep = graph.conv(first, 8, 8, 0.03, pads=[1, 1, 1, 1], group=8)
    deep = graph.quantized(graph.node("Relu", deep), 0.05, low)
    back = graph.quantized(graph.conv(deep, 8, 8, 0.05, size=1), 0.1, middle)
    summed = graph.quantized(graph.node("Add", first, back), 0.11, middle)
    return graph, summed


def mobile_net(dtype: str = "int8", size: int = 224) -> ModelProto:
    """The layers of MobileNet 1.0 with random weights, between floats."""
    low, middle = (0, 128) if dtype == "uint8" else (-128, 0)
    graph = QdqGraph(dtype)
    x = graph.quantized("image", 0.02, middle)
    value = graph.conv(x, 3, 32, 0.02, strides=[2, 2], pads=[0, 0, 1, 1])
    value = graph.quantized(graph.node("Relu", value), 0.05, low)
    depth = 32
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5)
    for to, stride in (*blocks, (1024, 2), (1024, 1)):
        pads = [1, 1, 1, 1] if stride == 1 else [0, 0, 1, 1]
        steps = [stride, stride]
        value = graph.conv(value, depth, depth, 0.05, strides=steps, pads=pads, group=depth)
        value = graph.quantized(graph.node("Relu", value), 0.05, low)
        value = graph.conv(value, depth, to, 0.05, size=1)
        value = graph.quantized(graph.node("Relu", value), 0.05 * (depth / 16) ** 0.5, low)
        depth = to
    return _finished(graph, value, depth, size, np.full((), 0.01, np.float32))


def _finished(
    graph: QdqGraph, value: str, depth: int, size: int, scales: np.ndarray, *, axis: int = 0
) -> ModelProto:
    """Add a mean, a product and the float ends."""
    middle = 128 if graph.dtype == "uint8" else 0
    mean = graph.quantized(graph.node("GlobalAveragePool", value), 0.05, middle)
    flat = graph.node("Flatten", mean)
    weight = graph.weight((depth, 10), scales, axis=axis)
    bias = graph.bias(10, np.full(scales.shape, 0.05 * 0.01, np.float32))
    graph.node("Gemm", flat, weight, bias)
    graph.nodes[-1].output[0] = "scores_real"
    graph.quantized("scores_real", 0.04, middle)
    graph.nodes[-1].output[0] = "scores"
    body = helper.make_graph(
        graph.nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        graph.constants,
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker = import_module("onnx.checker")  # its types leave the class of paths open
    checker.check_model(model)
    return model
