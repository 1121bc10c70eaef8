# SPDX-License-Identifier: Apache-2.0
"""Nets of the kinds and sizes of MLPerf Tiny, with seeded weights; as they are, and quantized."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A net that grows at its end.

    Args:
        shape: Of the input, without the batch.
        seed: Of the weights.
    """

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        self.shape = (1, *shape)
        self.channels = shape[0]
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        """Append a node; returns the name of its result."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{name}", **attributes))
        return name

    def weight(self, *shape: int, gain: float = 2.0) -> str:
        """Return the name of a new weight, scaled so that signals keep their size after ReLU."""
        scale = np.sqrt(gain / max(1, np.prod(shape[1:])))
        data = self.rng.normal(scale=scale, size=shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(data, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(
        self, x: str, outputs: int, kernel: tuple[int, int], stride: int = 1, groups: int = 1,
        gain: float = 2.0,
    ) -> str:  # fmt: skip
        """A convolution with bias, padded so that only the stride makes it smaller."""
        inner = self.channels // groups
        self.channels = outputs
        return self.add(
            "Conv", x, self.weight(outputs, inner, *kernel, gain=gain), self.weight(outputs),
            kernel_shape=kernel, strides=[stride, stride], auto_pad="SAME_UPPER", group=groups,
        )  # fmt: skip

    def block(self, x: str, outputs: int, stride: int = 1) -> str:
        """A depthwise and a pointwise convolution, each with ReLU."""
        x = self.add("Relu", self.conv(x, self.channels, (3, 3), stride, groups=self.channels))
        return self.add("Relu", self.conv(x, outputs, (1, 1)))

    def inverted(self, x: str, outputs: int, stride: int, expansion: int) -> str:
        """A block of MobileNet-v2: wide, depthwise, narrow without ReLU, added if it may be."""
        inputs, y = self.channels, x
        if expansion > 1:
            y = self.add("Relu", self.conv(y, expansion * inputs, (1, 1)))
        y = self.add("Relu", self.conv(y, self.channels, (3, 3), stride, groups=self.channels))
        y = self.conv(y, outputs, (1, 1), gain=0.5)
        return self.add("Add", x, y) if stride == 1 and inputs == outputs else y

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        """A dense layer."""
        return self.add("Gemm", x, self.weight(outputs, inputs), self.weight(outputs), transB=1)

    def classify(self, x: str, classes: int) -> onnx.ModelProto:
        """Average, a dense layer and softmax: the end of the net."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x))
        return self.finish(self.add("Softmax", self.dense(flat, self.channels, classes)), classes)

    def finish(self, x: str, outputs: int) -> onnx.ModelProto:
        """Return the model."""
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        result = helper.make_tensor_value_info(x, TensorProto.FLOAT, (1, outputs))
        graph = helper.make_graph(self.nodes, "tiny", [given], [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def keywords() -> onnx.ModelProto:
    """Keyword spotting: depthwise separable convolutions over a spectrogram."""
    net = Net((1, 49, 10), 1)
    x = net.add("Relu", net.conv("x", 64, (10, 4), 2))
    for _ in range(4):
        x = net.block(x, 64)
    return net.classify(x, 12)


def images() -> onnx.ModelProto:
    """Image classification: a ResNet of eight layers."""
    net = Net((3, 32, 32), 2)
    x = net.add("Relu", net.conv("x", 16, (3, 3)))
    for outputs in (16, 32, 64):
        stride, inputs = 1 if outputs == 16 else 2, net.channels
        y = net.add("Relu", net.conv(x, outputs, (3, 3), stride))
        y = net.conv(y, outputs, (3, 3))
        net.channels = inputs
        x = x if stride == 1 else net.conv(x, outputs, (1, 1), stride)
        net.channels = outputs
        x = net.add("Relu", net.add("Add", x, y))
    return net.classify(x, 10)


def persons() -> onnx.ModelProto:
    """Visual wake words: a MobileNet of a quarter of the width."""
    net = Net((3, 96, 96), 3)
    x = net.add("Relu", net.conv("x", 8, (3, 3), 2))
    rows = [
        (16, 1),
        (32, 2),
        (32, 1),
        (64, 2),
        (64, 1),
        (128, 2),
        *[(128, 1)] * 5,
        (256, 2),
        (256, 1),
    ]
    for outputs, stride in rows:
        x = net.block(x, outputs, stride)
    return net.classify(x, 2)


def mobilenet() -> onnx.ModelProto:
    """MobileNet-v2 of width 0.35, for images of 96x96."""
    net = Net((3, 96, 96), 5)
    x = net.inverted(net.add("Relu", net.conv("x", 16, (3, 3), 2)), 8, 1, 1)
    for outputs, count, stride in ((8, 2, 2), (16, 3, 2), (24, 4, 2), (32, 3, 1), (56, 3, 2)):
        for number in range(count):
            x = net.inverted(x, outputs, 1 if number else stride, 6)
    x = net.inverted(x, 112, 1, 6)
    return net.classify(net.add("Relu", net.conv(x, 1280, (1, 1))), 10)


def anomalies() -> onnx.ModelProto:
    """Anomaly detection: an autoencoder of dense layers."""
    net = Net((640,), 4)
    x, size = "x", 640
    for outputs in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        x = net.add("Relu", net.dense(x, size, outputs))
        size = outputs
    return net.finish(net.dense(x, size, 640), 640)


NETS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "keywords": keywords, "images": images, "persons": persons, "anomalies": anomalies,
    "mobilenet": mobilenet,
}  # fmt: skip


def quantize(
    model: onnx.ModelProto, x: np.ndarray, kind: type[np.integer] = np.uint8
) -> onnx.ModelProto:
    """Put 8-bit quantize and dequantize pairs in front of operands, by the ranges for ``x``."""
    lowest = np.iinfo(kind).min
    values = _values(model, x)
    graph = model.graph
    weights = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    made: dict[str, str] = {}

    def level(name: str, array: np.ndarray) -> str:
        graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def of_weight(name: str) -> str:
        array = weights[name]
        scale = np.abs(array).reshape(array.shape[0], -1).max(1).astype(np.float32) / 127 + 1e-9
        shape = (-1, *[1] * (array.ndim - 1))
        data = np.clip(np.rint(array / scale.reshape(shape)), -127, 127).astype(np.int8)
        inputs = [level(f"{name}_q", data), level(f"{name}_s", scale)]
        nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_d"], axis=0))
        return f"{name}_d"

    def of_value(name: str) -> str:
        low, high = min(0.0, float(values[name].min())), max(0.0, float(values[name].max()))
        scale = np.float32((high - low) / 255 or 1)
        levels = [
            level(f"{name}_s", np.array(scale)),
            level(f"{name}_z", np.array(np.clip(np.rint(-low / scale), 0, 255) + lowest, kind)),
        ]
        nodes.append(helper.make_node("QuantizeLinear", [name, *levels], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *levels], [f"{name}_d"]))
        return f"{name}_d"

    for node in graph.node:
        if node.op_type in ("Conv", "Gemm", "Add", "GlobalAveragePool"):
            for number, name in enumerate(node.input[:2]):
                if name not in made:
                    made[name] = of_weight(name) if name in weights else of_value(name)
                node.input[number] = made[name]
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    kept = [w for w in graph.initializer if w.name not in made]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    onnx.checker.check_model(model)
    return model


class ByteNet:
    """A chain of 8-bit convolutions between a quantize and a dequantize node.

    Args:
        x: The input, for its shape.
        kind: Element type of the data.
    """

    def __init__(self, x: np.ndarray, kind: type[np.integer]) -> None:
        self.x, self.kind = x, kind
        self.rng = np.random.default_rng(7)
        self.arrays: dict[str, np.ndarray] = {}
        self.last = ["q", *self._levels("x", 0.02, 0 if kind is np.int8 else 131, kind)]
        self.nodes = [helper.make_node("QuantizeLinear", ["x", *self.last[1:]], ["q"], name="q")]

    def _levels(self, name: str, scale: float, at: int, of: type[np.integer]) -> list[str]:
        self.arrays[f"{name}s"], self.arrays[f"{name}z"] = np.float32(scale), np.array(at, of)
        return [f"{name}s", f"{name}z"]

    def conv(self, shape: tuple[int, ...], **attributes: object) -> None:
        """Append a convolution with weights ``[O, I, KH, KW]``."""
        name = f"c{len(self.nodes)}"
        self.arrays[f"{name}w"] = self.rng.integers(-128, 128, shape).astype(np.int8)
        self.arrays[f"{name}b"] = self.rng.integers(-99, 99, shape[0]).astype(np.int32)
        levels = self._levels(name, 0.05 * shape[1], 5, self.kind)
        inputs = [*self.last, f"{name}w", *self._levels(f"{name}w", 0.01, 0, np.int8)]
        inputs += [*levels, f"{name}b"]
        self.nodes.append(helper.make_node("QLinearConv", inputs, [name], name=name, **attributes))
        self.last = [name, *levels]

    def finish(self, shape: tuple[int, ...]) -> onnx.ModelProto:
        """Return the model, whose output has ``shape``."""
        self.nodes.append(helper.make_node("DequantizeLinear", self.last, ["y"], name="y"))
        graph = helper.make_graph(
            self.nodes,
            "bytes",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(np.asarray(a), name) for name, a in self.arrays.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def corners(x: np.ndarray, kind: type[np.integer]) -> onnx.ModelProto:
    """The corners of dot products: rests of tiles, one output, padding."""
    net = ByteNet(x, kind)
    net.conv((5, x.shape[1], 3, 3), pads=[1] * 4)
    net.conv((8, 5, 1, 1))
    net.conv((1, 8, 2, 3))
    return net.finish((1, 1, x.shape[2] - 1, x.shape[3] - 2))


def spectrogram(x: np.ndarray, kind: type[np.integer]) -> onnx.ModelProto:
    """Windows over one channel, whose rows become channels."""
    net = ByteNet(x, kind)
    net.conv((16, 1, 5, 3), pads=[2, 1, 2, 1], strides=[2, 1])
    net.conv((3, 16, 1, 1))
    return net.finish((1, 3, (x.shape[2] + 1) // 2, x.shape[3]))


def windows(x: np.ndarray, kind: type[np.integer]) -> onnx.ModelProto:
    """The corners of windows within a channel: rests of vectors, padding, steps, distant taps."""
    net = ByteNet(x, kind)
    channels = x.shape[1]
    net.conv((channels, 1, 3, 3), group=channels, pads=[1] * 4)
    net.conv((channels, 1, 2, 4), group=channels, pads=[3, 1, 0, 2], strides=[2, 1])
    net.conv((channels, 1, 2, 2), group=channels, dilations=[1, 2])
    return net.finish((1, channels, (x.shape[2] + 1) // 2, x.shape[3] - 2))


def strides(x: np.ndarray, kind: type[np.integer]) -> onnx.ModelProto:
    """Windows within a channel that are apart, large, and with distant rows."""
    net = ByteNet(x, kind)
    channels, (height, width) = x.shape[1], ((size + 1) // 2 for size in x.shape[2:])
    net.conv((channels, 1, 3, 3), group=channels, pads=[1] * 4, strides=[2, 2])
    net.conv((channels, 1, 5, 5), group=channels, pads=[2] * 4)
    net.conv((channels, 1, 3, 3), group=channels, pads=[2, 1, 2, 1], dilations=[2, 1])
    net.conv((channels, 1, 1, 1), group=channels)
    return net.finish((1, channels, height, width))


def floats(x: np.ndarray, channels: int) -> onnx.ModelProto:
    """A window and a product of float32 with functions that choose between numbers."""
    rng, inputs = np.random.default_rng(7), x.shape[1]
    arrays = {
        "w": rng.normal(size=(channels, inputs, 3, 3)), "b": rng.normal(size=channels),
        "v": rng.normal(size=(channels, channels, 1, 1)), "low": -0.5, "high": 2.0,
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"]),
        helper.make_node("Clip", ["d", "low", "high"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "floats",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, channels, *x.shape[2:]))],
        [numpy_helper.from_array(np.asarray(a, np.float32), name) for name, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _values(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """Every intermediate value for an input."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    names = [name for node in whole.graph.node for name in node.output]
    del whole.graph.output[:]
    whole.graph.output.extend(
        helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names
    )
    session = onnxruntime.InferenceSession(
        whole.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return {"x": x, **dict(zip(names, session.run(None, {"x": x}), strict=True))}


def save_net(folder: Path, name: str) -> tuple[Path, np.ndarray]:
    """Write the net of a name, which may end with ``_int8``, or with ``_signed`` if data have a
    sign as well as weights; returns the file and an input.
    """
    net, _, kind = name.partition("_")
    model = NETS[net]()
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(9).normal(size=shape).astype(np.float32)
    if kind:
        model = quantize(model, x, np.int8 if kind == "signed" else np.uint8)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path, x
