# SPDX-License-Identifier: Apache-2.0
"""Carries out single nodes through the evaluator, as a program does at run time."""

from __future__ import annotations

from collections import ChainMap
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from intarsia_onnx.dynamic.evaluator import Evaluator
from intarsia_onnx.reader import read_model, standard_bodies


def run(
    op: str, *values: Any, opset: int = 21, domain: str = "", outputs: int = 1, **attrs: Any
) -> list[Any]:
    """The results of one node; ``None`` among the values is an operand left out."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(values)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="it", domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_empty_tensor_value_info(name) for name in names if name],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
    )
    for info in graph.input:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    imports = [helper.make_opsetid(domain, 1 if domain != "ai.onnx.ml" else 5)]
    if domain:
        imports.append(helper.make_opsetid("", opset))
    else:
        imports[0] = helper.make_opsetid("", opset)
    model = read_model(helper.make_model(graph, opset_imports=imports), any_value=True)
    given = {name: value for name, value in zip(names, values, strict=True) if name}
    scope = ChainMap(given)
    Evaluator(standard_bodies).run(model.graph.nodes, scope, opset)
    return [scope[name] for name in results]


def one(op: str, *values: Any, **attrs: Any) -> np.ndarray:
    """The only result of one node, which is a tensor."""
    (result,) = run(op, *values, **attrs)
    assert isinstance(result, np.ndarray)
    return result


def texts(*words: str) -> np.ndarray:
    """A vector of strings."""
    return np.array(words, object)


def f32(*values: Any) -> np.ndarray:
    """A vector, or a nested list as an array, of float32."""
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def i64(*values: Any) -> np.ndarray:
    """A vector, or a single number as a scalar, of int64."""
    return np.array(values[0] if len(values) == 1 else values, np.int64)
