# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models and how to compare them with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx


def node(op: str, inputs: str, outputs: str = "y", **attrs) -> onnx.NodeProto:
    """A node whose inputs and outputs are written as words; ``_`` is one left out."""
    names = [[("" if word == "_" else word) for word in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, name=attrs.pop("name", ""), **attrs)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str] | tuple],
    *,
    weights: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    dtype: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model with inputs of one element type, and outputs of undeclared types."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=min(10, 3 + opset // 2))


def feeds(proto: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for the inputs that are no weights."""
    rng = np.random.default_rng(seed)
    weights = {tensor.name for tensor in proto.graph.initializer}
    result: dict[str, np.ndarray] = {}
    for info in proto.graph.input:
        if info.name in weights:
            continue
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        result[info.name] = (rng.standard_normal(shape) * 3).astype(dtype)
    return result


def ours(proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Import and evaluate."""
    return evaluate(from_onnx(proto).main, values)


def assert_like_onnxruntime(proto: onnx.ModelProto, seed: int = 0) -> None:
    """Import, evaluate, and compare types and values with ONNX Runtime."""
    values = feeds(proto, seed)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for found, wanted in zip(ours(proto, values), session.run(None, values), strict=True):
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
