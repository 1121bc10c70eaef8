# SPDX-License-Identifier: Apache-2.0
"""A step of training as one artifact: loss, derivatives, new weights."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import intarsia
from intarsia_ir.ops.evaluate import evaluate
from intarsia_onnx import from_onnx

TRAINING = "ai.onnx.preview.training"
WEIGHTS = {"kernel": (4, 1, 3, 3), "shift": (4,), "matrix": (64, 3)}
INPUTS = {"image": (6, 1, 8, 8), "target": (6, 3), **WEIGHTS}


def training_step() -> bytes:
    """A small network, its loss, and its weights after one step of gradient descent."""
    names, slopes = [*WEIGHTS], [f"d_{name}" for name in WEIGHTS]
    nodes = [
        helper.make_node("Conv", ["image", "kernel", "shift"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("AveragePool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "matrix"], ["g"]),
        helper.make_node("LogSoftmax", ["g"], ["l"], axis=1),
        helper.make_node("Mul", ["l", "target"], ["m"]),
        helper.make_node("ReduceMean", ["m"], ["mean"], keepdims=0),
        helper.make_node("Neg", ["mean"], ["loss"]),
        helper.make_node("Gradient", names, slopes, domain=TRAINING, xs=names, y="loss"),
    ]
    for name in names:
        nodes.append(helper.make_node("Mul", [f"d_{name}", "rate"], [f"s_{name}"]))
        nodes.append(helper.make_node("Sub", [name, f"s_{name}"], [f"new_{name}"]))
    graph = helper.make_graph(
        nodes,
        "step",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in INPUTS.items()],
        [
            helper.make_tensor_value_info("loss", TensorProto.FLOAT, ()),
            *(helper.make_tensor_value_info(f"new_{n}", 1, s) for n, s in WEIGHTS.items()),
        ],
        [helper.make_tensor("rate", TensorProto.FLOAT, (), [5.0])],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(TRAINING, 1)]
    return helper.make_model(graph, opset_imports=imports).SerializeToString()


@pytest.mark.parametrize("target", ["llvm", "dnnl, llvm"])
def test_the_loss_goes_down(target: str) -> None:
    rng = np.random.default_rng(1)
    values = {n: rng.standard_normal(s).astype(np.float32) * 0.3 for n, s in INPUTS.items()}
    values["target"] = np.eye(3, dtype=np.float32)[rng.integers(0, 3, 6)]
    data = training_step()
    main = from_onnx(data).main
    losses: list[float] = []
    with intarsia.build(data, target).load(threads=1) as executable:
        for _ in range(20):
            found = executable.run(values)
            for mine, wanted in zip(found.values(), evaluate(main, values), strict=True):
                assert np.allclose(mine, wanted, rtol=1e-4, atol=1e-5)
            losses.append(float(found["loss"]))
            values.update((name, np.asarray(found[f"new_{name}"])) for name in WEIGHTS)
    assert losses[-1] < 0.5 * losses[0]
