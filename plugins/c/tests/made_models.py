# SPDX-License-Identifier: Apache-2.0
"""Small models of the kinds that run on microcontrollers."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(5)


def weight(name, *shape):
    data = RNG.normal(size=shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]) or 1)
    return numpy_helper.from_array(data.astype(np.float32), name)


def separable():
    """A convolution, then depthwise and pointwise pairs, as keyword spotters are built."""
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["h0"], strides=[2, 2], pads=[1, 1, 1, 1])]
    weights = [weight("w", 16, 1, 3, 3), weight("b", 16)]
    for n in range(2):
        weights += [weight(f"d{n}", 16, 1, 3, 3), weight(f"p{n}", 16, 16, 1, 1)]
        nodes += [
            helper.make_node("Conv", [f"h{n}", f"d{n}"], [f"a{n}"], group=16, pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"a{n}"], [f"r{n}"]),
            helper.make_node("Conv", [f"r{n}", f"p{n}"], [f"c{n}"]),
            helper.make_node("Relu", [f"c{n}"], [f"h{n + 1}"]),
        ]
    weights += [weight("f", 16, 12), weight("g", 12)]
    nodes += [
        helper.make_node("GlobalAveragePool", ["h2"], ["m"]),
        helper.make_node("Flatten", ["m"], ["v"]),
        helper.make_node("Gemm", ["v", "f", "g"], ["z"]),
        helper.make_node("Softmax", ["z"], ["y"]),
    ]
    return nodes, weights, (1, 1, 49, 10), (1, 12)


def quantized():
    """8-bit weights and activations around a convolution and a product."""
    levels = {
        "w": RNG.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "f": RNG.integers(-127, 128, (8, 4)).astype(np.int8),
        "s": np.float32(0.02),
        "i": np.int8(3),
        "u": np.uint8(128),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "i"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "i"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "s"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalMaxPool", ["r"], ["m"]),
        helper.make_node("Flatten", ["m"], ["v"]),
        helper.make_node("QuantizeLinear", ["v", "s", "u"], ["vq"]),
        helper.make_node("DequantizeLinear", ["vq", "s", "u"], ["vd"]),
        helper.make_node("DequantizeLinear", ["f", "s"], ["fd"]),
        helper.make_node("MatMul", ["vd", "fd"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in levels.items()]
    return nodes, weights, (1, 3, 12, 12), (1, 4)


def saved(folder, make):
    nodes, weights, shape, result = make()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    graph = helper.make_graph(nodes, make.__name__, [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = folder / f"{make.__name__}.onnx"
    onnx.save(model, path)
    return path, RNG.normal(size=shape).astype(np.float32)
