# SPDX-License-Identifier: Apache-2.0
"""Models of any number of nodes, to see how compile time grows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 16
OPERATORS = ("MatMul", "Add", "Relu", "MatMul", "Tanh", "Mul", "MatMul", "Sigmoid", "Sub", "Abs")


def write_chain(path: Path, nodes: int) -> Path:
    """Write a chain of products and element-wise operators, with a weight for each that takes one.

    Args:
        path: Where to.
        nodes: How many.
    """
    rng = np.random.default_rng(nodes)
    made, weights, last = [], [], "x"
    for number in range(nodes):
        op = OPERATORS[number % len(OPERATORS)]
        inputs = [last]
        if op in ("MatMul", "Add", "Mul", "Sub"):
            shape = (WIDTH, WIDTH) if op == "MatMul" else (WIDTH,)
            array = rng.standard_normal(shape).astype(np.float32) / WIDTH
            weights.append(numpy_helper.from_array(array, f"w{number}"))
            inputs.append(f"w{number}")
        last = "y" if number == nodes - 1 else f"v{number}"
        made.append(helper.make_node(op, inputs, [last], name=f"n{number}"))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, WIDTH])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, WIDTH])
    graph = helper.make_graph(made, "chain", [given], [result], weights)
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path
