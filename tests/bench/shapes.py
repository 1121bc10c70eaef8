# SPDX-License-Identifier: Apache-2.0
"""Single operators of published networks: ``model_shapes.csv`` read as ONNX models.

A line is ``model;operator;data;rest``: the network that the shape is from, a name of
:data:`MAKERS`, the shape of the data, and settings as ``key=value``. Windows have ``o`` (outputs),
``k`` (kernel), ``s`` (strides), ``p`` (padding on each side), ``d`` (dilation) and ``g`` (groups).
Weights are random and constant; ``q`` before a name means 8 bits between QuantizeLinear and
DequantizeLinear, weights with a scale for each channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper, numpy_helper

SHAPES = Path(__file__).with_name("model_shapes.csv")
Array = np.ndarray


@dataclass(frozen=True)
class Shape:
    """A line of the list.

    Attributes:
        model: The network.
        op: Name of what makes the model.
        data: Shape of the data.
        rest: Settings.
    """

    model: str
    op: str
    data: tuple[int, ...]
    rest: Mapping[str, str]

    @property
    def name(self) -> str:
        """The line without the network."""
        rest = " ".join(f"{key}={value}" for key, value in self.rest.items())
        return f"{self.op} {'x'.join(map(str, self.data))} {rest}".rstrip()

    def sizes(self, key: str, default: int = 1, between: str = "x") -> list[int]:
        """Return the numbers of a setting; ``default`` for each spatial dimension without it."""
        text = self.rest.get(key)
        if text is None:
            return [default] * (len(self.data) - 2)
        return [int(size) for size in text.split(between)]

    def size(self, key: str, default: int = 1) -> int:
        """Return the number of a setting."""
        return int(self.rest.get(key, default))

    def save(self, path: Path) -> dict[str, Array]:
        """Write the model; return its inputs."""
        draft = Draft()
        MAKERS[self.op](self, draft)
        return draft.save(path)


def read_shapes(path: Path = SHAPES) -> list[Shape]:
    """Return the lines of the list."""
    shapes: list[Shape] = []
    for line in path.read_text().splitlines():
        if line.startswith(("#", "model;")):
            continue
        model, op, data, rest = line.split(";")
        settings = dict(word.split("=", 1) for word in rest.split())
        shapes.append(Shape(model, op, tuple(map(int, data.split("x"))), settings))
    return shapes


@dataclass
class Draft:
    """A model of few nodes.

    Attributes:
        nodes: In order; the last one gives ``y``.
        inputs: Random data by name.
        constants: Weights by name.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    drawn: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def data(self, name: str, shape: tuple[int, ...], dtype: type = np.float32) -> str:
        """Add an input of random elements."""
        if dtype is np.uint8:
            self.inputs[name] = self.drawn.integers(0, 256, shape).astype(np.uint8)
        else:
            self.inputs[name] = self.drawn.standard_normal(shape).astype(dtype)
        return name

    def weight(self, name: str, shape: tuple[int, ...]) -> str:
        """Add a constant of random elements, so small that sums of products stay near 1."""
        depth = max(1, int(np.prod(shape[1:])))
        values = self.drawn.standard_normal(shape) / depth**0.5
        return self.constant(name, values.astype(np.float32))

    def constant(self, name: str, values: object) -> str:
        """Add a constant."""
        self.constants[name] = np.asarray(values)
        return name

    def node(self, op: str, inputs: list[str], output: str = "y", **attrs: object) -> str:
        """Add a node."""
        self.nodes.append(helper.make_node(op, inputs, [output], **attrs))
        return output

    def save(self, path: Path) -> dict[str, Array]:
        """Write the model; return its inputs."""
        graph = helper.make_graph(
            self.nodes,
            "one",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in self.inputs.items()
            ],
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opset = [helper.make_opsetid("", 21)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
        return self.inputs


def _window(shape: Shape) -> dict[str, object]:
    """Return the attributes of windows."""
    kernel = shape.sizes("k")
    return {
        "kernel_shape": kernel,
        "strides": shape.sizes("s"),
        "pads": shape.sizes("p", 0) * 2,
    }


def _conv_attrs(shape: Shape) -> dict[str, object]:
    return {**_window(shape), "dilations": shape.sizes("d"), "group": shape.size("g")}


def _conv(shape: Shape, draft: Draft) -> None:
    outputs, groups = shape.size("o"), shape.size("g")
    weight = draft.weight("w", (outputs, shape.data[1] // groups, *shape.sizes("k")))
    operands = [draft.data("x", shape.data), weight, draft.weight("b", (outputs,))]
    draft.node("Conv", operands, **_conv_attrs(shape))


def _deconv(shape: Shape, draft: Draft) -> None:
    outputs = shape.size("o")
    weight = draft.weight("w", (shape.data[1], outputs, *shape.sizes("k")))
    operands = [draft.data("x", shape.data), weight, draft.weight("b", (outputs,))]
    draft.node("ConvTranspose", operands, **_conv_attrs(shape))


def _bytes(draft: Draft, shape: tuple[int, ...], axis: int) -> str:
    """Add 8-bit weights with a scale for each channel."""
    count = shape[axis]
    along = tuple(number for number in range(len(shape)) if number != axis)
    values = draft.drawn.standard_normal(shape)
    most = np.abs(values).max(axis=along, keepdims=True)
    draft.constant("w", np.rint(127 * values / most).astype(np.int8))
    depth = int(np.prod(shape)) / count
    scales = most.reshape(-1) / (127 * depth**0.5)
    operands = ["w", draft.constant("ws", scales.astype(np.float32))]
    operands.append(draft.constant("wz", np.zeros(count, np.int8)))
    return draft.node("DequantizeLinear", operands, "weight", axis=axis)


def _between_bytes(shape: Shape, draft: Draft, op: str, weight: str, **attrs: object) -> None:
    """Add an operator between a DequantizeLinear and a QuantizeLinear."""
    draft.data("q", shape.data, np.uint8)
    scale, zero = draft.constant("s", np.float32(0.02)), draft.constant("z", np.uint8(128))
    draft.node("DequantizeLinear", ["q", scale, zero], "x")
    draft.node(op, ["x", weight], "r", **attrs)
    draft.node("QuantizeLinear", ["r", draft.constant("rs", np.float32(0.04)), zero])


def _qconv(shape: Shape, draft: Draft) -> None:
    outputs, inner = shape.size("o"), shape.data[1] // shape.size("g")
    weight = _bytes(draft, (outputs, inner, *shape.sizes("k")), 0)
    _between_bytes(shape, draft, "Conv", weight, **_conv_attrs(shape))


def _dense(shape: Shape, draft: Draft) -> None:
    weight = draft.weight("w", (shape.data[-1], shape.size("n")))
    draft.node("MatMul", [draft.data("x", shape.data), weight])


def _qdense(shape: Shape, draft: Draft) -> None:
    _between_bytes(shape, draft, "MatMul", _bytes(draft, (shape.data[-1], shape.size("n")), 1))


def _matmul(shape: Shape, draft: Draft) -> None:
    *batch, _, depth = shape.data
    right = draft.data("w", (*batch, depth, shape.size("n")))
    draft.node("MatMul", [draft.data("x", shape.data), right])


def _pool(op: str) -> Callable[[Shape, Draft], None]:
    def make(shape: Shape, draft: Draft) -> None:
        draft.node(op, [draft.data("x", shape.data)], **_window(shape))

    return make


def _lone(op: str, **attrs: object) -> Callable[[Shape, Draft], None]:
    def make(shape: Shape, draft: Draft) -> None:
        draft.node(op, [draft.data("x", shape.data)], **attrs)

    return make


def _along(op: str) -> Callable[[Shape, Draft], None]:
    def make(shape: Shape, draft: Draft) -> None:
        draft.node(op, [draft.data("x", shape.data)], axis=shape.size("axis", -1))

    return make


def _silu(shape: Shape, draft: Draft) -> None:
    draft.data("x", shape.data)
    draft.node("Sigmoid", ["x"], "s")
    draft.node("Mul", ["x", "s"])


def _gelu(shape: Shape, draft: Draft) -> None:
    """By ``erf``, as exporters write it out."""
    draft.data("x", shape.data)
    numbers = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    for name, number in numbers.items():
        draft.constant(name, np.float32(number))
    draft.node("Div", ["x", "root"], "a")
    draft.node("Erf", ["a"], "b")
    draft.node("Add", ["b", "one"], "c")
    draft.node("Mul", ["x", "c"], "d")
    draft.node("Mul", ["d", "half"])


def _norm(op: str) -> Callable[[Shape, Draft], None]:
    def make(shape: Shape, draft: Draft) -> None:
        attrs: dict[str, object] = {}
        count = shape.data[-1] if op == "LayerNormalization" else shape.data[1]
        if op == "GroupNormalization":
            attrs["num_groups"] = shape.size("g")
        operands = [draft.data("x", shape.data)]
        operands += [draft.weight(name, (count,)) for name in ("scale", "bias")]
        draft.node(op, operands, **attrs)

    return make


def _recurrent(op: str, gates: int) -> Callable[[Shape, Draft], None]:
    def make(shape: Shape, draft: Draft) -> None:
        hidden = shape.size("h")
        draft.data("x", shape.data)
        for name, depth in (("w", shape.data[2]), ("r", hidden)):
            draft.weight(name, (1, gates * hidden, depth))
        draft.weight("b", (1, 2 * gates * hidden))
        draft.node(op, ["x", "w", "r", "b"], hidden_size=hidden)

    return make


def _resize(shape: Shape, draft: Draft) -> None:
    draft.constant("none", np.empty(0, np.float32))
    operands = [draft.data("x", shape.data), "none"]
    attrs: dict[str, object] = {"mode": shape.rest["mode"]}
    if shape.rest["mode"] == "nearest":
        attrs |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if "size" in shape.rest:
        sizes = [*shape.data[:2], *[shape.size("size")] * 2]
        operands += ["none", draft.constant("sizes", np.array(sizes))]
    else:
        scale = float(shape.size("scale"))
        operands.append(draft.constant("scales", np.array([1, 1, scale, scale], np.float32)))
    draft.node("Resize", operands, **attrs)


def _transpose(shape: Shape, draft: Draft) -> None:
    order = shape.sizes("perm", between=",")
    draft.node("Transpose", [draft.data("x", shape.data)], perm=order)


def _concat(shape: Shape, draft: Draft) -> None:
    axis, other = shape.size("axis", 1), list(shape.data)
    other[axis] = shape.size("other", other[axis])
    names = [draft.data("x", shape.data)]
    names += [draft.data(f"x{number}", tuple(other)) for number in range(1, shape.size("n"))]
    draft.node("Concat", names, axis=axis)


def _gather(shape: Shape, draft: Draft) -> None:
    draft.constant("table", draft.drawn.standard_normal(shape.data).astype(np.float32))
    rows = draft.drawn.integers(0, shape.data[0], (1, shape.size("n")))
    draft.inputs["x"] = rows.astype(np.int64)
    draft.node("Gather", ["table", "x"])


def _mean(shape: Shape, draft: Draft) -> None:
    axes = draft.constant("axes", np.array(shape.sizes("axes", between=",")))
    draft.node("ReduceMean", [draft.data("x", shape.data), axes])


def _by_channel(shape: Shape, draft: Draft) -> None:
    gate = draft.data("gate", (*shape.data[:2], *[1] * (len(shape.data) - 2)))
    draft.node("Mul", [draft.data("x", shape.data), gate])


def _two(shape: Shape, draft: Draft) -> None:
    draft.node("Add", [draft.data("x", shape.data), draft.data("x1", shape.data)])


def _to_space(shape: Shape, draft: Draft) -> None:
    draft.node("DepthToSpace", [draft.data("x", shape.data)], blocksize=shape.size("b"), mode="CRD")


MAKERS: Mapping[str, Callable[[Shape, Draft], None]] = MappingProxyType(
    {
        "conv": _conv,
        "deconv": _deconv,
        "qconv": _qconv,
        "dense": _dense,
        "qdense": _qdense,
        "matmul": _matmul,
        "maxpool": _pool("MaxPool"),
        "avgpool": _pool("AveragePool"),
        "softmax": _along("Softmax"),
        "relu": _lone("Relu"),
        "tanh": _lone("Tanh"),
        "sigmoid": _lone("Sigmoid"),
        "hardswish": _lone("HardSwish"),
        "leaky": _lone("LeakyRelu", alpha=0.1),
        "silu": _silu,
        "gelu": _gelu,
        "layernorm": _norm("LayerNormalization"),
        "groupnorm": _norm("GroupNormalization"),
        "instancenorm": _norm("InstanceNormalization"),
        "lstm": _recurrent("LSTM", 4),
        "gru": _recurrent("GRU", 3),
        "resize": _resize,
        "transpose": _transpose,
        "concat": _concat,
        "gather": _gather,
        "mean": _mean,
        "mul1": _by_channel,
        "add": _two,
        "d2s": _to_space,
    }
)
"""Operator of the list to what adds it to a model."""
